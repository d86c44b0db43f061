"""When the active segment of a log ends, and the beginning of the next one.

A new segment is begun before a batch that would make the active one larger than segment.bytes, that
comes later than segment.ms after its first batch (max.compaction.lag.ms on a compacted topic, since
the active segment is never compacted), that does not fit into its index, or whose offset cannot be
written relative to its base offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.topic_config import TopicConfig
from ottla.log.log_segment import LogSegment
from ottla.log.segments import Segments
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Runtime

if TYPE_CHECKING:
    from ottla.log.log import Log


class LogRoller:
    """Gives a log the segment that the next batch goes into."""

    __slots__ = ("_log", "_roll_ms", "_runtime", "_segment_bytes")

    def __init__(self, runtime: Runtime, log: Log, config: TopicConfig) -> None:
        self._runtime = runtime
        self._log = log
        self.update_config(config)

    def update_config(self, config: TopicConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self._segment_bytes = config.segment_bytes
        self._roll_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            self._roll_ms = min(config.segment_ms, config.max_compaction_lag_ms)

    def segment_for(
        self, added_bytes: int, last_offset: int, timestamp_ms: int, now_ms: int
    ) -> LogSegment:
        """The active segment, a new one if the batch is too large, late or far off for it."""
        segment = self._log.segments.active
        size = segment.size
        if size and (
            size > self._segment_bytes - added_bytes
            or segment.is_due(timestamp_ms, now_ms, self._roll_ms)
            or segment.is_full
            or not segment.fits(last_offset)
        ):
            self.roll()
            return self._log.segments.active
        return segment

    def has_room(
        self, segment: LogSegment, added_bytes: int, batch: RecordBatch, now_ms: int
    ) -> bool:
        """Whether a segment takes so many bytes, of which `batch` is the last, without a roll."""
        return (
            segment.size <= self._segment_bytes - added_bytes
            and segment.fits(batch.last_offset)
            and not segment.is_due(batch.max_timestamp, now_ms, self._roll_ms)
        )

    def roll(self) -> None:
        """Close the active segment and begin a new one at the log's end, unless it is empty."""
        log = self._log
        log.check_available()
        active = log.segments.active
        if not active.size and active.base_offset == log.log_end_offset:
            return
        segment = self.segment_at(log.log_end_offset)
        try:
            active.become_inactive()
            segment.create()
            log.take_snapshot()
        except OSError as error:
            self._undo(segment)
            raise log.log_dir.failed(error, f"roll of {log.topic_partition}") from error
        log.segments = Segments([*log.segments, segment])
        log.flush(segment.base_offset)

    def segment_at(self, base_offset: int) -> LogSegment:
        """A segment with the settings of the topic; its files are not there yet."""
        runtime, config = self._runtime, self._log.config
        now_ms = runtime.clock.now_ms()
        segment = LogSegment(runtime.disk, self._log.dir, base_offset, config, now_ms)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        segment.roll_jitter_ms = runtime.random.randrange(jitter_ms) if jitter_ms else 0
        return segment

    def _undo(self, segment: LogSegment) -> None:
        """The next append goes into the old segment: a newer one would hide it after a restart."""
        try:
            segment.remove()
        except OSError as error:
            self._log.log_dir.fail(error)
