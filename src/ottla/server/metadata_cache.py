"""This broker's view of the cluster: brokers, topics and leaders, as the controller sent them.

The controller writes (UpdateMetadata), the handlers read. Topic ids are unique: a topic that was
deleted and created again has a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from ottla.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from ottla.replication.replica_manager import ReplicaManager
from ottla.structs import (
    NO_EPOCH,
    NO_LEADER,
    NO_UUID,
    BrokerEndPoints,
    Node,
    PartitionState,
    TopicMetadata,
    TopicPartition,
)


class MetadataCache:
    """The broker's own copy of the cluster's metadata."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.version = 0
        """Grows when a topic is added or removed, or gets partitions; not with other changes."""
        self.update_count = 0
        """Grows with every update from the controller."""
        self.is_complete = False
        """Whether the present controller has sent all topics: only then is what is not here gone.

        A former controller may have died before it sent the last topics that it made.
        """
        self.brokers: dict[int, BrokerEndPoints] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def update(
        self,
        states: Iterable[PartitionState],
        brokers: Iterable[BrokerEndPoints],
        deleted_topics: Iterable[str] = (),
    ) -> None:
        """Apply an update from the controller; partitions that it does not name stay."""
        self.update_count += 1
        for name in deleted_topics:
            self._forget(name)
        self.brokers = {broker.id: broker for broker in brokers}
        for state in states:
            self._update_partition(state)
        waiting, self._waiting = self._waiting, []
        for updated in waiting:
            if not updated.done():
                updated.set_result(None)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for the update after which something holds."""
        while not holds():
            updated = asyncio.get_running_loop().create_future()
            self._waiting.append(updated)
            await updated

    def alive_brokers(self, listener_name: str) -> list[Node]:
        """The live brokers, as clients of this listener reach them."""
        nodes = (broker.node(listener_name) for broker in self.brokers.values())
        return [node for node in nodes if node is not None]

    def is_other(self, own_id: int, broker_id: int) -> bool:
        """Whether this is a live broker, by the last update, and another one than `own_id`."""
        return broker_id != own_id and broker_id in self.brokers

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """The broker as clients of this listener reach it, if it lives and has such a listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.node(listener_name)

    def topic(self, name: str) -> TopicMetadata | None:
        """The topic of this name, if it exists."""
        return self._topics.get(name)

    def topics(self) -> Iterator[TopicMetadata]:
        """Every topic, by name."""
        for name in sorted(self._topics):
            yield self._topics[name]

    def topics_beside(self, states: Iterable[PartitionState]) -> list[str]:
        """The names of the topics that these states do not mention."""
        named = {state.topic_partition.topic for state in states}
        return [name for name in sorted(self._topics) if name not in named]

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id, if it exists."""
        return self._names.get(topic_id)

    def topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        """The id of the partition's topic, None if there is no such partition."""
        topic = self._topics.get(topic_partition.topic)
        exists = topic is not None and topic_partition.partition in topic.partitions
        return topic.topic_id if topic is not None and exists else None

    def contains(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self._topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def is_deleted(self, topic_partition: TopicPartition, topic_id: UUID = NO_UUID) -> bool:
        """Whether it is certain that the partition does not exist; not if it is just unknown.

        With its topic's id, whether that topic was deleted: another may have its name.
        """
        known = self.topic_id(topic_partition)
        is_another = NO_UUID not in (topic_id, known) and topic_id != known
        return self.is_complete and (known is None or is_another)

    def leader(self, topic_partition: TopicPartition) -> int:
        """The broker that leads the partition; NO_LEADER if none does, or there is no such one."""
        return self.leader_and_epoch(topic_partition)[0]

    def leader_and_epoch(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """The leader of the partition and the leader epoch; -1 where there is none."""
        topic = self._topics.get(topic_partition.topic)
        state = None if topic is None else topic.partitions.get(topic_partition.partition)
        return (NO_LEADER, NO_EPOCH) if state is None else (state.leader, state.leader_epoch)

    def _forget(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._names.pop(topic.topic_id, None)
            self.version += 1

    def _update_partition(self, state: PartitionState) -> None:
        name, index = state.topic_partition
        topic = self._topics.get(name)
        if topic is None or topic.topic_id != state.topic_id:
            self._forget(name)
            topic = self._topics[name] = TopicMetadata(name, state.topic_id, {})
            if state.topic_id != NO_UUID:
                self._names[state.topic_id] = name
        self.version += index not in topic.partitions
        if state.leader_epoch != NO_EPOCH or index not in topic.partitions:  # else: not readable
            topic.partitions[index] = state


class CurrentLeaders:
    """Names the leader of a partition to a client that asked another broker (KIP-951)."""

    def __init__(self, replica_manager: ReplicaManager, cache: MetadataCache) -> None:
        self._partitions = replica_manager.partitions
        self._cache = cache

    def find(
        self,
        topic_partition: TopicPartition,
        listener_name: str,
        endpoints: dict[int, NodeEndpoint],
    ) -> LeaderIdAndEpoch:
        """The leader and its epoch, -1 where unknown; it adds where clients reach the leader.

        A replica here has heard of a new leader before the metadata of all partitions say so.
        """
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            leader, epoch = partition.leader, partition.leader_epoch
        else:
            leader, epoch = self._cache.leader_and_epoch(topic_partition)
        node = self._cache.node(leader, listener_name)
        if node is not None:
            endpoints[leader] = NodeEndpoint(
                node_id=leader, host=node.host, port=node.port, rack=node.rack
            )
        return LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
