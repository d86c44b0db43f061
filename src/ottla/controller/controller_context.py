"""What the controller knows: its epoch, the live brokers, every topic and its leaders."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from uuid import UUID

from ottla.structs import BrokerEndPoints, LeaderAndIsr, PartitionState, TopicPartition


@dataclass(slots=True)
class TopicContext:
    """A topic: the replicas of each partition, and its state where it has one already."""

    name: str
    topic_id: UUID
    assignment: dict[int, tuple[int, ...]]
    states: dict[int, LeaderAndIsr] = field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0])


class ControllerContext:
    """Topics and brokers in memory, as the registry has them."""

    def __init__(self) -> None:
        self.epoch = 0
        self.brokers: dict[int, BrokerEndPoints] = {}
        self.topics: dict[str, TopicContext] = {}
        # Of live brokers: the partitions in log directories that have failed there.
        self.offline: dict[int, set[TopicPartition]] = {}
        self._names: dict[UUID, str] = {}

    def add_topic(self, topic: TopicContext) -> None:
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        del self._names[topic.topic_id]
        for offline in self.offline.values():
            offline -= {each for each in offline if each.topic == name}

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def live_replicas(self, topic_partition: TopicPartition) -> Set[int]:
        """The brokers that live, without those whose log of the partition cannot be used."""
        return {
            broker_id
            for broker_id in self.brokers
            if topic_partition not in self.offline.get(broker_id, ())
        }

    def partition_states(
        self, topic: TopicContext, partitions: Iterable[int], is_new: bool = False
    ) -> list[PartitionState]:
        """What brokers are told of these partitions; those without a state are left out."""
        return [
            self._partition_state(topic, partition, is_new)
            for partition in partitions
            if partition in topic.states
        ]

    def _partition_state(self, topic: TopicContext, partition: int, is_new: bool) -> PartitionState:
        topic_partition = TopicPartition(topic.name, partition)
        live, replicas = self.live_replicas(topic_partition), topic.assignment[partition]
        return PartitionState(
            topic_partition,
            topic.topic_id,
            self.epoch,
            topic.states[partition],
            replicas,
            is_new,
            tuple(replica for replica in replicas if replica not in live),
        )
