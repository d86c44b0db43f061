"""Whether the indexes of a segment that was found on disk fit its log."""

from __future__ import annotations

from itertools import islice

from ottla.log.file_batches import read_headers
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_segment import LogSegment
from ottla.record.record import CorruptRecordError


def check_indexes(segment: LogSegment) -> None:
    """Check the ends of both, which needs no read of the whole segment.

    Raises CorruptIndexError, naming the index, where one does not fit the log.
    """
    _check_offset_index(segment)
    _check_time_index(segment)


def _check_offset_index(segment: LogSegment) -> None:
    index = segment.offset_index
    index.check(segment.size)
    if len(index):
        if not segment.confirms(index.last_entry()):
            raise CorruptIndexError(f"{index.path}: its last entry is not so in the log")
        return
    try:
        for position, _ in read_headers(segment.file, 0, segment.size):
            if position > segment.index_interval_bytes:
                raise CorruptIndexError(f"{index.path} is empty, but the segment is not")
    except CorruptRecordError:
        pass  # the log itself is damaged, which a read or recovery will find


def _check_time_index(segment: LogSegment) -> None:
    """A zeroed entry would make the segment look old enough to be deleted."""
    index = segment.time_index
    timestamp_ms, offset = index.last_entry()
    if not len(index) and _is_without_timestamps(segment):
        return
    if timestamp_ms < 0 or offset < segment.base_offset:
        raise CorruptIndexError(f"{index.path} does not end with a timestamp of the segment")
    if timestamp_ms == 0:
        header = segment.header_of(offset)
        if header is None or header[1].max_timestamp != timestamp_ms:
            raise CorruptIndexError(f"{index.path} ends with a timestamp that no batch has")


def _is_without_timestamps(segment: LogSegment) -> bool:
    """Whether it is empty, or of magic 0 from its first message to its last stretch."""
    last_position = segment.offset_index.last_entry().position
    try:
        return not any(
            batch.magic
            for position in (0, last_position)
            for _, batch in islice(read_headers(segment.file, position, segment.size), 1)
        )
    except CorruptRecordError:
        return False
