"""This broker's part in a cluster on ZooKeeper: what a single broker does not need."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ottla.controller.broker_registration import broker_end_points
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.timing import Backoff, Deadline
from ottla.protocol.controller_requests import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    BrokerState,
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
from ottla.protocol.message import Request, Response
from ottla.protocol.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, Registry, Watch
from ottla.registry.znodes import decode_controller
from ottla.replication.in_sync_replicas import OnIsrChanged
from ottla.replication.partition_leader import ClusterView
from ottla.runtime.scheduler import pause, within
from ottla.server.broker_connections import (
    FIRST_BACKOFF_MS,
    MAX_BACKOFF_MS,
    BrokerConnections,
    Purpose,
)
from ottla.server.handlers.controller_orders import ControllerRequestsHandler
from ottla.server.orders_to_cluster import OrdersToCluster
from ottla.structs import (
    BROKER_DEFAULT,
    INTERNAL_TOPICS,
    NO_EPOCH,
    OFFSETS_TOPIC,
    LeaderAndIsr,
    Node,
    TopicPartition,
)

if TYPE_CHECKING:
    import asyncio
    from uuid import UUID

    from ottla.config.broker_config import BrokerConfig
    from ottla.controller.controller import Controller
    from ottla.network.node_connection import OutgoingTls
    from ottla.runtime import Runtime
    from ottla.server.controller_orders import OrdersToOwnBroker
    from ottla.server.metadata_cache import MetadataCache

logger = logging.getLogger(__name__)


# Requests from any broker to the controller, on whichever broker it is.


OwnAnswer = Callable[[Any], Awaitable[Response]]


def error_code_of(response: Response) -> int:
    """The error for the whole of a response, where it has a place for one."""
    return int(getattr(response, "error_code", ErrorCode.NONE))


class AskController:
    """Asks the controller, and asks again while there is none or it has moved.

    If a controller hangs, the request waits until its session expires: then another one is elected.
    `own` has the answers that this broker gives itself when it is the controller, by request.
    """

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        connections: BrokerConnections,
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._connections = connections
        self.own: dict[type[Request], OwnAnswer] = {}
        self._node: Node | None = None
        self._watch: Watch | None = None

    async def __call__(
        self,
        request: Request,
        timeout_ms: int,
        *,
        low: int = 0,
        error_of: Callable[[Response], int] = error_code_of,
    ) -> Response:
        """The controller's answer; KafkaError where there is none in time."""
        if self._watch is None:
            self._watch = self._registry.watch_data(paths.CONTROLLER, self._on_election)
        scheduler = self._runtime.scheduler
        deadline = Deadline(self._runtime.clock, timeout_ms)
        backoff = Backoff(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, self._runtime.random.random)
        failures = 0
        name = type(request).__name__
        while True:
            try:
                answer = self._ask(request, low)
                response = await within(scheduler, deadline.left_ms, answer, f"no answer to {name}")
                error = ErrorCode.of(error_of(response))
                if error is not ErrorCode.NOT_CONTROLLER:
                    if error:  # maybe a former controller: look it up again next time
                        self._node = None
                    return response
                reason: Exception = KafkaError(error, f"{name} was refused")
            except (KafkaError, OSError) as failure:
                if isinstance(failure, KafkaError) and not _may_pass(failure):
                    raise
                reason = failure
            self._node = None
            failures += 1
            logger.debug("%s: %s", name, reason)
            if deadline.has_passed:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{name}: the controller did not answer within {timeout_ms} ms ({reason})",
                )
            await pause(scheduler, min(backoff.delay_ms(failures), deadline.left_ms))

    def close(self) -> None:
        """Stop watching the elections."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _on_election(self) -> None:
        self._node = None
        self._connections.drop(Purpose.CONTROLLER, "another broker may be the controller now")

    async def _ask(self, request: Request, low: int) -> Response:
        if self._node is None:
            self._node = await self._find()
        if self._node.id == self._connections.broker_id:
            return await self.own[type(request)](request)
        return await self._connections.ask(self._node, Purpose.CONTROLLER, request, low=low)

    async def _find(self) -> Node:
        """The controller, as the registry has it at this moment."""
        try:
            data, _ = await self._registry.get(paths.CONTROLLER)
            broker_id = decode_controller(data)
            if broker_id == self._connections.broker_id:
                return Node(broker_id, "", -1)
            data, stat = await self._registry.get(paths.broker(broker_id))
        except NoNodeError:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller") from None
        broker = broker_end_points(broker_id, data, stat.created_id)
        node = broker.node(self._connections.listener_name)
        if node is None:
            raise KafkaError(
                ErrorCode.LISTENER_NOT_FOUND,
                f"the controller {broker_id} has no listener {self._connections.listener_name}",
            )
        return node


def _may_pass(error: KafkaError) -> bool:
    """Whether a retry may help: the controller may answer later, or move."""
    return error.retriable or error.error is ErrorCode.UNKNOWN_SERVER_ERROR


# AlterPartition from this broker, which leads partitions, to the controller (KIP-497).


RETRY_MS: Final = 50
VERSION_WITH_BROKER_EPOCHS: Final = 3


class IsrChange(NamedTuple):
    """The ISR that a leader asks for, and the callback for the outcome."""

    topic_id: UUID
    state: LeaderAndIsr
    broker_epochs: Mapping[int, int]
    on_done: OnIsrChanged


class IsrRequests:
    """Sends one request at a time, with all changes that came while the last one was under way.

    A change is sent again until the controller has decided. A newer one for the same partition
    replaces one that has not been sent yet.
    """

    def __init__(
        self,
        runtime: Runtime,
        ask_controller: AskController,
        broker_id: int,
        broker_epoch: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._ask_controller = ask_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._timeout_ms = timeout_ms
        self._waiting: dict[TopicPartition, IsrChange] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def alter_isr(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        state: LeaderAndIsr,
        broker_epochs: Mapping[int, int],
        on_done: OnIsrChanged,
    ) -> None:
        """Ask for the in-sync replicas of `state`; see `AlterIsr`."""
        self._waiting[topic_partition] = IsrChange(topic_id, state, broker_epochs, on_done)
        if self._task is None and not self._is_closed:
            self._task = self._runtime.scheduler.spawn(self._run(), "alter partitions")

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, {}
                try:
                    results = await self._ask(asked)
                except (KafkaError, OSError) as error:
                    logger.info("in-sync replicas of %d partitions: %s", len(asked), error)
                    # Changes that came meanwhile are newer, and take precedence.
                    self._waiting = asked | self._waiting
                    await pause(self._runtime.scheduler, RETRY_MS)
                    continue
                except Exception:
                    logger.exception("in-sync replicas of %s cannot be asked for", list(asked))
                    await self._give_up(asked)
                    continue
                if not self._tell(asked, results):
                    await pause(self._runtime.scheduler, RETRY_MS)
        finally:
            self._task = None

    async def _ask(
        self, asked: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, AlterPartitionPartitionResult]:
        request = alter_partition_request(self._broker_id, self._broker_epoch(), asked)
        response = await self._ask_controller(
            request, self._timeout_ms, low=VERSION_WITH_BROKER_EPOCHS, error_of=error_of
        )
        assert isinstance(response, AlterPartitionResponse)
        if response.error_code:
            raise KafkaError.of(response.error_code, "AlterPartition was refused")
        names = {change.topic_id: tp.topic for tp, change in asked.items()}
        return {
            TopicPartition(names[topic.topic_id], result.partition_index): result
            for topic in response.topics
            for result in topic.partitions
        }

    def _tell(
        self,
        asked: Mapping[TopicPartition, IsrChange],
        results: Mapping[TopicPartition, AlterPartitionPartitionResult],
    ) -> bool:
        """Pass the outcomes on; returns whether all changes were decided. Others are sent again."""
        undecided = 0
        for topic_partition, change in asked.items():
            result = results.get(topic_partition)
            if result is None or result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                self._waiting.setdefault(topic_partition, change)
                undecided += 1
            else:
                error = ErrorCode.of(result.error_code)
                self._end(topic_partition, change, error or state_of(result))
        return not undecided

    async def _give_up(self, asked: Mapping[TopicPartition, IsrChange]) -> None:
        """Ask for each change by itself; the leader of the one that is wrong is told."""
        for topic_partition, change in asked.items():
            alone = {topic_partition: change}
            try:
                if len(asked) > 1:
                    self._tell(alone, await self._ask(alone))
                    continue
            except (KafkaError, OSError):
                self._waiting.setdefault(topic_partition, change)
                continue
            except Exception:
                logger.exception("the in-sync replicas of %s cannot be asked for", topic_partition)
            self._end(topic_partition, change, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _end(
        self, topic_partition: TopicPartition, change: IsrChange, outcome: LeaderAndIsr | ErrorCode
    ) -> None:
        try:
            change.on_done(outcome)
        except Exception:
            logger.exception("the in-sync replicas of %s cannot be taken over", topic_partition)


def error_of(response: Response) -> int:
    """NOT_CONTROLLER also where only some partitions are newer here than at the controller.

    Then the controller that was asked has a successor. What the old one has done already, the
    successor will find done.
    """
    assert isinstance(response, AlterPartitionResponse)
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code == ErrorCode.NOT_CONTROLLER:
                return result.error_code
    return response.error_code


def _partition_data(index: int, change: IsrChange) -> AlterPartitionPartitionData:
    isr = [
        BrokerState(broker_id=replica, broker_epoch=change.broker_epochs.get(replica, NO_EPOCH))
        for replica in change.state.isr
    ]
    return AlterPartitionPartitionData(
        partition_index=index,
        leader_epoch=change.state.leader_epoch,
        new_isr_with_epochs=isr,
        partition_epoch=change.state.version,
    )


def alter_partition_request(
    broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
) -> AlterPartitionRequest:
    """One request for all changes."""
    topics: dict[UUID, AlterPartitionTopicData] = {}
    for topic_partition, change in changes.items():
        topic = topics.setdefault(
            change.topic_id, AlterPartitionTopicData(topic_id=change.topic_id)
        )
        topic.partitions.append(_partition_data(topic_partition.partition, change))
    return AlterPartitionRequest(
        broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def state_of(result: AlterPartitionPartitionResult) -> LeaderAndIsr:
    """The partition's state according to the controller."""
    return LeaderAndIsr(
        result.leader_id, result.leader_epoch, tuple(result.isr), result.partition_epoch
    )


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
        self.ask_controller = AskController(
            runtime,
            registry,
            connections,
        )
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
        """Answer, where this broker is the controller, also what it asks the controller itself."""
        self._controller = controller
        self.requests_of_brokers = requests = ControllerRequestsHandler(controller)
        self.ask_controller.own = {
            AlterPartitionRequest: requests.alter_partition,
            ControlledShutdownRequest: requests.controlled_shutdown,
            CreateTopicsRequest: self._create_own_topic,
            FindCoordinatorRequest: self._create_own_internal_topic,
        }

    def replication(self) -> ClusterView:
        """What replicas need to know of the other brokers."""
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

        Until then clients would be told that there are neither brokers nor topics.
        """
        if not await self.until_told():
            logger.warning("no controller has told this broker yet who is there")

    async def until_told(self) -> bool:
        """Whether the controller has told this broker of itself, after some time at most."""
        is_told = self._cache.wait_until(lambda: self.connections.broker_id in self._cache.brokers)
        try:
            await within(self._runtime.scheduler, METADATA_TIMEOUT_MS, is_told, "no metadata came")
        except KafkaTimeoutError:
            return False
        return True

    async def controlled_shutdown(self) -> None:
        """Have other brokers lead what this broker leads, as far as possible in time."""
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

    async def create_topic(self, name: str) -> None:
        """Have a topic created on first use, and wait until this broker knows it."""
        if self._controller.is_active:
            await self._controller.auto_create_topic(name)
            return
        if name in INTERNAL_TOPICS:
            await self._ask_for_internal_topic(name)
        else:
            await self._ask_for_topic(name)
        is_known = self._cache.wait_until(lambda: self._cache.topic(name) is not None)
        with suppress(KafkaTimeoutError):  # the client asks again
            await within(self._runtime.scheduler, CREATION_TIMEOUT_MS, is_known, "no topic came")

    async def _ask_for_topic(self, name: str) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=BROKER_DEFAULT, replication_factor=BROKER_DEFAULT
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
        try:
            await self._controller.auto_create_topic(result.name)
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
