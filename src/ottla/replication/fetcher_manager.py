"""The fetchers of a broker, which are made when they are needed.

There are up to `num.replica.fetchers` for each leader. A broker that follows nobody has none, and
does not import their code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig
    from ottla.log.log_manager import LogManager
    from ottla.replication.cluster_view import ClusterView
    from ottla.replication.fetcher import Copied, ReplicaFetcher
    from ottla.replication.follower_partition import FollowerPartition
    from ottla.replication.partition import Partition
    from ottla.replication.replication_quota import ReplicationQuota
    from ottla.runtime import Runtime
    from ottla.structs import Node, TopicPartition

FetcherKey = tuple[int, int]


class FetcherManager:
    """Assigns partitions to fetchers. A partition has at most one fetcher, and none is idle."""

    def __init__(
        self,
        runtime: Runtime,
        log_manager: LogManager,
        config: BrokerConfig,
        broker_id: int,
        quota: ReplicationQuota,
        on_progress: Callable[[TopicPartition], object],
    ) -> None:
        self._runtime = runtime
        self._log_manager = log_manager
        self._config = config
        self._count = config.num_replica_fetchers
        self._broker_id = broker_id
        self._quota = quota
        self._on_progress = on_progress
        self.copied: dict[Node, Copied] = {}
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._places: dict[TopicPartition, FetcherKey] = {}

    def __len__(self) -> int:
        return len(self._fetchers)

    def follower(self, topic_partition: TopicPartition) -> FollowerPartition | None:
        """The partition as its fetcher knows it, if one has it."""
        key = self._places.get(topic_partition)
        return None if key is None else self._fetchers[key].followers.get(topic_partition)

    def followers(self) -> Iterator[FollowerPartition]:
        """Every partition that is copied."""
        for fetcher in self._fetchers.values():
            yield from fetcher.followers.values()

    def add(self, partition: Partition, leader: Node, cluster: ClusterView) -> None:
        """Copy a partition from its leader, in place of its earlier leader."""
        # Imported only here: a leader without followers copies nothing.
        from ottla.replication.follower_partition import FollowerPartition

        topic_partition = partition.topic_partition
        self.remove(topic_partition)
        leader = leader._replace(rack=None)  # it is not always given, and means nothing here
        key = leader.id, self._fetcher_id(topic_partition)
        fetcher = self._fetchers.get(key)
        if fetcher is None or fetcher.leader != leader:
            fetcher = self._renew(key, leader, cluster)
        fetcher.add(FollowerPartition(partition, self._log_manager))
        self._places[topic_partition] = key

    def _renew(self, key: FetcherKey, leader: Node, cluster: ClusterView) -> ReplicaFetcher:
        """Make a fetcher, which takes over from one that knew the leader at another address."""
        from ottla.replication.fetcher import ReplicaFetcher
        from ottla.replication.follower_partition import FollowerPartition

        older = self._fetchers.pop(key, None)
        fetcher = self._fetchers[key] = ReplicaFetcher(
            self._runtime,
            self._config,
            self._broker_id,
            leader,
            cluster,
            self._quota,
            self._on_progress,
        )
        fetcher.copied = self.copied.setdefault(leader, fetcher.copied)
        if older is not None:
            partitions = [follower.partition for follower in older.followers.values()]
            older.close()
            for partition in partitions:
                fetcher.add(FollowerPartition(partition, self._log_manager))
        return fetcher

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop copying a partition; `close_idle` ends fetchers that have nothing left."""
        key = self._places.pop(topic_partition, None)
        if key is not None:
            self._fetchers[key].remove(topic_partition)

    def resize(self, count: int) -> None:
        """Distribute the partitions over `count` fetchers for each leader."""
        if count == self._count:
            return
        self._count = count
        for topic_partition, (leader_id, number) in list(self._places.items()):
            if number != self._fetcher_id(topic_partition):
                fetcher = self._fetchers[leader_id, number]
                partition = fetcher.followers[topic_partition].partition
                self.add(partition, fetcher.leader, fetcher.cluster)
        self.close_idle()

    def on_flushed(self, topic_partition: TopicPartition) -> None:
        """The log is on disk as far as a flush was asked for, or cannot be flushed."""
        key = self._places.get(topic_partition)
        if key is not None:
            self._fetchers[key].on_flushed()

    def close_idle(self) -> None:
        """End the fetchers without partitions."""
        for key in [key for key, fetcher in self._fetchers.items() if not fetcher.followers]:
            self._fetchers.pop(key).close()

    def shutdown(self) -> None:
        """End all fetchers."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers = {}
        self._places = {}

    def _fetcher_id(self, topic_partition: TopicPartition) -> int:
        """The same in every process: the partitions of a topic are distributed round robin."""
        number = crc32(topic_partition.topic.encode()) + topic_partition.partition
        return number % self._count
