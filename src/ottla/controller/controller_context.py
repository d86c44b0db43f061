"""The controller's knowledge: the live brokers, every topic, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from ottla.controller.statuses import PartitionStatus, ReplicaStatus
from ottla.registry.znodes import TopicNode
from ottla.runtime.scheduler import Work
from ottla.structs import (
    NO_LEADER,
    BrokerEndPoints,
    LeaderAndIsr,
    NamedTuple,
    PartitionState,
    TopicPartition,
    Value,
    field,
)

PARTITIONS_AT_ONCE: Final = 500
"""So many are changed between two pauses."""
LOOKS_AT_ONCE: Final = 2_000
"""So many are only looked at."""


class PartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic_partition: TopicPartition
    broker_id: int


class ReplicaAssignment(NamedTuple):
    """The replicas of a partition, with those that a reassignment adds and removes (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """The assignment on the way to `target`, from the replicas before any reassignment."""
        origin = self.origin
        replicas = (*target, *(replica for replica in origin if replica not in target))
        return ReplicaAssignment(
            replicas,
            tuple(replica for replica in target if replica not in origin),
            tuple(replica for replica in origin if replica not in target),
        )


class TopicContext(Value):
    """A topic: the replicas of each partition, and the partition's state if it has one."""

    name: str
    topic_id: UUID
    assignment: dict[int, tuple[int, ...]]
    states: dict[int, LeaderAndIsr] = field(default_factory=dict)
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        return len(self.full_assignment(min(self.assignment)).origin)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in self.assignment]

    def node(self) -> TopicNode:
        """The topic's node as the registry has it."""
        return TopicNode(
            dict(self.assignment), self.topic_id, dict(self.adding), dict(self.removing)
        )

    def full_assignment(self, partition: int) -> ReplicaAssignment:
        return ReplicaAssignment(
            self.assignment[partition],
            self.adding.get(partition, ()),
            self.removing.get(partition, ()),
        )

    def set_assignment(self, partition: int, assignment: ReplicaAssignment) -> None:
        self.assignment[partition] = assignment.replicas
        for changes, replicas in (
            (self.adding, assignment.adding),
            (self.removing, assignment.removing),
        ):
            if replicas:
                changes[partition] = replicas
            else:
                changes.pop(partition, None)


class ControllerContext:
    """Topics and brokers in memory, as the registry has them, and the state of each."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.brokers: dict[int, BrokerEndPoints] = {}
        """The registered brokers, by id; those that are shutting down are among them."""
        self.shutting_down: set[int] = set()
        self.topics: dict[str, TopicContext] = {}
        self.unreadable: set[str] = set()
        """Topics that exist, and about which nothing else is known."""
        self.offline: dict[int, set[TopicPartition]] = {}
        """The partitions in failed log directories of live brokers."""
        self.partition_statuses: dict[TopicPartition, PartitionStatus] = {}
        self.replica_statuses: dict[PartitionReplica, ReplicaStatus] = {}
        self.topics_to_delete: dict[str, None] = {}
        """In the order in which they were marked; they stay in `topics` until all is gone."""
        self._names: dict[UUID, str] = {}

    def add_topic(self, topic: TopicContext) -> None:
        self.topics[topic.name] = topic
        self.unreadable.discard(topic.name)
        self._names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        topic = self.topics[name]
        for replica in self.replicas_of(topic.partitions):
            self.replica_statuses.pop(replica, None)
        for topic_partition in topic.partitions:
            self.partition_statuses.pop(topic_partition, None)
            for offline in self.offline.values():
                offline.discard(topic_partition)
        self.topics_to_delete.pop(name, None)
        self._names.pop(topic.topic_id, None)
        del self.topics[name]

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def contains(self, topic_partition: TopicPartition) -> bool:
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.assignment

    def is_to_be_deleted(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.topic in self.topics_to_delete

    def state(self, topic_partition: TopicPartition) -> LeaderAndIsr | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.states.get(topic_partition.partition)

    def set_state(self, topic_partition: TopicPartition, state: LeaderAndIsr) -> None:
        self.topics[topic_partition.topic].states[topic_partition.partition] = state

    def assignment(self, topic_partition: TopicPartition) -> ReplicaAssignment:
        return self.topics[topic_partition.topic].full_assignment(topic_partition.partition)

    def held_back(self) -> list[PartitionReplica]:
        """The replicas of topics being deleted that cannot be, as a broker or a disk is away."""
        return [
            replica
            for name in self.topics_to_delete
            for replica in self.replicas_of(self.topics[name].partitions)
            if self.replica_statuses.get(replica) is ReplicaStatus.DELETION_INELIGIBLE
        ]

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic in self.topics.values():
            yield from topic.partitions

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionReplica]:
        return [
            PartitionReplica(topic_partition, broker_id)
            for topic_partition in partitions
            for broker_id in self.topics[topic_partition.topic].assignment[
                topic_partition.partition
            ]
        ]

    def replicas_on(self, brokers: Iterable[int]) -> Work[list[PartitionReplica]]:
        """Every replica on any of these brokers, partition by partition, in slices."""
        wanted, found, left = set(brokers), list[PartitionReplica](), LOOKS_AT_ONCE
        for topic in self.topics.values():
            found += [
                PartitionReplica(TopicPartition(topic.name, index), broker_id)
                for index, replicas in topic.assignment.items()
                for broker_id in replicas
                if broker_id in wanted
            ]
            left -= len(topic.assignment)
            if left <= 0:
                left = LOOKS_AT_ONCE
                yield
        return found

    def is_online(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Whether the replica can be used: its broker may lead, and its log is not offline."""
        return (
            broker_id in self.brokers
            and broker_id not in self.shutting_down
            and topic_partition not in self.offline.get(broker_id, ())
        )

    def reachable_replicas(self, topic_partition: TopicPartition) -> list[int]:
        """The brokers that must learn of leaders, including those that are shutting down."""
        return [
            broker_id
            for broker_id in self.assignment(topic_partition).replicas
            if broker_id in self.brokers and topic_partition not in self.offline.get(broker_id, ())
        ]

    def live_replicas(self, topic_partition: TopicPartition) -> list[int]:
        return [
            broker_id
            for broker_id in self.assignment(topic_partition).replicas
            if self.is_online(topic_partition, broker_id)
        ]

    def has_live_leader(self, topic_partition: TopicPartition) -> bool:
        state = self.state(topic_partition)
        return (
            state is not None
            and state.leader != NO_LEADER
            and self.is_online(topic_partition, state.leader)
        )

    def _offline(
        self, topic_partition: TopicPartition, replicas: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The replicas whose broker is gone, or whose log directory has failed."""
        return tuple(
            broker_id
            for broker_id in replicas
            if broker_id not in self.brokers or topic_partition in self.offline.get(broker_id, ())
        )

    def partition_state(
        self, partition: TopicPartition, is_new: bool = False, default: LeaderAndIsr | None = None
    ) -> PartitionState | None:
        """The partition's state for brokers; the default while it has none."""
        topic = self.topics.get(partition.topic)
        state = None if topic is None else topic.states.get(partition.partition, default)
        if topic is None or state is None:
            return None
        full = topic.full_assignment(partition.partition)
        return PartitionState(
            partition,
            topic.topic_id,
            self.epoch,
            state,
            full.replicas,
            is_new,
            self._offline(partition, full.replicas),
            full.adding,
            full.removing,
        )
