"""All logs of the first design that a broker has: made, appended to, flushed and shortened.

They have a directory of their own, with a lock, a checkpoint up to where each log is known to be
on disk, and the mark of a clean stop, as each of today's log directories has
(`ottla.log.log_dir`). Sizes and ages of files are those of the broker's settings for today's logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.first_design.byte_log import (
    ByteLog,
    ByteSegment,
    TornAppendError,
    directory_name,
    load_log,
    parse_directory,
)
from ottla.extensions.first_design.copied_ids import CopiedId, CopiedIds
from ottla.log.flush_job import FlushJob, FsyncError
from ottla.log.log_dir import LogDir
from ottla.log.log_files import MAX_NAME_BYTES
from ottla.protocol.topic_name import validate_topic_name
from ottla.runtime import Buffer, FileRegion, Runtime, Timer
from ottla.runtime.periodic_work import PeriodicWork
from ottla.runtime.scheduler import Work
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

logger = logging.getLogger(__name__)

MAX_LOGS: Final = 2_000
"""Any client makes partitions by sending to them, and each keeps a file open for a while."""
UNUSED_MS: Final = 600_000
LOGS_AT_ONCE: Final = 100
COPIED_IDS: Final = "copied-id-checkpoint"
FIRST_POSITION: Final = 0

OnFlushed = Callable[[ByteLog], object]
OnCreated = Callable[[str], object]


class ByteLogs:
    """The logs by partition. After a failed write or fsync that cannot be undone it is offline.

    `on_flushed` hears of each log with more messages for readers, `on_created` of each new topic.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self.log_dir = LogDir(runtime.disk, config.first_design_log_dir)
        self.logs: dict[TopicPartition, ByteLog] = {}
        self.on_flushed: list[OnFlushed] = []
        self.on_created: OnCreated = lambda topic: None
        self.copied: dict[TopicPartition, CopiedId] = {}
        """Up to where each log is copied into a topic of today, where any is."""
        self._runtime = runtime
        self._config = config
        self._counts: dict[str, int] = {}
        self._is_stopped = False
        self._timers: list[Timer | PeriodicWork] = []
        self._writing: asyncio.Task[None] | None = None
        self._copied_ids = CopiedIds(runtime.disk, self.log_dir.file(COPIED_IDS))

    # From the start to the end

    async def start(self) -> None:
        """Take the directory over, and mend the logs in it; where it does not work, it is offline.

        Raises:
            ConfigError: another process has the directory.
        """
        try:
            self.log_dir.acquire()
            await self._runtime.background.run(self._load)
        except (OSError, FsyncError) as error:
            self.log_dir.fail(error)
        runtime, config = self._runtime, self._config
        call_every = runtime.scheduler.call_every
        self._timers = [
            call_every(config.first_design_flush_interval_ms, self.flush_due),
            call_every(config.log_flush_offset_checkpoint_interval_ms or 1, self.write_checkpoint),
            PeriodicWork(
                runtime, config.log_retention_check_interval_ms, self.retain, "old byte logs"
            ),
        ]

    def _load(self) -> None:
        """Load all logs, in the background: nothing else uses them yet."""
        log_dir, now_ms = self.log_dir, self._runtime.clock.now_ms()
        points = log_dir.read_offsets(log_dir.recovery_points) or {}
        self.copied = self._copied_ids.read()
        is_clean = log_dir.is_clean
        for name in log_dir.disk.list_dir(log_dir.path):
            path = log_dir.file(name)
            topic_partition = parse_directory(name)
            if topic_partition is None or not log_dir.disk.is_dir(path):
                continue
            point = None if is_clean else points.get(topic_partition, 0)
            self._add(load_log(log_dir.disk, topic_partition, path, now_ms, point))
        log_dir.mark_in_use()
        log_dir.disk.fsync_dir(log_dir.path)

    def _add(self, log: ByteLog) -> None:
        self.logs[log.topic_partition] = log
        topic, partition = log.topic_partition
        least = max(self._counts.get(topic, 0), partition + 1)
        self._counts[topic] = max(least, self._config.num_partitions)

    async def stop(self) -> None:
        """Force all to disk, and leave the mark of a clean stop: nothing is appended after it."""
        self._is_stopped = True
        self._cancel_timers()
        log_dir = self.log_dir
        if self._writing is not None:
            await self._writing
        try:
            if not log_dir.is_offline:
                await self._runtime.background.run(self._flush_all)
        except (OSError, FsyncError) as error:
            log_dir.fail(error)

    def close(self) -> None:
        """Close the files, and release the directory; nothing is written."""
        self._cancel_timers()
        for log in self.logs.values():
            log.close()
        self.log_dir.release()

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _flush_all(self) -> None:
        now_ms = self._runtime.clock.now_ms()
        for log in self.logs.values():
            up_to, count = log.end, log.unflushed_count
            log.flush_job(self.log_dir.path, now_ms)()
            log.note_flushed(up_to, count)
        self._write(self._points(), self.copied)
        self.log_dir.mark_clean()

    # Partitions

    @property
    def topics(self) -> list[str]:
        return list(self._counts)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, or would have after its first message."""
        return self._counts.get(topic, self._config.num_partitions)

    def check(self, topic: str, partition: int) -> TopicPartition:
        """The partition; KafkaError where it cannot be, or where nothing is served any longer."""
        if self.log_dir.is_offline:
            raise self.log_dir.offline_error()
        if self._is_stopped:
            raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops")
        if topic not in self._counts:
            validate_topic_name(topic)
        if not 0 <= partition < self.partition_count(topic):
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {partition} of {topic}: it has {self.partition_count(topic)}",
            )
        return TopicPartition(topic, partition)

    def _get_or_create(self, topic_partition: TopicPartition) -> ByteLog:
        """The log, which is made if it is not there."""
        log = self.logs.get(topic_partition)
        if log is not None:
            return log
        name = directory_name(topic_partition)
        if len(name) > MAX_NAME_BYTES or len(self.logs) >= MAX_LOGS:
            raise KafkaError.of(
                ErrorCode.POLICY_VIOLATION,
                f"{name[:MAX_NAME_BYTES]} is not made: a name has {MAX_NAME_BYTES} bytes at most, "
                f"and a broker {MAX_LOGS} partitions of the first design",
            )
        now_ms = self._runtime.clock.now_ms()
        log = load_log(self.log_dir.disk, topic_partition, self.log_dir.file(name), now_ms, None)
        is_new = topic_partition.topic not in self._counts
        self._add(log)
        if is_new:
            self.on_created(topic_partition.topic)
        return log

    # Messages

    def append(self, topic_partition: TopicPartition, messages: Buffer, count: int) -> None:
        """Append messages that were checked.

        Raises:
            KafkaError: they are not in the log, for which KAFKA_STORAGE_ERROR says why.
        """
        self.check(*topic_partition)  # again: it was checked in an earlier turn of the loop
        config, now_ms = self._config, self._runtime.clock.now_ms()
        what = f"append to {directory_name(topic_partition)}"
        try:
            log = self._get_or_create(topic_partition)
            if log.must_roll(config.log_segment_bytes, config.log_roll_ms, now_ms):
                log.roll(now_ms)
            log.append(messages, count, now_ms)
        except OSError as error:
            raise self.log_dir.refused(error, what) from error
        except TornAppendError as error:
            self.log_dir.fail(error)
            raise self.log_dir.offline_error() from error
        if log.unflushed_count >= config.first_design_flush_interval_messages:
            self.flush(log)

    def read(self, topic_partition: TopicPartition, position: int, size: int) -> FileRegion | None:
        """Bytes of a partition, as `ByteLog.read`; without messages it begins and ends at 0."""
        log = self.logs.get(topic_partition)
        if log is None and position == FIRST_POSITION:
            return None
        if log is None:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{directory_name(topic_partition)} has no messages, and {position} is asked for",
            )
        try:
            return log.read(position, size, self._runtime.clock.now_ms())
        except OSError as error:
            what = f"read of {directory_name(topic_partition)}"
            raise self.log_dir.refused(error, what) from error

    def offsets_before(self, wanted: TopicPartition, time_ms: int, most: int) -> list[int]:
        """Where reading may begin, as `ByteLog.offsets_before`."""
        log = self.logs.get(wanted)
        if log is not None:
            return log.offsets_before(time_ms, most, self._runtime.clock.now_ms())
        return (
            [FIRST_POSITION]
            if time_ms in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) and most > 0
            else []
        )

    # Forcing to disk

    def flush_due(self) -> None:
        """Force the logs to disk whose oldest new message is old enough."""
        for log in self.logs.values():
            if log.unflushed_count or log.has_new_names:
                self.flush(log)

    def flush(self, log: ByteLog) -> None:
        """Force a log to disk, in the background; later appends wait for the next flush."""
        if log.is_flushing or self.log_dir.is_offline:
            return
        up_to, count = log.end, log.unflushed_count
        try:
            job = log.flush_job(self.log_dir.path, self._runtime.clock.now_ms())
        except OSError as error:
            self._fail_to_flush(log, error)
            return
        log.is_flushing = True
        self._runtime.background.submit(
            job, lambda _: self._on_flushed(log, up_to, count), partial(self._fail_to_flush, log)
        )

    def _on_flushed(self, log: ByteLog, up_to: int, count: int) -> None:
        log.is_flushing = False
        log.note_flushed(up_to, count)
        for tell in self.on_flushed:
            tell(log)
        if log.unflushed_count >= self._config.first_design_flush_interval_messages:
            self.flush(log)

    def _fail_to_flush(self, log: ByteLog, error: BaseException) -> None:
        """A failed fsync is the end; where none could be tried, the next turn tries again."""
        log.is_flushing = False
        log.has_new_names = True
        if isinstance(error, OSError):
            self.log_dir.refused(error, f"flush of {directory_name(log.topic_partition)}")
            logger.warning("%s is not flushed: %s", log.directory, error)
        else:
            self.log_dir.fail(error)

    def _points(self) -> dict[TopicPartition, int]:
        return {each.topic_partition: each.flushed for each in self.logs.values()}

    def write_checkpoint(self) -> None:
        """Write up to where each log is on disk, where recovery begins, and copied.

        One at a time: of two that replace a file at once the second would find its data moved.
        """
        if not self.log_dir.is_offline and (self._writing is None or self._writing.done()):
            write = partial(self._write, self._points(), dict(self.copied))
            self._writing = self._runtime.scheduler.spawn(self._checkpoint(write), "checkpoint")

    async def _checkpoint(self, write: Callable[[], None]) -> None:
        try:
            await self._runtime.background.run(write)
        except (OSError, FsyncError) as error:
            self._fail_to_write(error)

    def _write(
        self, points: dict[TopicPartition, int], copied: dict[TopicPartition, CopiedId]
    ) -> None:
        self.log_dir.recovery_points.write(points)
        if copied:
            self._copied_ids.write(copied)

    def _fail_to_write(self, error: BaseException) -> None:
        """Recovery would read more: the last checkpoint is still there."""
        logger.warning("%s: no new checkpoint: %s", self.log_dir.path, error)
        if isinstance(error, OSError):
            self.log_dir.refused(error, "checkpoint")

    # Deleting

    def retain(self) -> Work[None]:
        """Delete the files that retention does not keep, and close those that nobody uses."""
        config = self._config
        for number, log in enumerate([*self.logs.values()]):
            now_ms = self._runtime.clock.now_ms()
            log.close_unused(now_ms - UNUSED_MS)
            gone = log.breached(config.log_retention_ms, config.log_retention_bytes, now_ms)
            if gone and not self.log_dir.is_offline:
                self._delete(log, gone, now_ms)
            if number % LOGS_AT_ONCE == LOGS_AT_ONCE - 1:
                yield

    def _delete(self, log: ByteLog, gone: list[ByteSegment], now_ms: int) -> None:
        """Show them to no reader; delete them when the name of the file behind them is on disk.

        Otherwise a crash could leave none, and ids would begin again at 0.
        """
        try:
            if len(gone) == len(log.segments):
                log.roll(now_ms)
        except OSError as error:
            self.log_dir.refused(error, f"retention of {log.directory}")
            return
        log.drop(gone)
        names = ", ".join(each.path for each in gone)
        logger.info("%s: retention deletes %s", directory_name(log.topic_partition), names)
        sync = FlushJob(log.disk, [], [], [], [log.directory])

        def delete() -> None:
            sync()
            for segment in gone:
                log.disk.unlink(segment.path)

        def close(_: object) -> None:
            for segment in gone:  # answers that are on their way still read it
                self._runtime.scheduler.call_later(
                    self._config.log_segment_delete_delay_ms, segment.close
                )

        self._runtime.background.submit(delete, close, partial(self._fail_to_delete, gone))

    def _fail_to_delete(self, gone: list[ByteSegment], error: BaseException) -> None:
        """The files that are left are found at the next start, and deleted then."""
        for segment in gone:
            segment.close()
        if isinstance(error, OSError):
            self.log_dir.refused(error, "retention")
            logger.warning("retention could not delete all files: %s", error)
        else:
            self.log_dir.fail(error)
