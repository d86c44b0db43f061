"""The log that is compacted next: the one with the largest share of new records, or with old ones.

Only whole segments are cleanable, and of those never the active one, never one with records that
are not committed, not flushed or of an open transaction, and none with a record that is younger
than min.compaction.lag.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from ottla.config.config_type import LONG_MAX
from ottla.errors import KafkaError
from ottla.log.log import Log
from ottla.log.log_segment import LogSegment
from ottla.structs import Value

logger = logging.getLogger(__name__)


class LogToClean(Value, frozen=True):
    """A log and its cleanable segments, the dirty ones from `first_dirty_offset` on.

    `compaction_delay_ms` is by how much its oldest dirty record has exceeded
    max.compaction.lag.ms; `is_due` says that it has, or that tombstones may be removed.
    """

    log: Log
    segments: tuple[LogSegment, ...]
    first_dirty_offset: int
    clean_bytes: int
    dirty_bytes: int
    compaction_delay_ms: int
    is_due: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def should_be_cleaned(self) -> bool:
        """Whether there is enough to do."""
        return self.is_due or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def is_compacted(log: Log) -> bool:
    return "compact" in log.config.cleanup_policy


def filthiest(logs: Iterable[LogToClean]) -> LogToClean | None:
    """The log with the highest dirty ratio, of those that should be cleaned."""
    wanted = [to_clean for to_clean in logs if to_clean.should_be_cleaned]
    return max(wanted, key=lambda to_clean: to_clean.dirty_ratio, default=None)


def examine(log: Log, now_ms: int, next_horizon_ms: int) -> LogToClean:
    """The cleanable part of a log. From `next_horizon_ms` on, something clean may be removed."""
    first_dirty_offset = _first_dirty_offset(log)
    segments = _cleanable_segments(log, first_dirty_offset, now_ms)
    clean_bytes = dirty_bytes = 0
    for index, segment in enumerate(segments):
        if log.segments.end_offset(index, log.log_end_offset) > first_dirty_offset:
            dirty_bytes += segment.size
        else:
            clean_bytes += segment.size
    delay_ms = _compaction_delay_ms(log, first_dirty_offset, now_ms)
    is_due = (dirty_bytes > 0 and delay_ms > 0) or (
        bool(segments) and now_ms >= next_horizon_ms and clean_bytes + dirty_bytes > 0
    )
    return LogToClean(log, segments, first_dirty_offset, clean_bytes, dirty_bytes, delay_ms, is_due)


def _first_dirty_offset(log: Log) -> int:
    offset = log.cleaned_offset
    if offset > log.log_end_offset:
        logger.warning(
            "%s: the cleaner's checkpoint %d is behind the log's end %d; all of it is dirty",
            log.topic_partition,
            offset,
            log.log_end_offset,
        )
        offset = 0
    return max(offset, log.log_start_offset)


def _cleanable_segments(log: Log, first_dirty_offset: int, now_ms: int) -> tuple[LogSegment, ...]:
    """The segments that may be cleaned, from the first one of the log on."""
    segments = log.segments
    # Not beyond the part on disk: a power loss must not take a record after others were removed for
    # it. And not in the part that recovery will scan: it takes gaps there for lost records.
    limit = min(log.last_stable_offset, log.scan_point)
    youngest_ms = now_ms - log.config.min_compaction_lag_ms
    count = 0
    for index, segment in enumerate(segments.items[:-1]):
        end_offset = segments.end_offset(index, log.log_end_offset)
        is_dirty = end_offset > first_dirty_offset
        is_young = (
            log.config.min_compaction_lag_ms > 0 and segment.largest_timestamp_ms() > youngest_ms
        )
        if end_offset > limit or (is_dirty and is_young):
            break
        count += 1
    return segments.items[:count]


def _compaction_delay_ms(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    """The delay of the oldest dirty record beyond max.compaction.lag.ms; 0 if it is not due."""
    max_lag_ms = log.config.max_compaction_lag_ms
    if max_lag_ms == LONG_MAX:
        return 0
    dirty = log.segments.since(first_dirty_offset)
    closed = [segment for segment in dirty if segment is not log.segments.active and segment.size]
    timestamps = (_first_timestamp(segment) for segment in closed)
    oldest_ms = min((timestamp for timestamp in timestamps if timestamp >= 0), default=now_ms)
    return max(0, now_ms - max_lag_ms - oldest_ms)


def _first_timestamp(segment: LogSegment) -> int:
    """The timestamp of the first batch, read from the file when first asked for."""
    if segment.first_timestamp_ms < 0:
        for _, batch in segment.headers_from(segment.base_offset):
            segment.first_timestamp_ms = batch.max_timestamp
            break
    return segment.first_timestamp_ms


class CleaningAbortedError(Exception):
    """The log was truncated, shortened or deleted, or the broker stops, while it was cleaned."""


def candidates(
    logs: Iterable[Log], passed_over: Collection[Log], now_ms: int, horizons: dict[Log, int]
) -> list[LogToClean]:
    """The compacted logs that can be worked on, examined."""
    found: list[LogToClean] = []
    for log in logs:
        if is_compacted(log) and log.is_available and log not in passed_over:
            try:
                found.append(examine(log, now_ms, horizons.get(log, LONG_MAX)))
            except OSError as error:
                what = f"compaction of {log.topic_partition}"
                logger.warning("%s", log.log_dir.refused(error, what))
            except KafkaError as error:
                logger.warning("%s cannot be looked at: %s", log.topic_partition, error)
    return found
