"""This broker's part in a cluster on ZooKeeper: all that a broker alone does without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, cast

from ottla.config.broker_config import BrokerConfig
from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Deadline, pause
from ottla.protocol.controller_requests import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.protocol.group import (
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.message import Response
from ottla.protocol.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.registry.tree import Registry
from ottla.replication.partition_leader import Cluster
from ottla.runtime import Runtime
from ottla.server.apis import ApiFamily
from ottla.server.broker_connections import BrokerConnections
from ottla.server.cluster_channel import ClusterBrokerChannel
from ottla.server.controller_channel import ControllerChannel
from ottla.server.controller_orders import ControllerOrders
from ottla.server.handlers.controller_orders import ControllerOrdersHandler
from ottla.server.handlers.controller_requests import ControllerRequestsHandler
from ottla.server.isr_requests import IsrRequests
from ottla.server.local_channel import LocalBrokerChannel
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import INTERNAL_TOPICS, OFFSETS_TOPIC, Node

logger = logging.getLogger(__name__)

CREATION_TIMEOUT_MS: Final = 5_000
METADATA_PAUSE_MS: Final = 10
METADATA_TIMEOUT_MS: Final = 10_000
BROKER_DEFAULT: Final = -1
FIRST_VERSION_WITH_DEFAULTS: Final = 4
FIND_COORDINATORS_VERSION: Final = 4
DRAIN_TIMEOUT_MS: Final = 5_000
"""Whoever answers nothing for so long is not waited for: the next controller will tell it."""


class ClusterLink:
    """Ways to the other brokers and to the controller, and what these ask of this broker.

    `broker_epoch` is that of this broker's registration, which changes with the session.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        registry: Registry,
        cache: MetadataCache,
        broker_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._cache = cache
        self.connections = connections = BrokerConnections(runtime, config, cache, broker_id)
        self._broker_epoch = broker_epoch
        self._channel: ClusterBrokerChannel | None = None
        self._nodes: tuple[object, dict[int, Node]] = (None, {})
        self.controller_channel = ControllerChannel(
            runtime,
            registry,
            connections,
        )
        self.isr_requests = IsrRequests(
            runtime,
            self.controller_channel,
            broker_id,
            broker_epoch,
            config.controller_socket_timeout_ms,
        )

    def broker_channel(self, local: LocalBrokerChannel) -> ClusterBrokerChannel:
        """The controller's way to all brokers, should this one be elected."""
        self._channel = ClusterBrokerChannel(
            self._runtime, local, self.connections, self._config.controller_socket_timeout_ms
        )
        return self._channel

    def families(self, orders: ControllerOrders, controller: Controller) -> Iterable[ApiFamily]:
        """The handlers of what brokers and the controller ask of each other."""
        self._controller = controller
        requests = ControllerRequestsHandler(controller)
        self.controller_channel.own = {
            AlterPartitionRequest: requests.alter_partition,
            ControlledShutdownRequest: requests.controlled_shutdown,
            CreateTopicsRequest: self._create_own_topic,
            FindCoordinatorRequest: self._create_own_internal_topic,
        }
        return (ControllerOrdersHandler(orders, self._broker_epoch), requests)

    def replication(self) -> Cluster:
        """What replicas need to know of the other brokers."""
        return Cluster(
            self.isr_requests, self.connections.connect, self._live_brokers, self._broker_epoch
        )

    def _live_brokers(self) -> dict[int, Node]:
        """Made anew when the controller has told of other brokers, for it is asked often."""
        brokers = self._cache.brokers
        if self._nodes[0] is not brokers:
            nodes = self._cache.alive_brokers(self._config.inter_broker_listener_name)
            self._nodes = brokers, {node.id: node for node in nodes}
        return self._nodes[1]

    async def wait_for_metadata(self) -> None:
        """Wait until the controller has told this broker who is there; not for ever.

        Until then clients would be told that there are neither brokers nor topics.
        """
        deadline = Deadline(self._runtime.clock, METADATA_TIMEOUT_MS)
        while self.connections.broker_id not in self._cache.brokers:
            if deadline.has_passed:
                logger.warning("no controller has told this broker yet who is there")
                return
            await pause(self._runtime.scheduler, METADATA_PAUSE_MS)

    async def controlled_shutdown(self) -> None:
        """Have others lead what this broker leads, as far as that is possible in time."""
        config = self._config
        is_alone = not set(self._cache.brokers) - {self.connections.broker_id}
        if is_alone or not config.controlled_shutdown_enable:
            return
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await pause(self._runtime.scheduler, config.controlled_shutdown_retry_backoff_ms)
            remaining = await self._leave()
            if not remaining:
                return
            logger.warning("%s", remaining)
        logger.warning("the broker stops although it leads partitions: others will be elected")

    async def _leave(self) -> str:
        """What keeps this broker from leaving; nothing if it can go."""
        request = ControlledShutdownRequest(
            broker_id=self.connections.broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            response = await self.controller_channel.ask(
                request, self._config.controller_socket_timeout_ms
            )
        except (KafkaError, OSError) as error:
            return f"controlled shutdown: {error}"
        assert isinstance(response, ControlledShutdownResponse)
        if response.error_code:
            return f"controlled shutdown was refused: {ErrorCode.of(response.error_code).name}"
        if self._channel is not None:
            await self._channel.drain(DRAIN_TIMEOUT_MS)
        count = len(response.remaining_partitions)
        return f"nobody else can lead {count} partitions yet" if count else ""

    async def create_topic(self, name: str) -> None:
        """Have a topic created that somebody uses, and wait until this broker knows it."""
        if self._controller.is_active:
            await self._controller.auto_create_topic(name)
            return
        if name in INTERNAL_TOPICS:
            await self._ask_for_internal_topic(name)
        else:
            await self._ask_for_topic(name)
        deadline = Deadline(self._runtime.clock, CREATION_TIMEOUT_MS)
        while self._cache.topic(name) is None and not deadline.has_passed:
            await pause(self._runtime.scheduler, METADATA_PAUSE_MS)

    async def _ask_for_topic(self, name: str) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=BROKER_DEFAULT, replication_factor=BROKER_DEFAULT
                )
            ],
            timeout_ms=CREATION_TIMEOUT_MS,
        )
        response = await self.controller_channel.ask(
            request,
            CREATION_TIMEOUT_MS,
            low=FIRST_VERSION_WITH_DEFAULTS,
            error_of=lambda answer: cast(CreateTopicsResponse, answer).topics[0].error_code,
        )
        assert isinstance(response, CreateTopicsResponse)
        result = response.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message or "")

    async def _ask_for_internal_topic(self, name: str) -> None:
        """Brokers alone make these; the controller does when it is asked for their coordinators."""
        key_type = KEY_TYPE_GROUP if name == OFFSETS_TOPIC else KEY_TYPE_TRANSACTION
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
        await self.controller_channel.ask(
            request, CREATION_TIMEOUT_MS, low=FIND_COORDINATORS_VERSION
        )

    async def _create_own_topic(self, body: CreateTopicsRequest) -> Response:
        """This broker has become the controller meanwhile."""
        result = CreatableTopicResult(name=body.topics[0].name)
        try:
            await self._controller.auto_create_topic(result.name)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.error), error.message
        return CreateTopicsResponse(topics=[result])

    async def _create_own_internal_topic(self, body: FindCoordinatorRequest) -> Response:
        await self._controller.auto_create_topic(body.coordinator_keys[0])
        return FindCoordinatorResponse()

    def close(self) -> None:
        """Say nothing to anybody any more."""
        self.isr_requests.close()
        self.controller_channel.close()
        if self._channel is not None:
            self._channel.close()
        self.connections.close()
