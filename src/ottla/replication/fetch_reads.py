"""The reads of fetches: within the limits of a request, for consumers and for followers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.cluster_view import ClusterView
from ottla.replication.delayed_fetch import FetchResults
from ottla.replication.delayed_operations import DelayedOperations
from ottla.replication.partition import Partition
from ottla.replication.partition_leader import PartitionLeader
from ottla.replication.replica_requests import FetchParams, FetchPartitionResult, PartitionFetch
from ottla.replication.replica_stats import NOT_COUNTED_AS_FAILED, ReplicaStats
from ottla.replication.replication_quota import ReplicationQuota
from ottla.structs import NO_REPLICA, Node, TopicPartition


class FetchReads:
    """Decides how much of each partition a reader gets, or if it reads elsewhere (KIP-392).

    A follower with a fetch session asks for all its partitions with each fetch. Only those are read
    that have something new for it, or whose request has changed.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        why_missing: Callable[[TopicPartition], ErrorCode],
        quota: ReplicationQuota,
        is_rack_aware: bool,
        stats: ReplicaStats,
    ) -> None:
        self.partitions = partitions
        self.why_missing = why_missing
        self.quota = quota
        self.is_rack_aware = is_rack_aware
        self.stats = stats
        self.cluster: ClusterView | None = None

    def read(
        self, params: FetchParams, requests: Iterable[PartitionFetch], is_first: bool = True
    ) -> FetchResults:
        """Read each partition in the order asked for, within the limits of the request.

        The first partition with data gives at least one whole batch, of any size (KIP-74), where
        none was read for the request before (`is_first`); a limit below 0 is one of 0. A follower's
        partition without news has no result.
        """
        if params.is_from_follower:
            requests = self._with_news(params.replica_id, requests)
        results: FetchResults = {}
        left = params.max_bytes
        for request in requests:
            partition = self.partitions.get(request.topic_partition)
            if partition is not None:
                max_bytes = max(0, min(request.max_bytes, left))
                result = self._read(request, partition, params, max_bytes, is_first)
                size = result.size_in_bytes
                if size:
                    left, is_first = max(0, left - size), False
            else:
                result = FetchPartitionResult(self.why_missing(request.topic_partition))
            results[request.key] = result
        return results

    def _with_news(
        self, replica_id: int, requests: Iterable[PartitionFetch]
    ) -> list[PartitionFetch]:
        """The requests with news for the follower; the others are skipped until then."""
        found = []
        for request in requests:
            partition = self.partitions.get(request.topic_partition)
            if partition is None or not self._is_idle(replica_id, request, partition):
                found.append(request)
        return found

    def _is_idle(self, replica_id: int, request: PartitionFetch, partition: Partition) -> bool:
        """Whether there is no news; then the request is skipped until the partition wakes it."""
        if partition.has_news_for(request):
            return False
        if request.session is not None:
            request.session.awake.pop(request.key, None)
            partition.idle_fetches[replica_id] = request
        return True

    def _read(
        self,
        request: PartitionFetch,
        partition: Partition,
        params: FetchParams,
        max_bytes: int,
        is_first: bool,
    ) -> FetchPartitionResult:
        partition.stats.fetches += 1
        try:
            if params.is_from_follower:
                if self._is_held_up(partition, params.replica_id):
                    max_bytes, is_first = 0, False
            elif self.is_rack_aware and params.client_rack:
                replica = self._nearest(request, partition, params)
                if replica != NO_REPLICA:
                    return FetchPartitionResult(
                        ErrorCode.NONE,
                        partition.high_watermark,
                        partition.last_stable_offset,
                        partition.log.log_start_offset,
                        preferred_read_replica=replica,
                    )
            return partition.read_records(request, params, max_bytes, is_first)
        except KafkaError as error:
            if error.error not in NOT_COUNTED_AS_FAILED:
                partition.stats.failed_fetches += 1
            return FetchPartitionResult(error.error)

    def note_follower(
        self,
        params: FetchParams,
        requests: Collection[PartitionFetch],
        results: FetchResults,
        delayed: DelayedOperations,
    ) -> None:
        """Note the offsets that the follower fetches from, wherever it could be served."""
        moved: list[TopicPartition] = []
        for request in requests:
            result = results.get(request.key)
            if result is None or result.is_urgent:
                continue
            partition = self.partitions[request.topic_partition]
            try:
                rises, moves = partition.on_follower_fetch(request, params)
            except KafkaError as error:
                results[request.key] = FetchPartitionResult(error.error)
                continue
            request.noted_by = partition.leadership
            if rises:
                partition.wake_followers()
                delayed.committed[request.topic_partition] = None
                result.high_watermark = partition.high_watermark
            if moves:
                moved.append(request.topic_partition)
            self._is_idle(params.replica_id, request, partition)
        if moved:
            delayed.delete_records.check(moved)

    def answer(
        self,
        params: FetchParams,
        requests: Iterable[PartitionFetch],
        respond: Callable[[FetchResults], object],
        results: FetchResults,
    ) -> None:
        """Count the bytes of an answer, a follower's against the leader's rate, and send it."""
        is_from_follower = params.is_from_follower
        for request in requests:
            result = results.get(request.key)
            if result is None or result.records is None:
                continue
            size = result.records.size
            partition = self.partitions.get(request.topic_partition)
            if is_from_follower:
                self.stats.replication_bytes_out += size
                if partition is not None and self._counts(partition):
                    self.quota.record(size)
            elif partition is not None:
                partition.stats.bytes_out += size
        respond(results)

    def _is_held_up(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower has to wait, because the leader's rate of replication is used up."""
        return (
            self.quota.is_exceeded
            and self._counts(partition)
            and partition.leadership is not None
            and replica_id not in partition.leadership.in_sync.committed
        )

    def _counts(self, partition: Partition) -> bool:
        throttled = partition.log.config.leader_replication_throttled_replicas
        return self.quota.applies(throttled, partition.topic_partition.partition)

    def _nearest(self, request: PartitionFetch, partition: Partition, params: FetchParams) -> int:
        if partition.leadership is None or self.cluster is None:
            return NO_REPLICA
        partition.check_known_epoch(request.current_leader_epoch)
        brokers = self.cluster.live_brokers()
        return replica_in_rack(
            partition.leadership, params.client_rack, request.fetch_offset, brokers
        )


def replica_in_rack(
    leadership: PartitionLeader, rack: str, fetch_offset: int, brokers: Mapping[int, Node]
) -> int:
    """The follower in a consumer's rack that has come furthest; -1 if the leader is as near.

    Only one in sync that has the wanted offset will do: its readers would fall behind with another.
    """
    leader = brokers.get(leadership.broker_id)
    if not rack or (leader is not None and leader.rack == rack):
        return NO_REPLICA
    near = [
        replica
        for replica in leadership.followers.values()
        if replica.broker_id in leadership.in_sync.committed
        and replica.broker_id in brokers
        and brokers[replica.broker_id].rack == rack
        and replica.log_start_offset <= fetch_offset <= replica.log_end_offset
    ]
    if not near:
        return NO_REPLICA
    best = max(near, key=lambda each: (each.log_end_offset, each.last_caught_up_ms))
    return best.broker_id
