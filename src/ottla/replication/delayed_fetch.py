"""A fetch that waits for data: the long poll of consumers and followers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.replication.exchange import FetchParams, FetchPartition, FetchPartitionResult
from ottla.runtime import DelayedOperation
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.replication.replica_manager import ReplicaManager

FetchResults = dict[TopicPartition, FetchPartitionResult]


def is_satisfied(params: FetchParams, results: FetchResults) -> bool:
    """Whether an answer need not wait: enough bytes, or an error that the reader must hear of."""
    size = 0
    for result in results.values():
        if result.error is not ErrorCode.NONE:
            return True
        size += result.size_in_bytes
    return size >= params.min_bytes


class DelayedFetch(DelayedOperation):
    """Completes when `min_bytes` can be read, a partition has an error, or the time is over."""

    def __init__(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        replica_manager: ReplicaManager,
        respond: Callable[[FetchResults], object],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.partitions = partitions
        self.replica_manager = replica_manager
        self.respond = respond
        self.results: FetchResults | None = None

    def try_complete(self) -> bool:
        results = self.replica_manager.read_from_logs(self.params, self.partitions)
        if not is_satisfied(self.params, results):
            return False
        self.results = results
        return self.force_complete()

    def on_complete(self) -> None:
        results = self.results
        if results is None:
            results = self.replica_manager.read_from_logs(self.params, self.partitions)
        self.respond(results)
