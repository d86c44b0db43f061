"""What the controller knows: its epoch, the live brokers, every topic and its leaders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from ottla.structs import LeaderAndIsr, Node, PartitionState, TopicPartition


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
        self.brokers: dict[int, Node] = {}
        self.topics: dict[str, TopicContext] = {}
        self._names: dict[UUID, str] = {}

    def add_topic(self, topic: TopicContext) -> None:
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name)
        del self._names[topic.topic_id]

    def topic_name(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def partition_states(
        self, topic: TopicContext, partitions: Iterable[int], is_new: bool = False
    ) -> list[PartitionState]:
        """What brokers are told of these partitions; those without a state are left out."""
        return [
            PartitionState(
                TopicPartition(topic.name, partition),
                topic.topic_id,
                self.epoch,
                topic.states[partition],
                topic.assignment[partition],
                is_new,
            )
            for partition in partitions
            if partition in topic.states
        ]
