"""The append of a follower: batches that a leader has given offsets and epochs.

They are written as they came, as many in one call as fit into the segment. Their headers then
update the indexes, leader epochs, producers and aborted transactions.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.log.log_segment import LogSegment
from ottla.log.offset_index import MAX_OFFSET
from ottla.record.memory_records import batches
from ottla.record.record_batch import CorruptRecordError, RecordBatch
from ottla.runtime import Buffer
from ottla.structs import NO_EPOCH


class UnexpectedAppendOffsetError(KafkaError):
    """The first batch begins before the log's end: the log has to be cut back to `base_offset`."""

    def __init__(self, base_offset: int, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.base_offset = base_offset


def append_as_follower(log: Log, records: Buffer, leader_epoch: int, now_ms: int) -> int:
    """Append all whole batches of `records`, which the leader of `leader_epoch` has sent.

    Returns their size. If one of them is damaged or out of order, CorruptRecordError is raised and
    nothing was appended.
    """
    log.check_available()
    found = checked_batches(log, records, leader_epoch)
    size = 0
    try:
        while found:
            count, written = _append_run(log, found, now_ms)
            found = found[count:]
            size += written
    finally:
        if size:
            log.flusher.flush_if_due()
    return size


def checked_batches(log: Log, records: Buffer, leader_epoch: int) -> list[RecordBatch]:
    """The whole batches of `records`; a part of one at their end is left out (KIP-74)."""
    found: list[RecordBatch] = []
    end_offset = log.log_end_offset
    epoch = log.leader_epoch_cache.latest_epoch
    for batch in batches(records):
        batch.verify()
        base_offset, batch_epoch = batch.base_offset, batch.partition_leader_epoch
        if base_offset < end_offset:
            what = f"{log.topic_partition}: a batch from offset {base_offset} at {end_offset}"
            if found or batch.last_offset < end_offset:
                raise CorruptRecordError(f"{what}, which it does not follow")
            raise UnexpectedAppendOffsetError(base_offset, what)
        if batch.last_offset >= MAX_OFFSET:
            raise CorruptRecordError(
                f"{log.topic_partition}: no offset follows {batch.last_offset}"
            )
        if batch_epoch > leader_epoch or NO_EPOCH < batch_epoch < epoch:
            raise CorruptRecordError(
                f"{log.topic_partition}: the batch at offset {base_offset} is of epoch "
                f"{batch_epoch}, behind epoch {epoch} and from the leader of {leader_epoch}"
            )
        epoch = max(epoch, batch_epoch)
        end_offset = batch.next_offset
        found.append(batch)
    return found


def _append_run(log: Log, found: Sequence[RecordBatch], now_ms: int) -> tuple[int, int]:
    """Write as many batches as one segment takes; returns how many, and their size."""
    first = found[0]
    size = first.size_in_bytes
    segment = log.roller.segment_for(
        size, first.base_offset, first.last_offset, first.max_timestamp, now_ms
    )
    count = 1
    for batch in found[1:]:
        added = batch.size_in_bytes
        if not log.roller.has_room(segment, size + added, batch, now_ms):
            break
        size += added
        count += 1
    try:
        segment.load_indexes()
        segment.file.pwrite(first.buffer[first.position : first.position + size], segment.size)
    except OSError as error:
        raise log.write_failed(segment, error) from error
    for batch in found[:count]:
        _take(log, segment, batch)
    return count, size


def _take(log: Log, segment: LogSegment, batch: RecordBatch) -> None:
    """Update the indexes, epochs and producers with a batch that has been written."""
    base_offset = batch.base_offset
    segment.add_batch(batch.size_in_bytes, base_offset, batch.last_offset, batch.max_timestamp)
    log.log_end_offset = batch.next_offset
    log.leader_epoch_cache.assign(batch.partition_leader_epoch, base_offset)
    if batch.producer_id < 0:
        return
    producers = log.producer_state_manager
    if batch.is_control:
        producers.on_high_watermark(log.high_watermark)
    aborted = producers.replay(batch)
    if aborted is not None:
        log.note_aborted(segment, aborted)
