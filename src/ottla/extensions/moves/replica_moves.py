"""The moves of replicas between the log directories of one broker.

After a restart a move starts again from its beginning: the directory of its copy shows that it was
asked for (KIP-113). For a partition that is not on this broker yet, the directory is remembered
until the broker stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.replica_move import SUCCESSOR_MARK, ReplicaMove, unmark
from ottla.log.log import Log
from ottla.log.log_dir import LogDir
from ottla.log.log_files import MOVE_MARK
from ottla.log.log_loader import DirContents
from ottla.log.log_manager import FutureReplica, LogAttachment, LogManager
from ottla.log.throttler import Throttler
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


@contextmanager
def failing(log_dir: LogDir) -> Iterator[None]:
    """Take a directory offline where the disk refuses something."""
    try:
        yield
    except OSError as error:
        log_dir.fail(error)


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

    def into(self, log_dir: LogDir) -> list[ReplicaMove]:
        """The moves into a directory that are under way."""
        return [
            move for move in self._moves.values() if move.target is log_dir and not move.has_swapped
        ]

    def logs_into(self, log_dir: LogDir) -> list[Log]:
        return [move.log for move in self.into(log_dir)]

    def replicas_into(self, log_dir: LogDir) -> list[FutureReplica]:
        return [
            FutureReplica(
                move.topic_partition,
                move.size_in_bytes,
                max(0, move.log.log_end_offset - move.end_offset),
            )
            for move in self.into(log_dir)
        ]

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

    def on_loaded(self, contents: Sequence[DirContents]) -> None:
        """Restart the moves that a stop or a crash has ended, and remove their remains."""
        if len(self._logs.dirs) > 1:
            unusable = {each.log_dir.path: each.unusable.keys() for each in contents}
            for log in self._logs.all_logs():
                self._check_successor(log, unusable)
            if len(self._logs.live_dirs) == len(self._logs.dirs):
                self._unmark_copies()
        for each in contents:
            self._resume(each.log_dir, each.futures)

    def _check_successor(
        self, log: Log, unusable: Mapping[str, Collection[TopicPartition]]
    ) -> None:
        """Serve the original of a move only where it has not gone on in what cannot be read.

        That is a directory that failed, or one of the `unusable` logs of a directory.
        """
        disk, mark = log.log_dir.disk, f"{log.dir}/{SUCCESSOR_MARK}"
        offline = {log_dir.path for log_dir in self._logs.dirs if log_dir.is_offline}
        with failing(log.log_dir):
            if not disk.exists(mark):
                return
            target = disk.read_bytes(mark).decode()
            if target not in offline and log.topic_partition not in unusable.get(target, ()):
                disk.unlink(mark)
                return
            why = f"the log of {log.topic_partition} may have gone on in {target}, which failed"
            logger.error("%s is not served: %s", log.dir, why)
            self._logs.set_aside(log, KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, why))

    def _unmark_copies(self) -> None:
        """Let each log be the only one of its partition: no directory is away that has another."""
        logs = [log for log in self._logs.all_logs() if not log.log_dir.is_offline]
        marked: list[Log] = []
        for log in logs:
            with failing(log.log_dir):
                if log.log_dir.disk.exists(f"{log.dir}/{MOVE_MARK}"):
                    marked.append(log)
        for log_dir in self._logs.dirs if marked else ():  # that the others are gone
            with failing(log_dir):
                log_dir.disk.fsync_dir(log_dir.path)
        if len(self._logs.live_dirs) == len(self._logs.dirs):
            for log in marked:
                with failing(log.log_dir):
                    unmark(log.log_dir.disk, log.dir, MOVE_MARK)

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
