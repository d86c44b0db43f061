"""The oldest segments of a log that may be deleted: too old, too much, or before its start.

Segments go from the oldest on and only as long as all of their records are below the high
watermark; the segment behind the last one that goes is the log's new start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.log.log_segment import LogSegment
from ottla.runtime.scheduler import Work
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger(__name__)

Predicate = Callable[[LogSegment, int], bool]
"""Given a segment and the offset behind it, whether it may go."""

SEGMENTS_IN_A_SLICE: Final = 1_000


def retain(logs: Iterable[Log], now_ms: int) -> Work[int]:
    """Delete the old segments of all logs, and free the indexes of closed ones, in slices."""
    count = seen = 0
    for log in logs:
        seen += len(log.segments)
        try:
            log.release_memory()
            count += delete_old_segments(log, now_ms)
        except KafkaError as error:
            logger.warning("Retention of %s: %s", log.topic_partition, error)
        except Exception:
            logger.exception("Retention of %s has failed", log.topic_partition)
        if seen >= SEGMENTS_IN_A_SLICE:
            seen = 0
            yield
    return count


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Delete segments that retention does not keep, rule by rule; returns how many."""
    count = 0
    while log.is_available:
        try:
            gone, reason = breached(log, now_ms)
        except OSError as error:
            raise log.log_dir.refused(error, f"retention of {log.topic_partition}") from error
        if not gone:
            return count
        logger.info(
            "%s: deleting %d segments up to offset %d (%s)",
            log.topic_partition,
            len(gone),
            gone[-1].base_offset,
            reason,
        )
        if len(gone) == len(log.segments):
            log.roller.roll()  # a log is never without a segment
        log.remove_segments(gone)
        count += len(gone)
    return count


def breached(log: Log, now_ms: int) -> tuple[list[LogSegment], str]:
    """The segments to delete now by the first rule that has any, and that rule."""
    config = log.config
    rules: list[tuple[Predicate, str]] = [
        (lambda _, end: end <= log.log_start_offset, f"before log start {log.log_start_offset}")
    ]
    if "delete" in config.cleanup_policy:
        if config.retention_ms >= 0:
            rules.append((_older_than(log, now_ms - config.retention_ms, now_ms), "retention.ms"))
        if config.retention_bytes >= 0:
            excess = log.size_in_bytes - config.retention_bytes
            rules.append((_within(excess), "retention.bytes"))
    for may_go, reason in rules:
        found = _oldest(log, may_go)
        if found:
            return found, reason
    return [], ""


FUTURE_MS: Final = 3_600_000
"""Clocks that differ by less are not worth a word."""


def _older_than(log: Log, limit_ms: int, now_ms: int) -> Predicate:
    def may_go(segment: LogSegment, _: int) -> bool:
        largest_ms = segment.largest_timestamp_ms()
        if largest_ms > now_ms + FUTURE_MS and not segment.has_warned:
            segment.has_warned = True
            logger.warning(
                "%s: segment %d has a record of the future, with timestamp %d: "
                "until then retention.ms deletes neither this segment nor those behind it",
                log.topic_partition,
                segment.base_offset,
                largest_ms,
            )
        return largest_ms < limit_ms

    return may_go


def _within(excess: int) -> Predicate:
    """Accept segments while the log keeps at least retention.bytes without them."""
    left = excess

    def may_go(segment: LogSegment, _: int) -> bool:
        nonlocal left
        left -= segment.size
        return left >= 0

    return may_go


def _oldest(log: Log, may_go: Predicate) -> list[LogSegment]:
    """The oldest segments that may go; those emptied by compaction go with the one behind."""
    found: list[LogSegment] = []
    emptied: list[LogSegment] = []
    segments = log.segments
    for index, segment in enumerate(segments):
        end_offset = segments.end_offset(index, log.log_end_offset)
        is_empty_end = segment is segments.active and not segment.size
        if is_empty_end or end_offset > log.high_watermark:
            break
        if may_go(segment, end_offset):
            found += [*emptied, segment]
            emptied.clear()
        elif segment.size:
            break
        else:
            emptied.append(segment)
    return found


def segment_offsets_before(log: Log, timestamp_ms: int, max_count: int, now_ms: int) -> list[int]:
    """Base offsets of at most `max_count` segments last written by a time, newest first.

    -1 asks for all of them and the log's end, -2 for its start. A segment's time is that of its
    newest record. No offset above the high watermark is returned.

    Before records had timestamps (KIP-33), only a segment as a whole had a time.
    """
    try:
        starts = [
            (max(segment.base_offset, log.log_start_offset), segment.largest_timestamp_ms())
            for segment in log.segments
        ]
    except OSError as error:
        raise log.log_dir.refused(error, f"read of {log.topic_partition}") from error
    if log.segments.active.size:
        starts.append((log.log_end_offset, now_ms))
    if timestamp_ms == EARLIEST_TIMESTAMP:
        wanted = starts[:1]
    elif timestamp_ms == LATEST_TIMESTAMP:
        wanted = starts
    else:
        count = max((n for n, (_, time) in enumerate(starts, 1) if time <= timestamp_ms), default=0)
        wanted = starts[:count]
    newest_first = [offset for offset, _ in reversed(wanted)][: max(0, max_count)]
    visible = [offset for offset in newest_first if offset < log.high_watermark]
    if len(visible) < len(newest_first):
        visible.insert(0, log.high_watermark)
    return visible
