"""Which of the oldest segments of a log may be deleted: too old, too much, or before its start.

Segments go from the oldest on and only as long as all of their records are below the high
watermark; what follows the last one that goes is the log's new start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.log.log_segment import LogSegment

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger(__name__)

# Given a segment and the offset behind it, whether it may go.
Predicate = Callable[[LogSegment, int], bool]


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Delete what retention does not keep, rule by rule, and say how many segments that were."""
    count = 0
    while log.is_available:
        gone, reason = breached(log, now_ms)
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
    """The segments to delete now by the first rule that has any, and what that rule is."""
    config = log.config
    rules: list[tuple[Predicate, str]] = [
        (lambda _, end: end <= log.log_start_offset, f"before log start {log.log_start_offset}")
    ]
    if "delete" in config.cleanup_policy:
        if config.retention_ms >= 0:
            rules.append((_older_than(now_ms - config.retention_ms), "retention.ms"))
        if config.retention_bytes >= 0:
            excess = log.size_in_bytes - config.retention_bytes
            rules.append((_within(excess), "retention.bytes"))
    for may_go, reason in rules:
        found = _oldest(log, may_go)
        if found:
            return found, reason
    return [], ""


def _older_than(limit_ms: int) -> Predicate:
    return lambda segment, _: segment.largest_timestamp_ms() < limit_ms


def _within(excess: int) -> Predicate:
    """Segments as long as the log stays at least as large as retention.bytes without them."""
    left = excess

    def may_go(segment: LogSegment, _: int) -> bool:
        nonlocal left
        left -= segment.size
        return left >= 0

    return may_go


def _oldest(log: Log, may_go: Predicate) -> list[LogSegment]:
    """Those that may go, with what compaction has emptied before them: that has no time."""
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
