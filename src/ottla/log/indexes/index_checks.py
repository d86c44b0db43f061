"""Whether the indexes of a segment fit its log; CorruptIndexError where they do not."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ottla.log.file_batches import read_headers
from ottla.log.indexes.index_file import CorruptIndexError
from ottla.log.indexes.offset_index import OffsetPosition
from ottla.record.record_batch import CorruptRecordError

if TYPE_CHECKING:
    from ottla.log.log_segment import LogSegment


def check_indexes(segment: LogSegment) -> None:
    """Look at what can be seen without reading the whole segment: the ends of both indexes."""
    _check_offset_index(segment)
    _check_time_index(segment)


def is_right(entry: OffsetPosition, segment: LogSegment) -> bool:
    """Whether the batch at the entry's position ends with its offset.

    Before Kafka 1.1 an entry had the first offset.
    """
    try:
        _, batch = next(read_headers(segment.file, entry.position, segment.size))
        return entry.offset == batch.last_offset or entry.offset == batch.base_offset
    except (StopIteration, CorruptRecordError):
        return False


def _check_offset_index(segment: LogSegment) -> None:
    index = segment.offset_index
    index.check(segment.size)
    if len(index):
        if not is_right(index.last_entry(), segment):
            raise CorruptIndexError(f"{index.path}: its last entry is not so in the log")
        return
    try:
        for position, _ in read_headers(segment.file, 0, segment.size):
            if position > segment.index_interval_bytes:
                raise CorruptIndexError(f"{index.path} is empty, but the segment is not")
    except CorruptRecordError:
        pass  # it is the log that is damaged; whoever reads it, or recovers it, will see


def _check_time_index(segment: LogSegment) -> None:
    """A zeroed entry would make the segment look old enough to be deleted."""
    index = segment.time_index
    timestamp_ms, offset = index.last_entry()
    if not len(index) and (not segment.size or _is_without_timestamps(segment)):
        return
    if timestamp_ms < 0 or offset < segment.base_offset:
        raise CorruptIndexError(f"{index.path} does not end with a timestamp of the segment")
    if timestamp_ms == 0:
        header = segment.header_of(offset)
        if header is None or header[1].max_timestamp != timestamp_ms:
            raise CorruptIndexError(f"{index.path} ends with a timestamp that no batch has")


def _is_without_timestamps(segment: LogSegment) -> bool:
    """Whether it is of magic 0 from its first message to its last stretch."""
    last_position = segment.offset_index.last_entry().position
    try:
        return not any(
            batch.magic
            for position in (0, last_position)
            for _, batch in islice(read_headers(segment.file, position, segment.size), 1)
        )
    except CorruptRecordError:
        return False
