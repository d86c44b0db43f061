"""A produce whose acknowledgement waits: for the in-sync replicas, or for the disk.

acks=all waits until every in-sync replica has the batches. flush.messages makes any
acknowledgement wait for the flush that its batch has asked for; one flush serves all that came
before it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import ErrorCode
from ottla.replication.append_results import PartitionAppendResult
from ottla.runtime import DelayedOperation
from ottla.structs import TopicPartition

AppendResults = dict[TopicPartition, PartitionAppendResult]
Respond = Callable[[AppendResults], object]
Hold = Callable[["DelayedProduce"], object]


class DelayedProduce(DelayedOperation):
    """Completes when `is_pending` holds for none of the results, or when the time is over.

    `is_pending` turns a result into an error where the wait has become futile. It is not asked
    again about a partition that no longer waits.
    """

    def __init__(
        self,
        timeout_ms: int,
        results: AppendResults,
        is_pending: Callable[[TopicPartition, PartitionAppendResult], bool],
        respond: Respond,
    ) -> None:
        super().__init__(timeout_ms)
        self.results = results
        self.is_pending = is_pending
        self._pending = list(results)
        self.respond = respond

    def try_complete(self) -> bool:
        pending, results = self._pending, self.results
        while pending:
            if self.is_pending(pending[-1], results[pending[-1]]):
                return False
            pending.pop()
        return self.force_complete()

    def on_complete(self) -> None:
        """Answer. A batch that timed out stays appended, but must not be acknowledged as safe."""
        for topic_partition in self._pending:
            result = self.results[topic_partition]
            if self.is_pending(topic_partition, result):
                result.error = ErrorCode.REQUEST_TIMED_OUT
        self.respond(self.results)
