"""Bringing a log to disk without making the loop wait for the disk."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.config.config_type import LONG_MAX
from ottla.runtime import Disk, File, Runtime, Timer

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.log_dir import LogDir

logger = logging.getLogger(__name__)


class FsyncError(Exception):
    """The kernel could not bring data to disk; it may have dropped them."""


@dataclass(slots=True)
class FlushJob:
    """What is to be forced to disk, as values for a background thread.

    FsyncError if that failed; OSError if it could not be tried.
    """

    disk: Disk
    replacements: list[tuple[str, bytes]]
    files: list[File]
    paths: list[str]
    directories: list[str]

    def __call__(self) -> None:
        for path, data in self.replacements:
            _unless_gone(self.disk.replace, path, data)
        for file in self.files:
            _unless_gone(_fsync, file)
        for path in self.paths:
            _unless_gone(self._sync_path, path)
        for directory in self.directories:
            _unless_gone(self.disk.fsync_dir, directory)

    def _sync_path(self, path: str) -> None:
        file = self.disk.open(path)
        try:
            _fsync(file)
        finally:
            file.close()


def _fsync(file: File) -> None:
    try:
        file.fsync()
    except OSError as error:
        if error.errno == errno.EBADF:
            raise
        raise FsyncError(f"fsync of {file.path}: {error}") from error


def _unless_gone(action: Callable[..., object], *arguments: object) -> None:
    """What was deleted while the job waited needs no flush: its file is closed or not there."""
    try:
        action(*arguments)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBADF:
            raise


class LogFlusher:
    """Flushes one log, one job at a time; what is asked meanwhile goes into the next one.

    `recovery_point` is the offset before which all batches are on disk for sure: it moves when an
    fsync has succeeded and not before. An fsync that fails takes the log directory offline.
    `closed_point` is the base offset of a segment before which the indexes are on disk, too.
    """

    __slots__ = (
        "_generation",
        "_has_new_names",
        "_is_busy",
        "_log",
        "_runtime",
        "_timer",
        "_unsynced_paths",
        "_wanted",
        "closed_point",
        "recovery_point",
    )

    def __init__(
        self, runtime: Runtime, log: Log, recovery_point: int, has_new_names: bool = True
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._timer: Timer | None = None
        self._is_busy = False
        self._generation = 0
        self._wanted = recovery_point
        self._has_new_names = has_new_names
        self._unsynced_paths: list[str] = []
        self.recovery_point = recovery_point
        self.closed_point = log.segments.active.base_offset

    def note_new_file(self, path: str) -> None:
        """A file was made that the next flush has to sync as well."""
        self._unsynced_paths.append(path)
        self._has_new_names = True

    def flush_if_due(self) -> None:
        """After an append: flush.messages, which its acknowledgement waits for, and flush.ms."""
        log = self._log
        config = log.config
        if log.log_end_offset - self.recovery_point >= config.flush_messages:
            self.flush(log.log_end_offset)
        elif config.flush_ms < LONG_MAX and self._timer is None:
            self._timer = self._runtime.scheduler.call_later(config.flush_ms, self._on_timer)

    def flush(self, up_to: int) -> None:
        """See to it that everything before `up_to` gets to disk soon."""
        self._wanted = max(self._wanted, up_to)
        if not self._is_busy and self._is_wanted and self._log.is_available:
            self._begin()

    @property
    def _is_wanted(self) -> bool:
        """Whether batches were asked for, or the indexes of segments that are closed now."""
        if self._wanted > self.recovery_point:
            return True
        return self.closed_point < self._log.segments.active.base_offset <= self._wanted

    @property
    def safe_end_offset(self) -> int:
        """Before this offset everything is as safe as flush.messages asks for."""
        if self._wanted > self.recovery_point and self._log.config.flush_messages < LONG_MAX:
            return self.recovery_point
        return self._log.log_end_offset  # flushes for other reasons are not waited for

    def awaits(self, offset: int) -> bool:
        """Whether a flush of the record at `offset` was asked for and is not done yet."""
        return self.recovery_point <= offset < self._wanted

    def truncate(self, offset: int) -> None:
        """The log was cut: what is written in its place has not been flushed."""
        self._generation += 1
        self._wanted = min(self._wanted, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.closed_point = min(self.closed_point, offset)

    def relocate(self, offset: int) -> None:
        """The log has other files now, of which those before an offset are on disk."""
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
        """What has to be done for everything before an offset to be on disk.

        The indexes of the active segment are left out unless this is the last flush of a clean
        stop: after a crash they are made anew.
        """
        log = self._log
        epochs = log.leader_epoch_cache
        first = min(self.recovery_point, self.closed_point)
        segments = [s for s in log.segments.since(first) if s.base_offset < up_to or is_last]
        paths, self._unsynced_paths = self._unsynced_paths, []
        for segment in segments:
            segment.write_indexes()
            if is_last or segment is not log.segments.active:
                paths += segment.files()[1:]
            elif self._runtime.disk.exists(segment.txn_index.path):
                paths.append(segment.txn_index.path)  # a clean start takes it as it is
        directories = [log.dir, log.log_dir.path] if self._has_new_names else []
        replacements = [(epochs.path, epochs.contents())] if epochs.is_dirty else []
        self._has_new_names = epochs.is_dirty = False
        files = [segment.file for segment in segments]
        return FlushJob(self._runtime.disk, replacements, files, paths, directories)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush(self._log.log_end_offset)

    def _begin(self) -> None:
        up_to, generation = self._wanted, self._generation
        log_dir = self._log.log_dir
        segments = self._log.segments
        closed_point = segments.base_offsets[segments.index_of(up_to)]

        def on_done(_: None) -> None:
            self._is_busy = False
            if generation == self._generation:
                self.recovery_point = max(self.recovery_point, up_to)
                self.closed_point = max(self.closed_point, closed_point)
            self.flush(self._wanted)
            self._log.on_flushed()

        def on_error(error: BaseException) -> None:
            self._is_busy = False
            self._fail(error, job, log_dir)

        job = None
        try:
            job = self.job(up_to)
        except OSError as error:
            self._fail(error, job, log_dir)
            return
        self._is_busy = True
        self._runtime.background.submit(job, on_done, on_error)

    def _fail(self, error: BaseException, job: FlushJob | None, log_dir: LogDir) -> None:
        """Nothing is believed to be on disk; a full disk may have room again at the next flush."""
        log = self._log
        if isinstance(error, OSError):
            logger.warning("%s", log_dir.failed(error, f"flush of {log.topic_partition}"))
        else:
            log_dir.fail(error)
        self._has_new_names = log.leader_epoch_cache.is_dirty = True
        if log.log_dir is not log_dir:  # the log has moved meanwhile
            self.flush(self._wanted)
        elif job is not None:
            self._unsynced_paths += job.paths
        log.on_flushed()
