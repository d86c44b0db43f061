"""The answers of a log: where a batch was appended, and the bytes of a read."""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.log.producer_state_entry import BatchMetadata
from ottla.record.record_batch import RecordBatch
from ottla.runtime import FileRegion
from ottla.structs import NO_TIMESTAMP, TopicPartition, Value


class LogAppendInfo(Value):
    """Where a batch went. For a duplicate: where its first copy went.

    `awaits_flush`: a flush of the batch was asked for (flush.messages) and is not done yet.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    log_start_offset: int
    record_count: int
    size_in_bytes: int
    is_duplicate: bool = False
    awaits_flush: bool = False


class FetchDataInfo(Value):
    """The result of a read: a region of a segment file with whole batches, or nothing.

    `is_cut`: more can be read behind it, which the reader's limit or the segment's end left out.
    """

    fetch_offset: int
    records: FileRegion | None = None
    is_cut: bool = False


def info_of_duplicate(
    first: BatchMetadata,
    batch: RecordBatch,
    log_start_offset: int,
    is_append_time: bool,
    awaits_flush: bool,
) -> LogAppendInfo:
    """The answer for a batch that was sent again: the answer to its first copy."""
    return LogAppendInfo(
        first.first_offset,
        first.last_offset,
        first.timestamp_ms,
        first.timestamp_ms if is_append_time else NO_TIMESTAMP,
        log_start_offset,
        batch.record_count,
        batch.size_in_bytes,
        is_duplicate=True,
        awaits_flush=awaits_flush,
    )


def older_epoch(topic_partition: TopicPartition, leader_epoch: int, latest: int) -> KafkaError:
    """The error for a leader that is not the latest; recovery needs epochs that never fall."""
    return KafkaError.of(
        ErrorCode.FENCED_LEADER_EPOCH,
        f"{topic_partition}: the log has batches of leader epoch {latest}, and none of epoch "
        f"{leader_epoch} may follow",
    )
