"""What a client knows about the cluster: brokers, topics, and the partitions' leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.metadata import MetadataResponse, MetadataResponsePartition
from ottla.structs import NO_EPOCH, NO_LEADER, NO_UUID, Node, TopicPartition


class PartitionInfo(NamedTuple):
    """A partition and where its replicas are; `leader` is -1 while there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic as the metadata describe it; with an `error`, nothing else about it is known."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]
    error: ErrorCode = ErrorCode.NONE

    @property
    def available(self) -> list[int]:
        """The partitions that have a leader."""
        return [p.partition for p in self.partitions.values() if p.leader != NO_LEADER]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One broker's view of the cluster; it is replaced, never changed."""

    cluster_id: str | None = None
    controller_id: int = NO_LEADER
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def partitions_for_topic(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic by number; none if the topic is not known."""
        info = self.topics.get(topic)
        return [] if info is None else [info.partitions[index] for index in sorted(info.partitions)]

    def available_partitions_for_topic(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic that currently have a leader."""
        return [each for each in self.partitions_for_topic(topic) if each.leader != NO_LEADER]

    def partition_count_for_topic(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it is not known."""
        return len(self.partitions_for_topic(topic))

    def leader(self, topic_partition: TopicPartition) -> int:
        """The id of the leader's node, -1 if there is none or it is not known."""
        partition = self.partition(topic_partition)
        return NO_LEADER if partition is None else partition.leader

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch of the leader, -1 if that is not known."""
        partition = self.partition(topic_partition)
        return NO_EPOCH if partition is None else partition.leader_epoch

    def error_of(self, topic: str) -> ErrorCode:
        """Why nothing is known about a topic; NONE if something is."""
        info = self.topics.get(topic)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each of the topics has; those without partitions are left out."""
        known = {topic: self.topics[topic] for topic in topics if topic in self.topics}
        return {topic: len(info.partitions) for topic, info in known.items() if info.partitions}

    @classmethod
    def of(cls, response: MetadataResponse, before: Cluster) -> Cluster:
        """The cluster of a response; a partition is never taken back to an older leader epoch.

        Brokers learn of a change one after the other, so a slow one may be outdated (KIP-320).
        """
        topics = {}
        for topic in response.topics:
            name = topic.name or ""
            partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
            known = before.topics.get(name)
            is_same = known is not None and known.topic_id == topic.topic_id
            topics[name] = TopicInfo(
                name,
                topic.topic_id or NO_UUID,
                topic.is_internal,
                {
                    p.partition_index: _newer(
                        known.partitions.get(p.partition_index) if known and is_same else None,
                        _partition_info(name, p),
                    )
                    for p in partitions
                },
                ErrorCode.of(topic.error_code),
            )
        nodes = {n.node_id: Node(n.node_id, n.host, n.port, n.rack) for n in response.brokers}
        return cls(response.cluster_id, response.controller_id, nodes, topics)


def _partition_info(topic: str, partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        topic,
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
    )


def _newer(known: PartitionInfo | None, told: PartitionInfo) -> PartitionInfo:
    if known is None or told.leader_epoch == NO_EPOCH or told.leader_epoch >= known.leader_epoch:
        return told
    return known
