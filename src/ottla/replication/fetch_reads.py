"""Reading for fetches: within the limits of a request, for consumers and for followers."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.cluster import Cluster
from ottla.replication.delayed_fetch import FetchResults
from ottla.replication.exchange import (
    NO_REPLICA,
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
)
from ottla.replication.partition import Partition
from ottla.replication.replica_selector import replica_in_rack
from ottla.replication.replication_quota import ReplicationQuota


class FetchReads:
    """Decides how much of each partition a reader gets, and who should read elsewhere (KIP-392)."""

    def __init__(self, quota: ReplicationQuota, is_rack_aware: bool) -> None:
        self.quota = quota
        self.is_rack_aware = is_rack_aware
        self.cluster: Cluster | None = None

    def read(
        self,
        params: FetchParams,
        found: Sequence[tuple[FetchPartition, Partition | ErrorCode]],
    ) -> FetchResults:
        """Read each partition in the order asked for, within the limits of the request.

        The first partition with data gives at least one whole batch, whatever its size (KIP-74).
        """
        results: FetchResults = {}
        left = params.max_bytes
        for request, partition in found:
            max_bytes = min(request.max_bytes, left)
            is_first = left == params.max_bytes
            if isinstance(partition, Partition):
                result = self._read(request, partition, params, max_bytes, is_first)
            else:
                result = FetchPartitionResult(partition)
            left = max(0, left - result.size_in_bytes)
            results[request.topic_partition] = result
        return results

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

    def note_sent(self, partition: Partition, size: int) -> None:
        """So many bytes go to a follower: they may count against the leader's rate."""
        if self._counts(partition):
            self.quota.record(size)
