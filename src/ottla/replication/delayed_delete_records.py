"""A deletion of records that waits until every live replica has moved its log start up."""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.replica_requests import DeleteRecordsResult
from ottla.runtime import DelayedOperation
from ottla.structs import NO_OFFSET, TopicPartition

DeleteResults = dict[TopicPartition, DeleteRecordsResult]


class DelayedDeleteRecords(DelayedOperation):
    """Completes when the low watermark of each partition has reached the requested offset.

    `wanted` holds the offsets of the partitions that are waited for, `results` the other answers.
    """

    def __init__(
        self,
        timeout_ms: int,
        wanted: dict[TopicPartition, int],
        results: DeleteResults,
        low_watermark: Callable[[TopicPartition], int],
        respond: Callable[[DeleteResults], object],
    ) -> None:
        super().__init__(timeout_ms)
        self.wanted = wanted
        self.results = results
        self.low_watermark = low_watermark
        self.respond = respond

    def try_complete(self) -> bool:
        for topic_partition, offset in list(self.wanted.items()):
            try:
                low_watermark = self.low_watermark(topic_partition)
            except KafkaError as error:
                result = DeleteRecordsResult(NO_OFFSET, error.error)
            else:
                if low_watermark < offset:
                    continue
                result = DeleteRecordsResult(low_watermark, ErrorCode.NONE)
            del self.wanted[topic_partition]
            self.results[topic_partition] = result
        return not self.wanted and self.force_complete()

    def on_complete(self) -> None:
        for topic_partition in self.wanted:
            timed_out = DeleteRecordsResult(NO_OFFSET, ErrorCode.REQUEST_TIMED_OUT)
            self.results[topic_partition] = timed_out
        self.respond(self.results)
