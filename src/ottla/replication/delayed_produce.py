"""A produce with acks=all that waits until every in-sync replica has its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.replication.exchange import PartitionAppendResult
from ottla.runtime import DelayedOperation
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.replication.replica_manager import ReplicaManager

AppendResults = dict[TopicPartition, PartitionAppendResult]


class DelayedProduce(DelayedOperation):
    """Completes when the high watermark of each partition has passed what was appended to it."""

    def __init__(
        self,
        timeout_ms: int,
        results: AppendResults,
        replica_manager: ReplicaManager,
        respond: Callable[[AppendResults], object],
    ) -> None:
        super().__init__(timeout_ms)
        self.results = results
        self.replica_manager = replica_manager
        self.respond = respond

    def try_complete(self) -> bool:
        if any(self._is_pending(tp, result) for tp, result in self.results.items()):
            return False
        return self.force_complete()

    def on_complete(self) -> None:
        """Answer. What time has cut off stays appended, but nobody may be told that it is safe."""
        for topic_partition, result in self.results.items():
            if self._is_pending(topic_partition, result):
                result.error = ErrorCode.REQUEST_TIMED_OUT
        self.respond(self.results)

    def _is_pending(self, topic_partition: TopicPartition, result: PartitionAppendResult) -> bool:
        if result.error is not ErrorCode.NONE:
            return False
        partition = self.replica_manager.partitions.get(topic_partition)
        if partition is None or not partition.is_leader:
            result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return False
        return partition.high_watermark <= result.last_offset
