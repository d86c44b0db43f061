"""The requests of one event of the controller: one of each kind to each broker, or a few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ottla.controller.controller_context import ControllerContext, PartitionReplica
from ottla.controller.orders_to_brokers import OrdersToBrokers
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import Work, emptied
from ottla.structs import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    LeaderAndIsr,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

UNLED: Final = LeaderAndIsr(NO_LEADER, NO_EPOCH, (), -1)
"""A partition without a state that can be read: it exists, and is none of a deleted topic."""
STATES_IN_A_SLICE: Final = 1_500
STATES_IN_A_REQUEST: Final = 2_000
"""But for all metadata at once, which are made, encoded and read in slices."""

OnBrokerAnswer = Callable[[int, Mapping[TopicPartition, ErrorCode]], object]


class BrokerRequestBatch:
    """Collects partitions by broker; `send` sends their state in the context.

    A partition that is added twice is sent once, with its final state. `is_over` is set when the
    controller has resigned: nothing is sent from then on.
    """

    def __init__(
        self,
        context: ControllerContext,
        orders: OrdersToBrokers,
        listener_name: str,
        on_leader_and_isr: OnBrokerAnswer,
        on_deleted: OnBrokerAnswer,
    ) -> None:
        self.context = context
        self.orders = orders
        self.listener_name = listener_name
        self.is_over = False
        self._on_leader_and_isr = on_leader_and_isr
        self._on_deleted = on_deleted
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._stop: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._full_metadata: dict[int, None] = {}
        self._deleted_topics: dict[str, None] = {}
        self._tells_all = False
        self._made: dict[tuple[TopicPartition, bool], PartitionState | None] = {}
        """The states that are being sent: brokers with the same partitions share them."""
        self._seen = 0

    def add_leader_and_isr(
        self, brokers: Iterable[int], topic_partition: TopicPartition, is_new: bool = False
    ) -> None:
        """Send the partition's state to these brokers, and its metadata to all brokers."""
        for broker_id in brokers:
            if broker_id in self.context.brokers:
                known = self._leader_and_isr.setdefault(broker_id, {})
                known[topic_partition] = is_new or known.get(topic_partition, False)
                self._stop.get(broker_id, {}).pop(topic_partition, None)
        self.add_metadata((topic_partition,))

    def add_stop_replica(self, replica: PartitionReplica, *, delete: bool) -> None:
        topic_partition, broker_id = replica
        if broker_id in self.context.brokers:
            known = self._stop.setdefault(broker_id, {})
            known[topic_partition] = delete or known.get(topic_partition, False)
            self._leader_and_isr.get(broker_id, {}).pop(topic_partition, None)

    def add_metadata(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Send all brokers these partitions; without any, only the list of live brokers."""
        self._tells_all = True
        self._metadata.update(dict.fromkeys(partitions))

    def add_full_metadata(self, brokers: Iterable[int]) -> None:
        """Brokers that need the full state, because they are new or may hold deleted topics."""
        self._full_metadata.update(dict.fromkeys(brokers))

    def add_deleted_topic(self, name: str) -> None:
        self._tells_all = True
        self._deleted_topics[name] = None

    def send(self) -> Work[None]:
        """Send everything, in slices; LeaderAndIsr comes before StopReplica.

        Nothing is kept for the next event, also after an error: it may have another state.
        """
        try:
            yield from self.send_leader_and_isr()
            yield from self._send_metadata()
            yield from self._send_stop_replica()
            yield from emptied((self._made,))
        finally:
            self._leader_and_isr, self._stop, self._metadata = {}, {}, {}
            self._full_metadata, self._deleted_topics, self._made = {}, {}, {}
            self._tells_all = False

    def send_leader_and_isr(self) -> Work[None]:
        """Have replicas begin before the event ends; clients learn of them at its end."""
        # An answer only queues an event of its own: nothing is added to the batch meanwhile.
        by_broker, self._leader_and_isr, self._made = self._leader_and_isr, {}, {}
        for broker_id, partitions in sorted(by_broker.items()):
            known = yield from self._states(partitions.items())
            for place in range(0, len(known), STATES_IN_A_REQUEST):
                states = known[place : place + STATES_IN_A_REQUEST]
                if place:
                    yield
                if not self.is_over:
                    self.orders.leader_and_isr(
                        self.context.epoch,
                        broker_id,
                        states,
                        self._leader_nodes(states),
                        partial(self._on_leader_and_isr, broker_id),
                    )

    def _leader_nodes(self, states: Iterable[PartitionState]) -> list[Node]:
        """Where the leaders are reached by other brokers."""
        nodes = []
        for leader in sorted({state.leader for state in states}):
            broker = self.context.brokers.get(leader)
            node = None if broker is None else broker.node(self.listener_name)
            if node is not None:
                nodes.append(node)
        return nodes

    def _send_metadata(self) -> Work[None]:
        if not (self._tells_all or self._full_metadata):
            return
        brokers = list(self.context.brokers.values())
        deleted = list(self._deleted_topics)
        changed = yield from in_parts((yield from self._told(self._metadata)))
        all_partitions = self.context.all_partitions() if self._full_metadata else ()
        full = yield from self._told(all_partitions)
        to_all = [each for each in self.context.brokers if each in self._full_metadata]
        others = [each for each in self.context.brokers if each not in self._full_metadata]
        for ids, parts in ((others if self._tells_all else [], changed), (to_all, [full])):
            for number, states in enumerate(parts if ids else ()):
                if number:
                    yield
                if not self.is_over:
                    # With unreadable topics, brokers must not take an unnamed one for deleted.
                    is_full = ids is to_all and not self.context.unreadable
                    update = MetadataUpdate(states, brokers, [] if number else deleted, is_full)
                    self.orders.update_metadata(self.context.epoch, ids, update)

    def _told(self, partitions: Iterable[TopicPartition]) -> Work[list[PartitionState]]:
        """The states; a topic that is being deleted has none, it is sent by name (as deleted)."""
        is_gone = self.context.is_to_be_deleted
        return self._states(((each, False) for each in partitions if not is_gone(each)), UNLED)

    def _states(
        self, partitions: Iterable[tuple[TopicPartition, bool]], default: LeaderAndIsr | None = None
    ) -> Work[list[PartitionState]]:
        states, made = [], self._made
        for each in partitions:
            if each not in made or made[each] is None:
                made[each] = self.context.partition_state(*each, default)
            if (state := made[each]) is not None:
                states.append(state)
            self._seen += 1
            if not self._seen % STATES_IN_A_SLICE:
                yield
        return states

    def _send_stop_replica(self) -> Work[None]:
        for broker_id, partitions in sorted(self._stop.items()):
            known = list(partitions.items())
            for place in range(0, len(known), STATES_IN_A_REQUEST):
                if place:
                    yield
                some = dict(known[place : place + STATES_IN_A_REQUEST])
                stopped = [
                    StopReplicaPartition(each, self._stop_epoch(each), delete)
                    for each, delete in some.items()
                ]
                if self.is_over:
                    return
                on_answer = partial(self._on_stopped, broker_id, some)
                self.orders.stop_replica(self.context.epoch, broker_id, stopped, on_answer)

    def _stop_epoch(self, topic_partition: TopicPartition) -> int:
        if self.context.is_to_be_deleted(topic_partition):
            return EPOCH_DURING_DELETE
        state = self.context.state(topic_partition)
        return NO_EPOCH if state is None else state.leader_epoch

    def _on_stopped(
        self,
        broker_id: int,
        asked: Mapping[TopicPartition, bool],
        answers: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        deleted = {
            topic_partition: error
            for topic_partition, error in answers.items()
            if asked.get(topic_partition)
        }
        if deleted:
            self._on_deleted(broker_id, deleted)


def in_parts(states: Sequence[PartitionState]) -> Work[list[Sequence[PartitionState]]]:
    """The states for one request each; a topic is in one of them, so that none is seen in part."""
    if len(states) <= STATES_IN_A_REQUEST:
        return [states]
    topics: dict[str, list[PartitionState]] = {}
    for number, state in enumerate(states, 1):
        topics.setdefault(state.topic_partition.topic, []).append(state)
        if not number % STATES_IN_A_SLICE:
            yield
    parts: list[list[PartitionState]] = [[]]
    for topic in topics.values():
        if parts[-1] and len(parts[-1]) + len(topic) > STATES_IN_A_REQUEST:
            parts.append([])
        parts[-1] += topic
    return list(parts)
