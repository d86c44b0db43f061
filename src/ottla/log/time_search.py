"""Records found by their time (ListOffsets).

A search is work in slices: it may read many headers, and batches with many records.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ottla.log.file_batches import read_batch, read_headers
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_segment import LogSegment
from ottla.log.segments import Segments
from ottla.log.time_index import TimeIndex
from ottla.runtime.scheduler import Work
from ottla.structs import NamedTuple

HEADERS_IN_A_SLICE = 1000


class TimedOffset(NamedTuple):
    """The result of a search by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def search_time(
    segments: Segments, timestamp_ms: int, start_offset: int
) -> Work[TimedOffset | None]:
    """The first record at or after a time, from an offset on."""
    for segment in segments.since(start_offset):
        if segment.max_timestamp_ms >= timestamp_ms:
            found = yield from search_segment(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def latest_record(segments: Segments, offset: int) -> Work[TimedOffset | None]:
    """The first of the latest records from an offset on."""
    best: TimedOffset | None = None
    largest = attrgetter("max_timestamp_ms")
    for segment in sorted(segments.since(offset), key=largest, reverse=True):
        if segment.max_timestamp_ms < (0 if best is None else best[0]):
            break
        found = yield from latest_of_segment(segment, offset)
        if found is not None and _is_later(found, best):
            best = found
    return best


def search_segment(
    segment: LogSegment, timestamp_ms: int, start_offset: int
) -> Work[TimedOffset | None]:
    """The first record at or behind `start_offset` with `timestamp_ms` or a later time."""
    # One file from first to last: in a pause another may take its path.
    file, time_index = segment.file, (yield from _checked_time_index(segment))
    indexed = time_index.lookup(timestamp_ms).offset
    for count, (position, header) in enumerate(segment.headers_from(max(indexed, start_offset))):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            for found in read_batch(file, position, header).times():
                if found is None:
                    yield
                elif found[0] >= timestamp_ms and found[1] >= start_offset:
                    return TimedOffset(*found, header.partition_leader_epoch)
        if count % HEADERS_IN_A_SLICE == HEADERS_IN_A_SLICE - 1:
            yield
    return None


def latest_of_segment(segment: LogSegment, offset: int) -> Work[TimedOffset | None]:
    """The first of the latest records from an offset on.

    The largest timestamp may be that of a batch that compaction has emptied, or of a record
    before the offset: then every header from the offset on is looked at.
    """
    found = yield from search_segment(segment, max(0, segment.max_timestamp_ms), offset)
    if found is not None:
        return found
    file, latest = segment.file, list[tuple[int, int]]()
    for count, (position, header) in enumerate(segment.headers_from(offset)):
        if header.max_timestamp >= 0 and header.record_count:
            latest.append((-header.max_timestamp, position))
        if count % HEADERS_IN_A_SLICE == HEADERS_IN_A_SLICE - 1:
            yield
    latest.sort()
    best: TimedOffset | None = None
    for negative_timestamp, position in latest:
        if best is not None and -negative_timestamp < best.timestamp_ms:
            break
        _, header = next(read_headers(file, position, segment.size))
        batch = read_batch(file, position, header)
        for each in batch.times():
            if each is None:
                yield
            elif each[1] >= offset and each[0] >= 0 and _is_later(each, best):
                best = TimedOffset(*each, batch.partition_leader_epoch)
    return best


def _checked_time_index(segment: LogSegment) -> Work[TimeIndex]:
    try:
        yield from segment.time_index.check_order()
    except CorruptIndexError as error:
        segment.mend_indexes(error)
    return segment.time_index


def _is_later(found: Sequence[int], best: TimedOffset | None) -> bool:
    """Whether a record's timestamp is larger, or its offset smaller with the same timestamp."""
    return best is None or (-found[0], found[1]) < (-best.timestamp_ms, best.offset)
