"""A fetch that waits for data: the long poll of consumers and followers."""

from __future__ import annotations

from collections.abc import Callable, Set

from ottla.errors import ErrorCode
from ottla.replication.replica_requests import FetchParams, FetchPartitionResult, PartitionKey
from ottla.runtime import DelayedOperation

FetchResults = dict[PartitionKey, FetchPartitionResult]


class DelayedFetch(DelayedOperation):
    """Completes when `min_bytes` can be read, a partition has an error, or the time is over."""

    def __init__(
        self,
        params: FetchParams,
        read: Callable[[], FetchResults],
        respond: Callable[[FetchResults], object],
        unknown: Set[PartitionKey],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.unknown = unknown
        self.read = read
        self.respond = respond
        self.results: FetchResults | None = None

    def try_complete(self) -> bool:
        results = self.read()
        if not is_satisfied(self.params, results, self.unknown):
            return False
        self.results = results
        return self.force_complete()

    def on_complete(self) -> None:
        self.respond(self.read() if self.results is None else self.results)


def unknown_to_consumer(params: FetchParams, results: FetchResults) -> Set[PartitionKey]:
    """The partitions that do not exist; their errors wait with the rest of a consumer's fetch.

    Otherwise a consumer that keeps asking for a deleted topic would never wait (Kafka's rule). A
    follower gets the error at once: it leaves the partition out for a while.
    """
    if params.is_from_follower:
        return frozenset()
    return {
        key
        for key, result in results.items()
        if result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def is_satisfied(params: FetchParams, results: FetchResults, unknown: Set[PartitionKey]) -> bool:
    """Whether an answer need not wait: enough bytes, or news that the reader must get.

    The error of a partition that was already `unknown` when the wait began does not count. Where
    batches were left out for a limit of the fetch, waiting would bring none: whole batches may
    come to fewer bytes than a `min_bytes` close to the limit.
    """
    size = 0
    for key, result in results.items():
        if result.is_cut or (result.is_urgent and key not in unknown):
            return True
        size += result.size_in_bytes
    return size >= params.min_bytes
