"""The controller's orders to all brokers: its own by calls, the others by requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Backoff, Deadline
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from ottla.protocol.message import Response
from ottla.protocol.update_metadata import (
    FULL_TYPE,
    SECURITY_PROTOCOLS,
    UNKNOWN_TYPE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.runtime.scheduler import pause
from ottla.server.broker_connections import FIRST_BACKOFF_MS, MAX_BACKOFF_MS, BrokerConnections
from ottla.structs import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    NO_UUID,
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.controller.orders_to_brokers import OnAnswer
    from ottla.network.node_connection import NodeConnection
    from ottla.runtime import Runtime
    from ottla.server.controller_orders import OrdersToOwnBroker

logger = logging.getLogger(__name__)


# The controller's requests to brokers: conversion between the protocol's structs and ours.
#
# Requests are written in the newest version only, and read in every version.


def _by_topic(states: Iterable[PartitionState]) -> dict[tuple[str, UUID], list[PartitionState]]:
    """The states of each topic, which has a name and an id."""
    return by_topic(((state.topic_partition.topic, state.topic_id), state) for state in states)


# -- LeaderAndIsr


def leader_and_isr_request(
    states: Sequence[PartitionState], brokers: Iterable[Node]
) -> LeaderAndIsrRequest:
    """What a broker must lead and follow; of the brokers, only leaders' addresses are sent."""
    leaders = {state.leader for state in states}
    return LeaderAndIsrRequest(
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[_written_state(state) for state in of_topic],
            )
            for (name, topic_id), of_topic in _by_topic(states).items()
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=node.id, host_name=node.host, port=node.port)
            for node in brokers
            if node.id in leaders
        ],
    )


def _written_state(state: PartitionState) -> LeaderAndIsrPartitionState:
    leader, leader_epoch, isr, version = state.leader_and_isr
    return LeaderAndIsrPartitionState(
        partition_index=state.topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=version,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        is_new=state.is_new,
    )


def ordered_states(body: LeaderAndIsrRequest) -> list[PartitionState]:
    """The partitions of a LeaderAndIsr request."""
    found = [
        _read_state(topic.topic_name, topic.topic_id, state)
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    for state in body.ungrouped_partition_states:
        found.append(_read_state(state.topic_name, NO_UUID, state))
    return found


def _read_state(topic: str, topic_id: UUID, state: LeaderAndIsrPartitionState) -> PartitionState:
    leader_and_isr = LeaderAndIsr(
        state.leader, state.leader_epoch, tuple(state.isr), state.partition_epoch
    )
    return PartitionState(
        TopicPartition(topic, state.partition_index),
        topic_id,
        state.controller_epoch,
        leader_and_isr,
        tuple(state.replicas),
        state.is_new,
        (),
        tuple(state.adding_replicas),
        tuple(state.removing_replicas),
    )


def leader_nodes(body: LeaderAndIsrRequest) -> list[Node]:
    """The addresses of the leaders in a LeaderAndIsr request."""
    return [Node(each.broker_id, each.host_name, each.port) for each in body.live_leaders]


def leader_and_isr_errors(
    response: LeaderAndIsrResponse, names: Mapping[UUID, str]
) -> dict[TopicPartition, ErrorCode]:
    """The results by partition; topics of v5 and newer are named by their ids."""
    errors = {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for each in response.partition_errors
    }
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is not None:
            for each in topic.partition_errors:
                errors[TopicPartition(name, each.partition_index)] = ErrorCode.of(each.error_code)
    return errors


# -- StopReplica


def stop_replica_request(partitions: Iterable[StopReplicaPartition]) -> StopReplicaRequest:
    """The replicas that a broker must stop."""
    topics: dict[str, list[StopReplicaPartitionState]] = {}
    for (name, index), leader_epoch, delete in partitions:
        topics.setdefault(name, []).append(
            StopReplicaPartitionState(
                partition_index=index, leader_epoch=leader_epoch, delete_partition=delete
            )
        )
    return StopReplicaRequest(
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=states)
            for name, states in topics.items()
        ]
    )


def stopped_partitions(body: StopReplicaRequest) -> list[StopReplicaPartition]:
    """The partitions of a StopReplica request."""
    found = [
        StopReplicaPartition(
            TopicPartition(topic.topic_name, state.partition_index),
            state.leader_epoch,
            state.delete_partition,
        )
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    old = [
        TopicPartition(each.topic_name, each.partition_index) for each in body.ungrouped_partitions
    ]
    old += [
        TopicPartition(topic.name, index)
        for topic in body.topics
        for index in topic.partition_indexes
    ]
    return found + [StopReplicaPartition(each, NO_EPOCH, body.delete_partitions) for each in old]


def stop_replica_errors(response: StopReplicaResponse) -> dict[TopicPartition, ErrorCode]:
    """The results by partition."""
    return {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for each in response.partition_errors
    }


# -- UpdateMetadata


def update_metadata_request(update: MetadataUpdate) -> UpdateMetadataRequest:
    """What a broker must tell its clients; a deleted topic is one whose partitions are not led."""
    topics = [
        UpdateMetadataTopicState(
            topic_name=name,
            topic_id=topic_id,
            partition_states=[_written_metadata(state) for state in of_topic],
        )
        for (name, topic_id), of_topic in _by_topic(update.states).items()
    ]
    for name in update.deleted_topics:
        gone = UpdateMetadataPartitionState(leader=LEADER_DURING_DELETE, leader_epoch=NO_EPOCH)
        topics.append(UpdateMetadataTopicState(topic_name=name, partition_states=[gone]))
    return UpdateMetadataRequest(
        topic_states=topics,
        live_brokers=[_written_broker(broker) for broker in update.brokers],
        type=FULL_TYPE if update.is_full else UNKNOWN_TYPE,
    )


def _written_metadata(state: PartitionState) -> UpdateMetadataPartitionState:
    leader, leader_epoch, isr, version = state.leader_and_isr
    return UpdateMetadataPartitionState(
        partition_index=state.topic_partition.partition,
        controller_epoch=state.controller_epoch,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        zk_version=version,
        replicas=list(state.replicas),
        offline_replicas=list(state.offline_replicas),
    )


def _written_broker(broker: BrokerEndPoints) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=end_point.port,
                host=end_point.host,
                listener=end_point.listener_name,
                security_protocol=SECURITY_PROTOCOLS.index(end_point.security_protocol),
            )
            for end_point in broker.endpoints
        ],
        rack=broker.rack,
    )


def metadata_update(body: UpdateMetadataRequest) -> MetadataUpdate:
    """All that an UpdateMetadata request says."""
    states, deleted_topics = metadata_states(body)
    return MetadataUpdate(states, live_brokers(body), deleted_topics, body.type == FULL_TYPE)


def metadata_states(body: UpdateMetadataRequest) -> tuple[list[PartitionState], list[str]]:
    """The partitions of an UpdateMetadata request, and the names of topics that are gone."""
    named = [
        (topic.topic_name, topic.topic_id, state)
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    named += [(state.topic_name, NO_UUID, state) for state in body.ungrouped_partition_states]
    deleted = {name: None for name, _, state in named if state.leader == LEADER_DURING_DELETE}
    states = [
        PartitionState(
            TopicPartition(name, state.partition_index),
            topic_id,
            state.controller_epoch,
            LeaderAndIsr(state.leader, state.leader_epoch, tuple(state.isr), state.zk_version),
            tuple(state.replicas),
            False,
            tuple(state.offline_replicas),
        )
        for name, topic_id, state in named
        if state.leader != LEADER_DURING_DELETE
    ]
    return states, list(deleted)


def live_brokers(body: UpdateMetadataRequest) -> list[BrokerEndPoints]:
    """The brokers of an UpdateMetadata request."""
    return [
        BrokerEndPoints(broker.id, NO_EPOCH, tuple(_end_points(broker)), broker.rack)
        for broker in body.live_brokers
    ]


def _end_points(broker: UpdateMetadataBroker) -> Iterable[EndPoint]:
    if broker.v0_host:
        yield EndPoint(SECURITY_PROTOCOLS[0], SECURITY_PROTOCOLS[0], broker.v0_host, broker.v0_port)
    for end_point in broker.endpoints:
        protocol = SECURITY_PROTOCOLS[end_point.security_protocol]
        yield EndPoint(end_point.listener or protocol, protocol, end_point.host, end_point.port)


DRAIN_PAUSE_MS: Final = 5

ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
OnResponse = Callable[[Response], object]


class Unanswered(NamedTuple):
    """A request that the broker must answer before it gets the next one."""

    request: ControllerRequest
    on_response: OnResponse


class BrokerSender:
    """One registration of a broker: a queue, a connection, and a coroutine that sends the queue.

    A request is sent until it is answered: what the controller has decided must arrive, and in
    order. It ends with the registration, whose epoch all requests carry. Only a request that can
    never be sent is left out: it counts as refused, and does not hold up those behind it.
    """

    def __init__(
        self,
        runtime: Runtime,
        broker: BrokerEndPoints,
        connection: NodeConnection,
        timeout_ms: int,
    ) -> None:
        self.broker = broker
        self._runtime = runtime
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._queue: deque[Unanswered] = deque()
        self._news = asyncio.Event()
        self._backoff = Backoff(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, runtime.random.random)
        self._task = runtime.scheduler.spawn(self._run(), f"control broker {broker.id}")

    def __len__(self) -> int:
        """How many requests are not answered yet."""
        return len(self._queue)

    def put(self, request: ControllerRequest, on_response: OnResponse) -> None:
        """Send the request when all before it have been answered."""
        request.broker_epoch = self.broker.epoch
        self._queue.append(Unanswered(request, on_response))
        self._news.set()

    def close(self) -> None:
        """Send nothing more; requests without an answer are dropped."""
        self._task.cancel()
        self._connection.close("the broker is no longer controlled from here")

    async def _run(self) -> None:
        failures = 0
        while True:
            if not self._queue:
                self._news.clear()
                await self._news.wait()
            request, on_response = self._queue[0]
            try:
                response = await self._ask(request)
            except (KafkaError, OSError) as error:
                failures += 1
                if failures == 1:
                    logger.info(
                        "%s to %s: %s", type(request).__name__, self._connection.node, error
                    )
                await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
                continue
            except Exception:
                name, node = type(request).__name__, self._connection.node
                logger.exception("%s to %s is left out: it cannot be sent", name, node)
                error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
                response = type(request).response_class(error_code=error_code)
            failures = 0
            self._queue.popleft()
            try:
                on_response(response)
            except Exception:
                logger.exception("the answer of %s cannot be used", self._connection.node)

    async def _ask(self, request: ControllerRequest) -> Response:
        await self._connection.ready()
        version = type(request).max_version
        self._connection.version_of(type(request), low=version)
        return await self._connection.send(request, version, self._timeout_ms)


class OrdersToCluster:
    """Carries the controller's requests to the brokers that it has added."""

    def __init__(
        self,
        runtime: Runtime,
        local: OrdersToOwnBroker,
        connections: BrokerConnections,
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._local = local
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._senders: dict[int, BrokerSender] = {}

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """The broker has registered; unanswered requests of an older registration are dropped."""
        if broker.id == self._local.broker_id:
            return
        self.remove_broker(broker.id)
        node = broker.node(self._connections.listener_name)
        if node is None:
            logger.error(
                "broker %d has no listener %s: it cannot be controlled",
                broker.id,
                self._connections.listener_name,
            )
            return
        connection = self._connections.connect(node)
        self._senders[broker.id] = BrokerSender(self._runtime, broker, connection, self._timeout_ms)

    def remove_broker(self, broker_id: int) -> None:
        """Send the broker nothing more."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.close()

    async def settle(self) -> None:
        """Wait until the controller's own broker has carried out what it was sent."""
        await self._local.settle()

    async def drain(self, timeout_ms: int) -> None:
        """Wait until everything is answered, but no longer than this for each next answer."""
        deadline = Deadline(self._runtime.clock, timeout_ms)
        left = self._unanswered
        while left and not deadline.has_passed:
            await pause(self._runtime.scheduler, DRAIN_PAUSE_MS)
            before, left = left, self._unanswered
            if left < before:
                deadline = Deadline(self._runtime.clock, timeout_ms)

    @property
    def _unanswered(self) -> int:
        return sum(map(len, self._senders.values()))

    def close(self) -> None:
        """Send no broker anything more."""
        for broker_id in list(self._senders):
            self.remove_broker(broker_id)

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        if broker_id == self._local.broker_id:
            self._local.leader_and_isr(controller_epoch, broker_id, states, brokers, on_answer)
            return
        names = {state.topic_id: state.topic_partition.topic for state in states}

        def on_response(response: Response) -> None:
            assert isinstance(response, LeaderAndIsrResponse)
            on_answer(leader_and_isr_errors(response, names))

        request = leader_and_isr_request(states, brokers)
        self._put(broker_id, controller_epoch, request, on_response)

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        if broker_id == self._local.broker_id:
            self._local.stop_replica(controller_epoch, broker_id, partitions, on_answer)
            return

        def on_response(response: Response) -> None:
            assert isinstance(response, StopReplicaResponse)
            on_answer(stop_replica_errors(response))

        asked = [stopped.topic_partition for stopped in partitions]

        def on_refusal(error: ErrorCode) -> None:
            """Nothing was deleted: to wait for another answer would be to wait for ever."""
            on_answer(dict.fromkeys(asked, error))

        request = stop_replica_request(partitions)
        self._put(broker_id, controller_epoch, request, on_response, on_refusal)

    def update_metadata(
        self, controller_epoch: int, broker_id: int, update: MetadataUpdate
    ) -> None:
        if broker_id == self._local.broker_id:
            self._local.update_metadata(controller_epoch, broker_id, update)
            return
        request = update_metadata_request(update)
        self._put(broker_id, controller_epoch, request, lambda response: None)

    def _put(
        self,
        broker_id: int,
        controller_epoch: int,
        request: ControllerRequest,
        on_response: OnResponse,
        on_refusal: Callable[[ErrorCode], object] = lambda error: None,
    ) -> None:
        sender = self._senders.get(broker_id)
        if sender is None:
            return
        request.controller_id = self._local.broker_id
        request.controller_epoch = controller_epoch

        def on_any_response(response: Response) -> None:
            """A broker that refuses all knows a newer controller, has registered again or fails."""
            error = ErrorCode.of(getattr(response, "error_code", 0))
            if error:
                name = type(request).__name__
                logger.warning("broker %d refuses %s: %s", broker_id, name, error.name)
                on_refusal(error)
            else:
                on_response(response)

        sender.put(request, on_any_response)
