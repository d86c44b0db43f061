"""This broker's part in a cluster on ZooKeeper: the parts that a single broker does not need."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from ottla.controller.requested_topic import UNASSIGNED, Replicas
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.protocol.controller_requests import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.protocol.group import (
    FIND_COORDINATORS_VERSION,
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.message import Response
from ottla.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.registry.tree import Registry
from ottla.replication.cluster_view import ClusterView
from ottla.runtime.scheduler import pause, within
from ottla.runtime.timing import Deadline
from ottla.server.ask_controller import AskController
from ottla.server.broker_connections import BrokerConnections
from ottla.server.handlers.controller_requests import ControllerRequestsHandler
from ottla.server.isr_requests import IsrRequests
from ottla.server.orders_to_cluster import OrdersToCluster
from ottla.structs import BROKER_DEFAULT, INTERNAL_TOPICS, OFFSETS_TOPIC, Node

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.network.node_connection import OutgoingTls
    from ottla.runtime import Runtime
    from ottla.server.controller_orders import OrdersToOwnBroker
    from ottla.server.metadata_cache import MetadataCache

logger = logging.getLogger(__name__)


CREATION_TIMEOUT_MS: Final = 5_000
METADATA_TIMEOUT_MS: Final = 10_000
FIRST_VERSION_WITH_DEFAULTS: Final = 4
DRAIN_TIMEOUT_MS: Final = 5_000
"""A broker silent for this long is not waited for: the next controller will inform it."""


class ClusterLink:
    """Connects this broker to the others and to the controller, and serves their requests.

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
        tls: OutgoingTls | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._cache = cache
        self.connections = connections = BrokerConnections(runtime, config, cache, broker_id, tls)
        self.broker_epoch = broker_epoch
        self._orders: OrdersToCluster | None = None
        self._nodes: tuple[object, dict[int, Node]] = (None, {})
        self.ask_controller = AskController(runtime, registry, connections)
        self.isr_requests = IsrRequests(
            runtime,
            self.ask_controller,
            broker_id,
            broker_epoch,
            config.controller_socket_timeout_ms,
        )

    def orders_to_brokers(self, local: OrdersToOwnBroker) -> OrdersToCluster:
        """The orders to all brokers, which this broker gives if it is elected."""
        self._orders = OrdersToCluster(
            self._runtime, local, self.connections, self._config.controller_socket_timeout_ms
        )
        return self._orders

    def serve(self, controller: Controller) -> None:
        """Answer as the controller, where this broker is it, also this broker's own requests."""
        self._controller = controller
        self.requests_of_brokers = requests = ControllerRequestsHandler(controller)
        self.ask_controller.own = {
            AlterPartitionRequest: requests.alter_partition,
            ControlledShutdownRequest: requests.controlled_shutdown,
            CreateTopicsRequest: self._create_own_topic,
            FindCoordinatorRequest: self._create_own_internal_topic,
        }

    def replication(self) -> ClusterView:
        """The other brokers, as far as replicas need to know them."""
        return ClusterView(
            self.isr_requests.alter_isr,
            self.connections.connect,
            self._live_brokers,
            self.broker_epoch,
        )

    def _live_brokers(self) -> dict[int, Node]:
        """The live brokers; cached until the metadata changes, as it is asked often."""
        brokers = self._cache.brokers
        if self._nodes[0] is not brokers:
            nodes = self._cache.alive_brokers(self._config.inter_broker_listener_name)
            self._nodes = brokers, {node.id: node for node in nodes}
        return self._nodes[1]

    async def wait_for_metadata(self) -> None:
        """Wait, with a timeout, for the first metadata of the controller.

        Until then clients would see neither brokers nor topics.
        """
        if not await self.until_told():
            logger.warning("no controller has told this broker yet who is there")

    async def until_told(self) -> bool:
        """Whether the controller has announced itself here, after some time at most."""
        is_told = self._cache.wait_until(lambda: self.connections.broker_id in self._cache.brokers)
        try:
            await within(self._runtime.scheduler, METADATA_TIMEOUT_MS, is_told, "no metadata came")
        except KafkaTimeoutError:
            return False
        return True

    async def controlled_shutdown(self) -> None:
        """Have other brokers lead this broker's partitions, as far as possible in time."""
        config = self._config
        is_alone = not set(self._cache.brokers) - {self.connections.broker_id}
        if is_alone or not config.controlled_shutdown_enable:
            return
        deadline = Deadline(self._runtime.clock, config.controller_socket_timeout_ms)
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt and deadline.has_passed:
                break  # so long there was no controller, which each attempt asks again and again
            if attempt:
                await pause(self._runtime.scheduler, config.controlled_shutdown_retry_backoff_ms)
            remaining = await self._leave()
            if not remaining:
                return
            logger.warning("%s", remaining)
        logger.warning("the broker stops although it leads partitions: others will be elected")

    async def _leave(self) -> str:
        """The reason that keeps this broker from leaving; none if it can go."""
        request = ControlledShutdownRequest(
            broker_id=self.connections.broker_id, broker_epoch=self.broker_epoch()
        )
        try:
            response = await self.ask_controller(request, self._config.controller_socket_timeout_ms)
        except (KafkaError, OSError) as error:
            return f"controlled shutdown: {error}"
        assert isinstance(response, ControlledShutdownResponse)
        if response.error_code:
            return f"controlled shutdown was refused: {ErrorCode.of(response.error_code).name}"
        if self._orders is not None:
            await self._orders.drain(DRAIN_TIMEOUT_MS)
        count = len(response.remaining_partitions)
        return f"nobody else can lead {count} partitions yet" if count else ""

    async def create_topic(self, name: str, assignment: Replicas = UNASSIGNED) -> None:
        """Have a topic created on first use, and wait until this broker knows it."""
        if self._controller.is_active:
            await self._controller.auto_create_topic(name, assignment)
            return
        if name in INTERNAL_TOPICS:
            await self._ask_for_internal_topic(name)
        else:
            await self._ask_for_topic(name, assignment)
        is_known = self._cache.wait_until(lambda: self._cache.topic(name) is not None)
        with suppress(KafkaTimeoutError):  # the client asks again
            await within(self._runtime.scheduler, CREATION_TIMEOUT_MS, is_known, "no topic came")

    async def _ask_for_topic(self, name: str, assignment: Replicas) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=BROKER_DEFAULT,
                    replication_factor=BROKER_DEFAULT,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=number, broker_ids=[*replicas])
                        for number, replicas in assignment.items()
                    ],
                )
            ],
            timeout_ms=CREATION_TIMEOUT_MS,
        )
        response = await self.ask_controller(
            request,
            CREATION_TIMEOUT_MS,
            low=FIRST_VERSION_WITH_DEFAULTS,
            error_of=lambda answer: cast("CreateTopicsResponse", answer).topics[0].error_code,
        )
        assert isinstance(response, CreateTopicsResponse)
        result = response.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(ErrorCode.of(result.error_code), result.error_message or "")

    async def _ask_for_internal_topic(self, name: str) -> None:
        """Clients cannot create these; the controller does when asked for their coordinators."""
        key_type = KEY_TYPE_GROUP if name == OFFSETS_TOPIC else KEY_TYPE_TRANSACTION
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
        await self.ask_controller(request, CREATION_TIMEOUT_MS, low=FIND_COORDINATORS_VERSION)

    async def _create_own_topic(self, body: CreateTopicsRequest) -> Response:
        """This broker has become the controller meanwhile."""
        result = CreatableTopicResult(name=body.topics[0].name)
        assignment = {
            each.partition_index: tuple(each.broker_ids) for each in body.topics[0].assignments
        }
        try:
            await self._controller.auto_create_topic(result.name, assignment)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.error), error.message
        return CreateTopicsResponse(topics=[result])

    async def _create_own_internal_topic(self, body: FindCoordinatorRequest) -> Response:
        await self._controller.auto_create_topic(body.coordinator_keys[0])
        return FindCoordinatorResponse()

    def close(self) -> None:
        """Send no more requests, and close all connections."""
        self.isr_requests.close()
        self.ask_controller.close()
        if self._orders is not None:
            self._orders.close()
        self.connections.close()
