"""A fetch that waits for data: the long poll of consumers and followers."""

from __future__ import annotations

from collections.abc import Callable

from ottla.replication.exchange import FetchParams, FetchPartitionResult
from ottla.runtime import DelayedOperation
from ottla.structs import TopicPartition

FetchResults = dict[TopicPartition, FetchPartitionResult]


def is_satisfied(params: FetchParams, results: FetchResults) -> bool:
    """Whether an answer need not wait: enough bytes, or news that the reader must hear of."""
    size = 0
    for result in results.values():
        if result.is_urgent:
            return True
        size += result.size_in_bytes
    return size >= params.min_bytes


class DelayedFetch(DelayedOperation):
    """Completes when `min_bytes` can be read, a partition has an error, or the time is over."""

    def __init__(
        self,
        params: FetchParams,
        read: Callable[[], FetchResults],
        respond: Callable[[FetchResults], object],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self.read = read
        self.respond = respond
        self.results: FetchResults | None = None

    def try_complete(self) -> bool:
        results = self.read()
        if not is_satisfied(self.params, results):
            return False
        self.results = results
        return self.force_complete()

    def end_early(self) -> None:
        """A fetch may be answered with less than `min_bytes` at any time."""
        self.force_complete()

    def on_complete(self) -> None:
        self.respond(self.read() if self.results is None else self.results)
