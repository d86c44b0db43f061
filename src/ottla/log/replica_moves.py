"""Replicas that move from a log directory to another of the same broker, while they are used.

A move of one replica goes through these steps:

    1. its files are copied into `<topic>-<partition>.<32 digits>-future`, in the background
    2. what is there is synced, and so are the offsets that the target's checkpoints have of it
    3. what little was written meanwhile is copied on the loop's thread, the directory gets the
       partition's name, and the log continues in it
    4. that is synced: from now on the original is not needed
    5. the original is renamed to `-delete`, and removed later

A crash before step 3 is on disk leaves the original as the only one of that name, and the copy
starts from scratch. After one between 3 and 5 there are two, and the copy has a mark: the one that
reaches further stays. A flush that is acknowledged between 3 and 4 has also synced the new name.

After a restart a move starts again from its beginning: the directory of its copy shows that it was
asked for (KIP-113). For a partition that is not on this broker yet, the directory is remembered
until the broker stops.

Wing: attaches to `log_manager`, for several log directories; the core works without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.log.log_dir import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    MOVE_MARK,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    FlushJob,
    FsyncError,
    LogDir,
    deleted_dir_name,
    future_dir_name,
    segment_path,
    write_topic_id,
)
from ottla.log.log_manager import DirContents, LogAttachment, LogManager
from ottla.log.log_segment import LogSegment, delete_directory
from ottla.log.throttler import Throttler
from ottla.runtime import File
from ottla.structs import NO_UUID, TopicPartition, Value

logger = logging.getLogger(__name__)


# Copying the files of segments while they are written to, as bytes that are not interpreted.


class CopyError(Exception):
    """An OSError, and the log directory that is to blame for it."""

    def __init__(self, log_dir: LogDir, cause: OSError, action: str) -> None:
        super().__init__(f"{action}: {cause}")
        self.log_dir = log_dir
        self.cause = cause


@contextmanager
def blaming(log_dir: LogDir, action: str) -> Iterator[None]:
    """Turn an OSError into a CopyError that names the log directory at fault."""
    try:
        yield
    except OSError as error:
        raise CopyError(log_dir, error, action) from error


def file_sizes(segment: LogSegment) -> dict[str, int]:
    """How large each file of a segment is, by suffix; what is not in a file yet does not count."""
    return {
        LOG_SUFFIX: segment.size,
        INDEX_SUFFIX: segment.offset_index.written_bytes,
        TIME_INDEX_SUFFIX: segment.time_index.written_bytes,
        TXN_INDEX_SUFFIX: segment.txn_index.written_bytes(),
    }


class SourceCutError(OSError):
    """A file has become shorter than it was when it was decided what to copy of it."""


# What a truncation or a deletion does to a file that is being copied.
SOURCE_CHANGED: Final = (FileNotFoundError, SourceCutError)


class SegmentCopy:
    """How much of each file of a segment has been copied. Equal bytes are at equal places.

    A segment only grows at its end; if it changed otherwise it has another revision, and the copy
    is useless.
    """

    __slots__ = ("copied", "is_complete", "revision", "segment")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.revision = segment.revision
        self.copied: dict[str, int] = {}
        self.is_complete = False

    @property
    def is_current(self) -> bool:
        return self.segment.revision == self.revision

    @property
    def size_in_bytes(self) -> int:
        return self.copied.get(LOG_SUFFIX, 0)

    def missing(self) -> dict[str, int]:
        """How many bytes of each file are not copied yet; files are made even if empty."""
        sizes = file_sizes(self.segment)
        return {
            suffix: size - self.copied.get(suffix, 0)
            for suffix, size in sizes.items()
            if size > self.copied.get(suffix, 0)
            or (suffix not in self.copied and suffix != TXN_INDEX_SUFFIX)
        }


class Paths(NamedTuple):
    """A file and its copy, and the log directories that they are in."""

    source_dir: LogDir
    source: str
    target_dir: LogDir
    target: str


class Piece(Value, frozen=True):
    """A part of a file that must be copied, as a value for a background thread."""

    paths: Paths
    position: int
    length: int

    def __call__(self) -> None:
        """CopyError if it cannot be copied; FileNotFoundError if the source has been renamed,
        SourceCutError if it has been cut.
        """
        source_dir, source, target_dir, target = self.paths
        try:
            with blaming(source_dir, f"reading {source}"):
                data = _read(source_dir, source, self.length, self.position)
                modified_ms = source_dir.disk.modified_ms(source)
        except CopyError as error:
            if isinstance(error.cause, SOURCE_CHANGED):
                raise error.cause from None
            raise
        with blaming(target_dir, f"writing {target}"):
            file = target_dir.disk.open(target, create=not self.position)
            try:
                file.pwrite(data, self.position)
            finally:
                file.close()
            target_dir.disk.set_modified_ms(target, modified_ms)


def _read(log_dir: LogDir, path: str, length: int, position: int) -> bytes:
    file = log_dir.disk.open(path)
    try:
        data = file.pread(length, position)
    finally:
        file.close()
    if len(data) < length:
        raise SourceCutError(f"{path} has no {length} bytes at {position}")
    return data


def piece_of(
    copy: SegmentCopy, suffix: str, length: int, paths: tuple[LogDir, LogDir, str]
) -> Piece:
    """The next `length` bytes of a file of the segment; `paths`: source, target, its directory."""
    source_dir, target_dir, directory = paths
    segment = copy.segment
    return Piece(
        Paths(
            source_dir,
            segment_path(segment.directory, segment.base_offset, suffix),
            target_dir,
            segment_path(directory, segment.base_offset, suffix),
        ),
        copy.copied.get(suffix, 0),
        length,
    )


PIECE_BYTES: Final = 1024 * 1024
# At most so much is copied on the loop's thread in the swap: a fraction of a millisecond.
LAST_PIECE_BYTES: Final = 128 * 1024


class MoveGivenUpError(Exception):
    """The partition was deleted or moves elsewhere, a directory failed, or the broker stops."""


class ReplicaMove:
    """The move of one log into another directory.

    Invariant: until `has_swapped` the log is where it was, and what was copied can be thrown away.
    """

    def __init__(
        self,
        logs: LogManager,
        log: Log,
        target: LogDir,
        throttler: Throttler,
    ) -> None:
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
        self._original: str  # the log's own directory, known once the copying begins
        self.source: LogDir  # known when `run` begins: an earlier move may end in between

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def size_in_bytes(self) -> int:
        """How much of the log is there already."""
        return sum(copy.size_in_bytes for copy in self._copies.values())

    @property
    def end_offset(self) -> int:
        """Before this offset everything has been copied."""
        for segment in self.log.segments:
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment:
                return segment.base_offset
            if copy.size_in_bytes < segment.size:
                return segment.offset_index.lookup_before(copy.size_in_bytes, 1).offset
        return self.log.log_end_offset

    def give_up(self) -> None:
        """Throw away what was copied, unless the log is there already."""
        self._is_given_up = True
        self._throttler.wake()

    async def run(self) -> None:
        """Move; an error is logged, and counted against the directory that it came from."""
        self.source = self.log.log_dir
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

    # -- copying

    async def _copy_all(self) -> None:
        self._check()
        self._original = self.log.dir
        for attachment in self._logs.attached:
            await attachment.pause(self.topic_partition)
        await self._in_background(self._prepare)
        await self._catch_up(PIECE_BYTES)
        while not self._is_synced:
            self._is_synced = True
            self._synced_offset = self.end_offset
            await self._sync_copies()
            await self._write_checkpoints()
            await self._catch_up(LAST_PIECE_BYTES)

    def _prepare(self) -> None:
        """Make the directory and its mark; remove the mark of an earlier move of the original."""
        disk = self.target.disk
        with blaming(self.target, f"making {self._directory}"):
            disk.make_dirs(self._directory)
            disk.replace(f"{self._directory}/{MOVE_MARK}", f"{self.log.dir}\n".encode())
        with blaming(self.source, f"preparing {self.log.dir}"):
            if disk.exists(f"{self.log.dir}/{MOVE_MARK}"):
                disk.unlink(f"{self.log.dir}/{MOVE_MARK}")
                disk.fsync_dir(self.log.dir)

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
        """Sync what was copied so far, in the background."""
        epochs = self.log.leader_epoch_cache.contents()
        await self._in_background(partial(self._sync_files, epochs))

    def _sync_files(self, epochs: bytes) -> None:
        disk, directory = self.target.disk, self._directory
        with blaming(self.target, f"syncing {directory}"):
            disk.replace(f"{directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
            paths = [f"{directory}/{name}" for name in disk.list_dir(directory)]
            FlushJob(disk, [], [], paths, [directory, self.target.path])()

    # -- changing over

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

    # -- ending

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


class ReplicaMoves(LogAttachment):
    """The moves between the directories of one broker, as many at a time as it has directories."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._moves: dict[TopicPartition, ReplicaMove] = {}
        self._tasks: dict[ReplicaMove, asyncio.Task[None]] = {}
        self._wanted: dict[TopicPartition, LogDir] = {}
        self._slots = asyncio.Semaphore(max(1, len(logs.config.log_dirs)))
        self._throttler = Throttler(
            logs.runtime, logs.config.replica_alter_log_dirs_io_max_bytes_per_second
        )

    def update_config(self, config: BrokerConfig) -> None:
        """Follow a changed limit."""
        bytes_per_second = config.replica_alter_log_dirs_io_max_bytes_per_second
        if bytes_per_second != self._throttler.limit.bytes_per_second:
            self._throttler.change(bytes_per_second)

    def alter(self, topic_partition: TopicPartition, path: str) -> None:
        """Move a replica to a log directory, or let it stay there; this replaces earlier requests.

        REPLICA_NOT_AVAILABLE if it is not on this broker: then it will begin there.
        """
        target = self._find(path)
        log = self._logs.get_log(topic_partition)
        if log is None:
            self._wanted[topic_partition] = target
            raise KafkaError.of(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{topic_partition} is not on this broker; it will be made in {target.path}",
            )
        log.check_available()
        move = self._moves.get(topic_partition)
        if move is not None and move.target is target:
            return
        self.on_removal(topic_partition)
        if log.log_dir is not target:
            self._begin(log, target)

    def _find(self, path: str) -> LogDir:
        wanted = path.rstrip("/") or "/"
        for log_dir in self._logs.dirs:
            if log_dir.path == wanted:
                if log_dir.is_offline:
                    raise log_dir.offline_error()
                return log_dir
        raise KafkaError.of(
            ErrorCode.LOG_DIR_NOT_FOUND,
            f"{path} is none of log.dirs={','.join(self._logs.config.log_dirs)}",
        )

    def wanted_dir(self, topic_partition: TopicPartition) -> LogDir | None:
        """Where a new replica was asked to be; KAFKA_STORAGE_ERROR if that has failed."""
        log_dir = self._wanted.pop(topic_partition, None)
        if log_dir is not None and log_dir.is_offline:
            raise log_dir.offline_error()
        return log_dir

    # -- what is under way

    def into(self, log_dir: LogDir) -> list[ReplicaMove]:
        """The moves into a directory that are under way."""
        return [
            move for move in self._moves.values() if move.target is log_dir and not move.has_swapped
        ]

    def logs_into(self, log_dir: LogDir) -> list[Log]:
        return [move.log for move in self.into(log_dir)]

    def on_removal(self, topic_partition: TopicPartition) -> None:
        """Give up the move of a replica; one that has swapped already is brought to its end."""
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.give_up()

    def _begin(self, log: Log, target: LogDir) -> None:
        move = ReplicaMove(self._logs, log, target, self._throttler)
        before = [
            task
            for each, task in self._tasks.items()
            if each.topic_partition == log.topic_partition
        ]
        self._moves[log.topic_partition] = move
        task = self._logs.runtime.scheduler.spawn(
            self._run(move, before), f"moving {log.topic_partition}"
        )
        self._tasks[move] = task
        task.add_done_callback(partial(self._ended, move))

    async def _run(self, move: ReplicaMove, before: list[asyncio.Task[None]]) -> None:
        """Move once the moves before have ended, from wherever they left the log."""
        if before:
            await asyncio.wait(before)
        async with self._slots:
            if move.log.log_dir is not move.target:
                await move.run()

    def _ended(self, move: ReplicaMove, task: asyncio.Task[None]) -> None:
        del self._tasks[move]
        topic_partition = move.topic_partition
        if self._moves.get(topic_partition) is move:
            del self._moves[topic_partition]
        if topic_partition not in self._moves:
            for attachment in self._logs.attached:
                attachment.resume(topic_partition)
        if not self._logs.is_stopping:
            self._logs.checkpoints.write_all()  # those of the target may know the log

    # -- the broker's life

    def on_loaded(self, contents: Sequence[DirContents]) -> None:
        """Restart the moves that a stop or a crash has ended, and remove what they left."""
        for each in contents:
            self._resume(each.log_dir, each.futures)

    def _resume(self, log_dir: LogDir, futures: Mapping[str, TopicPartition]) -> None:
        logs = self._logs
        for path, topic_partition in futures.items():
            log = logs.get_log(topic_partition)
            if log is None and len(logs.live_dirs) < len(logs.dirs):
                logger.warning("%s stays: the original may be in a failed directory", path)
                continue
            logs.remove_later(path)
            if log is None or log.log_dir is log_dir:
                logger.info("Removing %s, a copy that is not needed", path)
            elif topic_partition not in self._moves:
                self._begin(log, log_dir)

    async def shutdown(self) -> None:
        """End the moves that are under way; the next start begins them again."""
        for move in self._tasks:
            move.give_up()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
