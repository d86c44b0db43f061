"""Reading for fetches: within the limits of a request, for consumers and for followers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.cluster import Cluster
from ottla.replication.delayed_fetch import FetchResults
from ottla.replication.delayed_operations import DelayedOperations
from ottla.replication.exchange import (
    NO_REPLICA,
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
)
from ottla.replication.partition import Partition
from ottla.replication.replica_selector import replica_in_rack
from ottla.replication.replication_quota import ReplicationQuota
from ottla.structs import TopicPartition


class FetchReads:
    """Decides how much of each partition a reader gets, and who should read elsewhere (KIP-392).

    A follower with a fetch session asks for all its partitions with each fetch; only those are read
    that have something new for it, or of which it asks something new.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        why_missing: Callable[[TopicPartition], ErrorCode],
        quota: ReplicationQuota,
        is_rack_aware: bool,
    ) -> None:
        self.partitions = partitions
        self.why_missing = why_missing
        self.quota = quota
        self.is_rack_aware = is_rack_aware
        self.cluster: Cluster | None = None

    def read(self, params: FetchParams, requests: Iterable[FetchPartition]) -> FetchResults:
        """Read each partition in the order asked for, within the limits of the request.

        The first partition with data gives at least one whole batch, whatever its size (KIP-74).
        A follower's partition without news has no result.
        """
        if params.is_from_follower:
            requests = self._with_news(params.replica_id, requests)
        results: FetchResults = {}
        left = params.max_bytes
        for request in requests:
            partition = self.partitions.get(request.topic_partition)
            if partition is not None:
                max_bytes = min(request.max_bytes, left)
                is_first = left == params.max_bytes
                result = self._read(request, partition, params, max_bytes, is_first)
                left = max(0, left - result.size_in_bytes)
            else:
                result = FetchPartitionResult(self.why_missing(request.topic_partition))
            results[request.key] = result
        return results

    def _with_news(
        self, replica_id: int, requests: Iterable[FetchPartition]
    ) -> list[FetchPartition]:
        """Those that a follower has to hear of; the others sleep from now on."""
        found = []
        for request in requests:
            partition = self.partitions.get(request.topic_partition)
            if partition is None or not self._sleeps(replica_id, request, partition):
                found.append(request)
        return found

    def _sleeps(self, replica_id: int, request: FetchPartition, partition: Partition) -> bool:
        """Whether there is no news; then it is not looked at before there is some."""
        if partition.has_news_for(request):
            return False
        if request.session is not None:
            request.session.awake.pop(request.key, None)
            partition.sleepers[replica_id] = request
        return True

    def _read(
        self,
        request: FetchPartition,
        partition: Partition,
        params: FetchParams,
        max_bytes: int,
        is_first: bool,
    ) -> FetchPartitionResult:
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
            return FetchPartitionResult(error.error)

    def note_follower(
        self,
        params: FetchParams,
        requests: Collection[FetchPartition],
        results: FetchResults,
        delayed: DelayedOperations,
    ) -> None:
        """Note the offsets that the follower fetches from, wherever it could be served."""
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
            request.noted_by = partition.leading
            if rises:
                partition.wake_followers()
                delayed.committed[request.topic_partition] = None
                result.high_watermark = partition.high_watermark
            if moves:
                delayed.delete_records.check_and_complete(request.topic_partition)
            self._sleeps(params.replica_id, request, partition)

    def note_sent(self, requests: Iterable[FetchPartition], results: FetchResults) -> None:
        """Count what is sent to a follower against the leader's rate of replication."""
        for request in requests:
            result = results.get(request.key)
            if result is None or not result.size_in_bytes:
                continue
            partition = self.partitions.get(request.topic_partition)
            if partition is not None and self._counts(partition):
                self.quota.record(result.size_in_bytes)

    def _is_held_up(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower has to wait, because the leader's rate of replication is used up."""
        return (
            self.quota.is_exceeded
            and self._counts(partition)
            and partition.leading is not None
            and replica_id not in partition.leading.in_sync.committed
        )

    def _counts(self, partition: Partition) -> bool:
        throttled = partition.log.config.leader_replication_throttled_replicas
        return self.quota.applies(throttled, partition.topic_partition.partition)

    def _nearest(self, request: FetchPartition, partition: Partition, params: FetchParams) -> int:
        if partition.leading is None or self.cluster is None:
            return NO_REPLICA
        partition.check_known_epoch(request.current_leader_epoch)
        brokers = self.cluster.live_brokers()
        return replica_in_rack(partition.leading, params.client_rack, request.fetch_offset, brokers)
