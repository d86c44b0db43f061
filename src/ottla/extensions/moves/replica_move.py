"""A replica that moves from a log directory to another of the same broker, while it is used.

The move goes through these steps:

    1. its files are copied into `<topic>-<partition>.<32 digits>-future`, in the background
    2. the copy is synced, and so are the offsets that the target's checkpoints have of it; the
       original gets a file that names the target
    3. the few bytes written meanwhile are copied on the loop's thread, the directory gets the
       partition's name, and the log continues in it
    4. that is synced: from now on the original is not needed
    5. the original is renamed to `-delete`, and removed later

A crash before step 3 is on disk leaves the original as the only one of that name, and the copy
starts from scratch. After one between 3 and 5 there are two, and the copy has a mark: the one that
reaches further stays. A flush that is acknowledged between 3 and 4 has also synced the new name.
Where the target has failed by that start, the original may lack what was acknowledged in the copy:
it is not served before the target is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from ottla.extensions.moves.segment_copy import (
    SOURCE_CHANGED,
    CopyError,
    Paths,
    Piece,
    SegmentCopy,
    blaming,
    piece_of,
)
from ottla.log.flush_job import FlushJob, FsyncError
from ottla.log.log import Log
from ottla.log.log_dir import LogDir, write_topic_id
from ottla.log.log_files import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    MOVE_MARK,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    deleted_dir_name,
    future_dir_name,
    segment_path,
)
from ottla.log.log_manager import LogManager
from ottla.log.segment_files import delete_directory
from ottla.log.throttler import Throttler
from ottla.runtime import Disk, File
from ottla.structs import NO_UUID, TopicPartition

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 1024 * 1024
# At most so much is copied on the loop's thread in the swap: a fraction of a millisecond.
LAST_PIECE_BYTES: Final = 128 * 1024
SUCCESSOR_MARK: Final = "replica-moves-to"
"""The file of the original that names the log directory in which the log may go on."""


class MoveGivenUpError(Exception):
    """The partition was deleted or moves elsewhere, a directory failed, or the broker stops."""


class ReplicaMove:
    """The move of one log into another directory.

    Invariant: until `has_swapped` the log is where it was, and the copy can be thrown away.
    """

    def __init__(self, logs: LogManager, log: Log, target: LogDir, throttler: Throttler) -> None:
        self.log = log
        self.target = target
        self.has_swapped = False
        self._logs = logs
        self._runtime = logs.runtime
        self._throttler = throttler
        self._is_given_up = False
        self._directory = target.file(future_dir_name(log.topic_partition, logs.unique_name()))
        self._copies: dict[int, SegmentCopy] = {}
        self._small_files: tuple[UUID, tuple[int, ...]] | None = None
        self._is_synced = False
        self._synced_offset: int  # known from the first sync on
        # Where the log is when `run` begins: an earlier move may end in between.
        self.source: LogDir
        self._original: str

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def size_in_bytes(self) -> int:
        """How much of the log is there already."""
        return sum(copy.size_in_bytes for copy in self._copies.values())

    @property
    def end_offset(self) -> int:
        """The offset before which everything has been copied."""
        for segment in self.log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment:
                return segment.base_offset
            if copy.size_in_bytes < segment.size:
                return segment.offset_index.lookup_before(copy.size_in_bytes, 1).offset
        return self.log.log_end_offset

    def give_up(self) -> None:
        """Throw away the copy, unless the log is there already."""
        self._is_given_up = True
        self._throttler.wake()

    async def run(self) -> None:
        """Move; an error is logged, and counted against the directory that it came from."""
        self.source, self._original = self.log.log_dir, self.log.dir
        name = f"{self.topic_partition} from {self.source.path} to {self.target.path}"
        logger.info("Moving %s", name)
        try:
            # Whatever else the disk refuses on the way counts against the new directory.
            with blaming(self.target, name):
                await self._copy_all()
                files = self._swap()
                await self._sync_swapped()
                await self._delete_original(files)
        except MoveGivenUpError as error:
            logger.info("%s is not moved: %s", name, error)
        except FsyncError as error:
            self.target.fail(error)
        except CopyError as error:
            logger.warning("%s is not moved: %s", name, error)
            if self.has_swapped:  # the original is still there, under the partition's name
                error.log_dir.fail(error.cause)
            else:
                error.log_dir.refused(error.cause, str(error))
        else:
            logger.info("Moved %s", name)
        if not self.has_swapped:
            await self._throw_away()

    async def _copy_all(self) -> None:
        self._check()
        for attachment in self._logs.attached:
            await attachment.pause(self.topic_partition)
        await self._in_background(self._prepare)
        await self._catch_up(PIECE_BYTES)
        while not self._is_synced:
            self._is_synced = True
            self._synced_offset = self.end_offset
            await self._sync_copies()
            await self._write_checkpoints()
            await self._in_background(self._mark_original)
            await self._catch_up(LAST_PIECE_BYTES)

    def _prepare(self) -> None:
        """Make the directory and its mark."""
        disk = self.target.disk
        with blaming(self.target, f"making {self._directory}"):
            disk.make_dirs(self._directory)
            disk.replace(f"{self._directory}/{MOVE_MARK}", f"{self.log.dir}\n".encode())

    async def _catch_up(self, last_bytes: int) -> None:
        """Copy until no more than so many bytes are missing, all of them of the newest segment."""
        log = self.log
        while True:
            self._check()
            stale = self._stale()
            small_files = log.topic_id, log.producer_state_manager.snapshot_offsets
            copy = self._first_incomplete()
            if stale:
                await self._in_background(partial(self._remove_copies, stale))
            elif small_files != self._small_files:
                await self._in_background(partial(self._copy_small_files, *small_files))
                self._small_files = small_files
            elif copy is None:
                return
            else:
                missing = copy.missing()
                is_last = copy.segment is log.segments.active
                if is_last and sum(missing.values()) <= last_bytes:
                    return
                await self._copy_piece(copy, missing)

    def _stale(self) -> list[SegmentCopy]:
        """Forget, and return, the copies of segments that are gone or cut: their files must go."""
        present = {id(segment) for segment in self.log.segments}
        stale = [
            copy
            for copy in self._copies.values()
            if id(copy.segment) not in present or not copy.is_current
        ]
        for copy in stale:
            del self._copies[copy.segment.base_offset]
            # Leader epochs and producers may have been cut as well.
            self._is_synced, self._small_files = False, None
        return stale

    def _remove_copies(self, copies: list[SegmentCopy]) -> None:
        for copy in copies:
            for suffix in copy.copied:
                path = segment_path(self._directory, copy.segment.base_offset, suffix)
                with blaming(self.target, f"removing {path}"):
                    self.target.disk.unlink(path)

    def _first_incomplete(self) -> SegmentCopy | None:
        """The next copy to work on; one that is up to date is complete if its segment is closed."""
        for segment in self.log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None:
                copy = self._copies[segment.base_offset] = SegmentCopy(segment)
            if copy.is_complete:
                continue
            with blaming(self.source, f"reading {segment.path}"):
                missing = copy.missing()
            if missing:
                return copy
            copy.is_complete = segment is not self.log.segments.active
        return None

    async def _copy_piece(self, copy: SegmentCopy, missing: dict[str, int]) -> None:
        """Copy a piece of the first file that is not complete: the file of batches comes last."""
        suffix = min(missing, key=lambda each: each == LOG_SUFFIX)
        rate = self._throttler.limit.bytes_per_second
        length = min(missing[suffix], PIECE_BYTES, max(1, int(rate)))
        piece = piece_of(copy, suffix, length, (self.source, self.target, self._directory))
        try:
            await self._in_background(piece)
        except SOURCE_CHANGED as error:
            is_there = copy.is_current and copy.segment in self.log.segments
            if is_there and not self.log.is_deleted:
                raise CopyError(self.source, error, f"reading {piece.paths.source}") from error
            return  # it was deleted or cut meanwhile
        copy.copied[suffix] = piece.position + length
        await self._throttler.throttle(length)

    def _copy_small_files(self, topic_id: UUID, snapshot_offsets: tuple[int, ...]) -> None:
        """Copy the topic id and just these snapshots of producers; in the background."""
        disk, directory = self.target.disk, self._directory
        with blaming(self.target, f"writing to {directory}"):
            if topic_id != NO_UUID:
                write_topic_id(disk, f"{directory}/{PARTITION_METADATA}", topic_id)
            for name in disk.list_dir(directory):
                if name.endswith(SNAPSHOT_SUFFIX):
                    disk.unlink(f"{directory}/{name}")
        for offset in snapshot_offsets:
            source = segment_path(self._original, offset, SNAPSHOT_SUFFIX)
            target = segment_path(directory, offset, SNAPSHOT_SUFFIX)
            paths = Paths(self.source, source, self.target, target)
            with blaming(self.source, f"reading {source}"), suppress(FileNotFoundError):
                if disk.exists(source):  # it may be deleted at any moment
                    Piece(paths, 0, disk.file_size(source))()

    async def _sync_copies(self) -> None:
        """Sync the copy so far, in the background."""
        epochs = self.log.leader_epoch_cache.contents()
        await self._in_background(partial(self._sync_files, epochs))

    def _sync_files(self, epochs: bytes) -> None:
        disk, directory = self.target.disk, self._directory
        with blaming(self.target, f"syncing {directory}"):
            disk.replace(f"{directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
            paths = [f"{directory}/{name}" for name in disk.list_dir(directory)]
            FlushJob(disk, [], [], paths, [directory, self.target.path])()

    def _mark_original(self) -> None:
        """Name the target in the original, which may be deleted at any moment."""
        path = f"{self._original}/{SUCCESSOR_MARK}"
        with blaming(self.source, f"preparing {self._original}"), suppress(FileNotFoundError):
            self.source.disk.replace(path, self.target.path.encode())

    def _swap(self) -> list[File]:
        """Copy the rest and let the log continue there, within one turn of the loop."""
        log = self.log
        copy = self._copies[log.segments.active.base_offset]
        with blaming(self.source, f"reading the files of {log.dir}"):
            missing = copy.missing()
            for suffix, length in missing.items():
                piece_of(copy, suffix, length, (self.source, self.target, self._directory))()
        directory = self.target.file(str(self.topic_partition))
        with blaming(self.target, f"renaming {self._directory}"):
            self.target.disk.rename(self._directory, directory)
        self.has_swapped = True
        return log.relocate(self.target, directory, self._synced_offset)

    async def _sync_swapped(self) -> None:
        """Sync the last pieces and the new name."""
        log = self.log
        segments = log.segments.since(log.recovery_point)
        with blaming(self.target, f"syncing {log.dir}"):
            paths = [path for segment in segments for path in segment.files()]
            job = FlushJob(self.target.disk, [], [], paths, [log.dir, self.target.path])
            await self._runtime.background.run(job)
        log.flush()

    async def _delete_original(self, files: list[File]) -> None:
        """Rename the original now, and remove it when no read can be under way."""
        logs, directory = self._logs, self._original
        name = deleted_dir_name(self.topic_partition, logs.unique_name())
        # Without a recovery point, gaps that compaction has left would count as lost records.
        await self._write_checkpoints()

        def close() -> None:
            for file in files:
                file.close()

        with blaming(self.source, f"deleting {directory}"):
            delay_ms = self.log.config.file_delete_delay_ms
            delete_directory(self._runtime, directory, self.source.file(name), delay_ms, close)
            await self._runtime.background.run(
                partial(self.source.disk.fsync_dir, self.source.path)
            )
        await self._write_checkpoints()
        if len(logs.live_dirs) == len(logs.dirs) and self.log.is_available:
            with blaming(self.target, f"unmarking {self.log.dir}"):
                self.target.disk.unlink(f"{self.log.dir}/{MOVE_MARK}")

    async def _write_checkpoints(self) -> None:
        """Have the offsets of this log on disk, in the directories where it is and will be."""
        checkpoints = self._logs.checkpoints
        checkpoints.write_all()
        await checkpoints.written()
        for log_dir in (self.source, self.target):
            with blaming(log_dir, "writing its checkpoints"):
                checkpoints.check(log_dir)

    def _check(self) -> None:
        if self._is_given_up:
            raise MoveGivenUpError("it is no longer wanted")
        if not self.log.is_available or self.log.log_dir is not self.source:
            raise MoveGivenUpError(f"it is no longer in {self.source.path}")
        if self.target.is_offline:
            raise MoveGivenUpError(str(self.target.offline_error()))

    async def _in_background(self, job: Callable[[], None]) -> None:
        await self._runtime.background.run(job)

    async def _throw_away(self) -> None:
        """Remove the copy, unless the next start must decide whether the move continues."""
        if self.source.is_offline:
            return
        try:
            with suppress(FileNotFoundError):
                job = partial(unmark, self.source.disk, self._original, SUCCESSOR_MARK)
                await self._runtime.background.run(job)
        except OSError as error:
            self.source.fail(error)
        if self.target.is_offline or self.source.is_offline or self._logs.is_stopping:
            return
        disk, directory = self.target.disk, self._directory
        try:
            if disk.exists(directory):
                await self._runtime.background.run(partial(disk.remove_tree, directory))
        except OSError as error:
            self.target.refused(error, f"removing {directory}")
            if not self.target.is_offline:
                self._logs.remove_later(directory)


def unmark(disk: Disk, directory: str, mark: str) -> None:
    """Remove a mark for good, where there is one."""
    if disk.exists(f"{directory}/{mark}"):
        disk.unlink(f"{directory}/{mark}")
        disk.fsync_dir(directory)
