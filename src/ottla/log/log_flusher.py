"""The flushes of one log: what is on disk for sure, and what brings the rest there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.config.config_type import LONG_MAX
from ottla.config.topic_config import TopicConfig
from ottla.log.flush_job import FlushJob
from ottla.log.log_dir import LogDir
from ottla.log.readable_log import ReadableLog
from ottla.runtime import Runtime, Timer

logger = logging.getLogger(__name__)

FLUSH_RETRY_MS: Final = 1_000


class LogFlusher:
    """Flushes one log, one job at a time; requests of the meantime go into the next one.

    `recovery_point` is the offset before which all batches are on disk for sure: it moves when an
    fsync has succeeded and not before. An fsync that fails takes the log directory offline.
    `closed_point` is the base offset of a segment before which the indexes are on disk, too.
    """

    __slots__ = (
        "_flush_messages",
        "_flush_ms",
        "_generation",
        "_has_new_names",
        "_log",
        "_retry_timer",
        "_runtime",
        "_timer",
        "_unsynced_paths",
        "closed_point",
        "is_busy",
        "on_flushed",
        "recovery_point",
        "wanted",
    )

    def __init__(
        self, runtime: Runtime, log: ReadableLog, recovery_point: int, has_new_names: bool
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self.is_busy = False
        self._generation = 0
        self.wanted = recovery_point
        """What was asked to be brought to disk ends here."""
        self._has_new_names = has_new_names
        self._unsynced_paths: list[str] = []
        self.recovery_point = recovery_point
        self.closed_point = log.segments.active.base_offset
        self.on_flushed: Callable[[], object] = lambda: None
        """Called when a flush has ended, well or not."""

    def update_config(self, config: TopicConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self._flush_messages, self._flush_ms = config.flush_messages, config.flush_ms

    def note_new_file(self, path: str) -> None:
        """A file was made that the next flush has to sync as well."""
        self._unsynced_paths.append(path)
        self._has_new_names = True

    def flush_if_due(self) -> None:
        """Apply flush.messages, which the answer waits for, and flush.ms, after an append."""
        end_offset = self._log.log_end_offset
        if end_offset - self.recovery_point >= self._flush_messages:
            self.flush(end_offset)
        elif self._flush_ms < LONG_MAX and self._timer is None:
            self._timer = self._runtime.scheduler.call_later(self._flush_ms, self._on_timer)

    def flush(self, up_to: int) -> None:
        """Bring everything before `up_to` to disk soon."""
        self.wanted = max(self.wanted, up_to)
        if not self.is_busy and self._is_wanted and self._log.is_available:
            self._begin()

    @property
    def _is_wanted(self) -> bool:
        """Whether batches were asked for, or the indexes of segments that are closed now."""
        if self.wanted > self.recovery_point:
            return True
        return self.closed_point < self._log.segments.active.base_offset <= self.wanted

    @property
    def safe_end_offset(self) -> int:
        """While a flush is awaited: before this all is as safe as flush.messages asks for."""
        if self._flush_messages < LONG_MAX:
            return self.recovery_point
        return self._log.log_end_offset  # flushes for other reasons are not waited for

    def awaits(self, offset: int) -> bool:
        """Whether a flush of the record at `offset` was asked for and is not done yet."""
        return self.recovery_point <= offset < self.wanted

    def truncate(self, offset: int) -> None:
        """The log was cut: bytes in the place of the cut part have not been flushed."""
        self._generation += 1
        self.wanted = min(self.wanted, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.closed_point = min(self.closed_point, offset)

    def relocate(self, offset: int) -> None:
        """The log has other files now, and their bytes before an offset are on disk."""
        self._generation += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.closed_point = min(self.closed_point, offset)
        self._unsynced_paths = []
        self._has_new_names = True

    @property
    def is_needed(self) -> bool:
        """Whether there is anything that is not known to be on disk."""
        return (
            self.recovery_point < self._log.log_end_offset
            or self.closed_point < self._log.segments.active.base_offset
            or (
                self._log.log_end_offset > 0
                and (self._has_new_names or self._log.leader_epoch_cache.is_dirty)
            )
        )

    def job(self, up_to: int, *, is_last: bool = False) -> FlushJob:
        """The work that brings everything before an offset to disk.

        The indexes of the active segment are left out unless this is the last flush of a clean
        stop: after a crash they are rebuilt.
        """
        log = self._log
        epochs = log.leader_epoch_cache
        first = min(self.recovery_point, self.closed_point)
        segments = [s for s in log.segments.since(first) if s.base_offset < up_to or is_last]
        paths = list(self._unsynced_paths)
        for segment in segments:
            segment.write_indexes()
            if is_last or segment is not log.segments.active:
                paths += segment.files()[1:]
            elif self._runtime.disk.exists(segment.txn_index.path):
                paths.append(segment.txn_index.path)  # a clean start takes it as it is
        directories = [log.dir, log.log_dir.path] if self._has_new_names else []
        replacements = [(epochs.path, epochs.contents())] if epochs.is_dirty else []
        files = [segment.file for segment in segments]
        self._unsynced_paths = []
        self._has_new_names = epochs.is_dirty = False
        return FlushJob(self._runtime.disk, replacements, files, paths, directories)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush(self._log.log_end_offset)

    def _begin(self) -> None:
        up_to, generation = self.wanted, self._generation
        log_dir = self._log.log_dir
        segments = self._log.segments
        closed_point = segments.base_offsets[segments.index_of(up_to)]
        clock = self._runtime.clock
        began_ms = clock.monotonic_ms()

        def on_done(_: None) -> None:
            self.is_busy = False
            if log_dir.on_flush is not None:
                log_dir.on_flush(clock.monotonic_ms() - began_ms)
            if generation == self._generation:
                self.recovery_point = max(self.recovery_point, up_to)
                self.closed_point = max(self.closed_point, closed_point)
            self.flush(self.wanted)
            self.on_flushed()

        try:
            job = self.job(up_to)
        except OSError as error:
            self._fail(None, log_dir, error)
            return
        self.is_busy = True
        self._runtime.background.submit(job, on_done, partial(self._fail, job, log_dir))

    def _fail(self, job: FlushJob | None, log_dir: LogDir, error: BaseException) -> None:
        """Count nothing of the job as on disk; a full disk may have room at the next flush.

        That comes by itself: those that wait for this one need not append anything before it is
        done.
        """
        log, self.is_busy = self._log, False
        if isinstance(error, OSError):
            logger.warning("%s", log_dir.refused(error, f"flush of {log.topic_partition}"))
        else:
            log_dir.fail(error)
        self._has_new_names = log.leader_epoch_cache.is_dirty = True
        if log.log_dir is not log_dir:  # the log has moved meanwhile
            self.flush(self.wanted)
        else:
            self._unsynced_paths += job.paths if job is not None else []
            self._retry_later()
        self.on_flushed()

    def _retry_later(self) -> None:
        if self._retry_timer is None and self._log.is_available:
            call_later = self._runtime.scheduler.call_later
            self._retry_timer = call_later(FLUSH_RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.flush(self.wanted)
