"""All logs of a broker: finding and recovering, making and deleting, and periodic work.

A broker has one or more log directories, and a partition lives wholly in one of them. The order of
a start is

    log_manager = LogManager(runtime, broker_config, topic_configs)
    log_manager.acquire()                      lock the directories, and read their owner
    log_manager.attach(cleaner, moves)         before the logs are loaded
    log_manager.claim(broker_id, cluster_id)   once the cluster id is known
    await log_manager.startup()                load the logs, begin the periodic work
    await log_manager.shutdown()               flush, checkpoint, and say that all is well
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from operator import attrgetter
from typing import Final
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log.log import Log
from ottla.log.log_dir import LogDir, MetaProperties, with_fewest_logs
from ottla.log.log_files import MOVE_MARK, deleted_dir_name, stray_dir_name
from ottla.log.log_loader import DirContents, LogLoader
from ottla.log.log_retention import retain
from ottla.log.log_truncation import (
    drops,
    producers_before,
    truncate_fully_and_start_at,
    truncate_to,
)
from ottla.log.offset_checkpoint import OffsetCheckpoint
from ottla.log.recovery import load_log, sync_recovered
from ottla.log.segment_files import remove_later
from ottla.protocol.topic_name import validate_topic_name
from ottla.runtime import Runtime, Timer
from ottla.runtime.periodic_work import PeriodicWork
from ottla.runtime.scheduler import Work, pause
from ottla.structs import NO_UUID, NamedTuple, TopicPartition

logger = logging.getLogger(__name__)


class FutureReplica(NamedTuple):
    """A replica that is on its way into another log directory, as far as it is there."""

    topic_partition: TopicPartition
    size_in_bytes: int
    offset_lag: int


class LogAttachment:
    """Work on the logs that their manager does not know: the cleaner, the moves between disks.

    Each method is a moment in the life of the manager, and does nothing unless it is overridden.
    """

    def on_loaded(self, contents: Sequence[DirContents]) -> None:
        """All logs are loaded: begin."""

    def update_config(self, config: BrokerConfig) -> None:
        """Follow the broker's changed settings."""

    def wanted_dir(self, topic_partition: TopicPartition) -> LogDir | None:
        """Where a new log belongs; KAFKA_STORAGE_ERROR if that has failed."""
        return None

    def on_removal(self, topic_partition: TopicPartition) -> None:
        """A partition leaves the broker, and its log with it."""

    def logs_into(self, log_dir: LogDir) -> Sequence[Log]:
        """The logs that are on their way into a directory."""
        return ()

    def replicas_into(self, log_dir: LogDir) -> Sequence[FutureReplica]:
        """The same, as they are described to administrators."""
        return ()

    async def pause(self, topic_partition: TopicPartition) -> None:
        """Leave a log alone until `resume`: it moves to another directory."""

    def resume(self, topic_partition: TopicPartition) -> None:
        """The log is where it stays."""

    async def shutdown(self) -> None:
        """End the work under way, before the logs are closed."""


class Checkpoints:
    """The checkpoint files of all directories, which are written in the background.

    A directory has those of its logs, and of the logs that will be in it.
    """

    def __init__(
        self,
        runtime: Runtime,
        logs_by_dir: Callable[[], list[tuple[LogDir, list[Log]]]],
        logs_to_come: Callable[[LogDir], list[Log]],
    ) -> None:
        self._runtime = runtime
        self._logs_by_dir = logs_by_dir
        self._logs_to_come = logs_to_come
        self._writes: dict[str, asyncio.Task[None]] = {}
        self._unwritten: dict[str, tuple[LogDir, OSError]] = {}

    def write_all(self) -> None:
        """Write the checkpoints of all directories."""
        self.write_recovery_points()
        self.write_log_start_offsets()
        self.write_high_watermarks()
        self.write_cleaned_offsets()

    def write_recovery_points(self) -> None:
        """Write down where in each log recovery must begin after a crash."""
        self._write("recovery_points", attrgetter("scan_point"), of_copies=False)

    def write_log_start_offsets(self) -> None:
        """Write down the start of each log that does not begin with its first segment."""
        self._write("log_start_offsets", _late_start)

    def write_high_watermarks(self) -> None:
        """Write down how far each log is committed."""
        self._write("high_watermarks", attrgetter("high_watermark"))

    def write_cleaned_offsets(self) -> None:
        """Write down how far each log is compacted."""
        self._write("cleaned_offsets", lambda log: log.cleaned_offset or None)

    def _write(
        self, name: str, offset_of: Callable[[Log], int | None], *, of_copies: bool = True
    ) -> None:
        for log_dir, logs in self._logs_by_dir():
            logs += self._logs_to_come(log_dir) if of_copies else ()
            offsets = {log.topic_partition: n for log in logs if (n := offset_of(log)) is not None}
            self._write_later(log_dir, getattr(log_dir, name), offsets)

    async def written(self, paths: Iterable[str] | None = None) -> None:
        """Wait for the checkpoints, or some of them, that are being written or about to be."""
        writes = self._writes.values() if paths is None else [self._writes[path] for path in paths]
        await asyncio.shield(asyncio.gather(*writes))

    @property
    def are_on_disk(self) -> bool:
        """Whether the last write of each has succeeded, as far as writes have ended."""
        return not self._unwritten

    def check(self, log_dir: LogDir, *checkpoints: OffsetCheckpoint) -> None:
        """Raise the OSError that the last write of one of these, or of any, has ended with."""
        for path, (failed_dir, error) in self._unwritten.items():
            if failed_dir is log_dir and (not checkpoints or path in {c.path for c in checkpoints}):
                raise error

    def check_for_cut(self, log: Log, *checkpoints: OffsetCheckpoint) -> None:
        """Raise KafkaError where a checkpoint that a truncation needs was not written."""
        try:
            self.check(log.log_dir, *checkpoints)
        except OSError as error:
            raise log.log_dir.refused(error, f"truncating {log.topic_partition}") from error

    async def lower_log_start(self, log: Log) -> None:
        """Return when a truncation's lower start of a log is on disk; KafkaError if it is not."""
        self.write_log_start_offsets()
        await self.written([log.log_dir.log_start_offsets.path])
        self.check_for_cut(log, log.log_dir.log_start_offsets)

    def give_up(self) -> None:
        """Take the directories offline whose checkpoints are older than their logs."""
        for log_dir, error in list(self._unwritten.values()):
            log_dir.fail(error)

    def _write_later(
        self, log_dir: LogDir, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]
    ) -> None:
        """Write a checkpoint in the background, after a write of it that is under way."""
        previous = self._writes.get(checkpoint.path)

        async def write() -> None:
            if previous is not None:
                await previous
            try:
                await self._runtime.background.run(lambda: checkpoint.write(offsets))
            except OSError as error:
                self._unwritten[checkpoint.path] = log_dir, error
                logger.warning("%s", log_dir.refused(error, f"writing {checkpoint.path}"))
            except Exception as error:
                logger.exception("%s cannot be written", checkpoint.path)
                self._unwritten[checkpoint.path] = log_dir, OSError(errno.EIO, repr(error))
            else:
                self._unwritten.pop(checkpoint.path, None)

        task = self._runtime.scheduler.spawn(write(), f"checkpoint {checkpoint.path}")
        self._writes[checkpoint.path] = task


def _late_start(log: Log) -> int | None:
    is_late = log.log_start_offset > log.segments.first.base_offset
    return log.log_start_offset if is_late else None


CHECKPOINT_RETRIES: Final = 5
PRODUCERS_IN_A_SLICE: Final = 50_000
CHECKPOINT_RETRY_MS: Final = 1_000


class LogManager:
    """The logs of one broker, by topic and partition."""

    def __init__(
        self,
        runtime: Runtime,
        broker_config: BrokerConfig,
        topic_configs: Callable[[str], TopicConfig],
        on_dir_failure: Callable[[LogDir], object] | None = None,
    ) -> None:
        self.runtime = runtime
        self.config = broker_config
        self._topic_configs = topic_configs
        self.dirs = [LogDir(runtime.disk, path, on_dir_failure) for path in broker_config.log_dirs]
        self._logs: dict[TopicPartition, Log] = {}
        self._unusable: dict[TopicPartition, KafkaError] = {}
        self._timers: list[Timer | PeriodicWork] = []
        self.checkpoints = Checkpoints(runtime, self._logs_by_dir, self._logs_to_come)
        self._to_lower: list[tuple[Log, int]] = []
        self._lowering: asyncio.Task[None]  # the last write before cuts, once there is one
        self._loader = LogLoader(runtime, broker_config, topic_configs)
        self.attached: list[LogAttachment] = []
        self._has_deleted = False
        self._awaiting_checkpoints: list[Callable[[], object]] = []
        self.is_stopping = False

    def attach(self, *attachments: LogAttachment) -> None:
        """Let attachments follow the logs, from `startup` on; the last one is shut down first."""
        self.attached += attachments

    @property
    def live_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.dirs if not log_dir.is_offline]

    def acquire(self) -> MetaProperties | None:
        """Lock the directories; returns their owner, or None if all are new.

        ConfigError if another broker uses one, if they do not agree, or if none can be used.
        """
        known: dict[MetaProperties, str] = {}
        for log_dir in self.dirs:
            try:
                log_dir.acquire()
                properties = log_dir.read_meta_properties()
            except OSError as error:
                log_dir.fail(error)
                continue
            if properties is not None:
                known[properties] = log_dir.path
        if not self.live_dirs:
            raise ConfigError(f"log.dirs={','.join(self.config.log_dirs)}: none can be used")
        if len(known) > 1:
            found = "; ".join(f"{path} to {properties}" for properties, path in known.items())
            raise ConfigError(f"log.dirs: the directories belong to different brokers: {found}")
        return next(iter(known), None)

    def claim(self, broker_id: int, cluster_id: str) -> None:
        """Mark the directories as this broker's; ConfigError if one is another's."""
        owner = MetaProperties(broker_id, cluster_id)
        for log_dir in self.live_dirs:
            try:
                found = log_dir.read_meta_properties()
                if found is None:
                    log_dir.write_meta_properties(owner)
            except OSError as error:
                log_dir.fail(error)
                continue
            if found not in (None, owner):
                raise ConfigError(f"log.dirs={log_dir.path}: it belongs to {found}, not to {owner}")

    async def startup(self) -> None:
        """Load every log, and start the periodic work."""
        loaded = await asyncio.gather(*map(self._loader.load, self.live_dirs))
        for contents in loaded:
            self._take_loaded(contents)
        if any((c.logs or c.deleted) and not c.was_clean for c in loaded):
            self.checkpoints.write_all()
            await self.checkpoints.written()
        if not self.live_dirs:
            raise ConfigError(f"log.dirs={','.join(self.config.log_dirs)}: none can be used")
        config, every = self.config, self.runtime.scheduler.call_every
        self._timers = [
            PeriodicWork(
                self.runtime,
                config.log_retention_check_interval_ms,
                self.delete_old_segments,
                "the retention of logs",
            ),
            every(max(1, config.log_flush_offset_checkpoint_interval_ms), self._probe_dirs),
            every(
                max(1, config.log_flush_start_offset_checkpoint_interval_ms),
                self.checkpoints.write_log_start_offsets,
            ),
            every(
                config.replica_high_watermark_checkpoint_interval_ms,
                self.checkpoints.write_high_watermarks,
            ),
            PeriodicWork(
                self.runtime,
                config.producer_id_expiration_check_interval_ms,
                self.remove_expired_producers,
                "the expiry of producers",
            ),
        ]
        for attachment in self.attached:
            attachment.on_loaded(loaded)

    def _take_loaded(self, contents: DirContents) -> None:
        self._unusable |= contents.unusable
        for path in contents.deleted:
            self.remove_later(path)
        for log in contents.logs:
            if other := self._logs.get(log.topic_partition):
                log = self._choose(log, self._take_out(other))
            self._put_in(log)

    def _choose(self, one: Log, other: Log) -> Log:
        """The log of two of a partition that reaches further; the other one is deleted.

        One has a mark: it is a copy, and the broker ended between the two renames that end a move;
        or the directory of the other was offline when it was made, maybe of a newer topic.
        """
        is_same = len({one.topic_id, other.topic_id} - {NO_UUID}) < 2
        marked = [log for log in (one, other) if log.log_dir.disk.exists(f"{log.dir}/{MOVE_MARK}")]
        if not marked or (len(marked) > 1 and not is_same):
            both = f"{one.topic_partition} is in {one.dir} and {other.dir}"
            raise ConfigError(f"log.dirs: {both}; move away the one whose directory had failed")
        # The copy, if they reach equally far; and if it is of another topic, that is the newer one.
        ranks = [(_reach(log) if is_same else (0, 0), log in marked) for log in (one, other)]
        gone, kept = (other, one) if ranks[0] > ranks[1] else (one, other)
        logger.warning("%s was in %s too; it is in %s now", one.topic_partition, gone.dir, kept.dir)
        try:
            self._delete_directory(gone)
        except KafkaError as error:
            logger.warning("%s stays: %s", gone.dir, error)
        return kept

    def get_log(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, if there is one."""
        return self._logs.get(topic_partition)

    def all_logs(self) -> Iterable[Log]:
        return list(self._logs.values())

    def get_or_create_log(
        self, topic_partition: TopicPartition, topic_id: UUID, *, is_new: bool = True
    ) -> Log:
        """The log of a partition of this topic; a new one goes where the fewest logs are.

        KAFKA_STORAGE_ERROR if the partition is not new and its log may be in a failed directory.
        INCONSISTENT_TOPIC_ID if the directory on disk is of another topic of the same name.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            offline = [log_dir.path for log_dir in self.dirs if log_dir.is_offline]
            if offline and not is_new:
                raise KafkaError.of(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the log of {topic_partition} may be in {', '.join(offline)}, which failed",
                )
            log = self._create_log(topic_partition)
        if topic_id not in (NO_UUID, log.topic_id):
            if log.topic_id != NO_UUID:
                raise KafkaError.of(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"{topic_partition}: the log has topic id {log.topic_id}, not {topic_id}",
                )
            try:
                log.set_topic_id(topic_id)
            except OSError as error:
                raise log.log_dir.refused(error, f"topic id of {topic_partition}") from error
        return log

    def _put_leftovers_away(self, topic_partition: TopicPartition) -> None:
        """Keep files in the place of a new log, which belong to none, under another name.

        It is of an older topic of that name, or of a move or deletion that has not ended.
        """
        for log_dir in self.live_dirs:
            path = log_dir.file(str(topic_partition))
            try:
                if log_dir.disk.exists(path):  # a file would be in the way as well
                    stray = log_dir.file(stray_dir_name(topic_partition, self.unique_name()))
                    log_dir.disk.rename(path, stray)
                    logger.warning("%s belongs to no log; it is kept as %s", path, stray)
            except OSError as error:
                raise log_dir.failed(error, f"creation of {topic_partition}") from error

    def _create_log(self, topic_partition: TopicPartition) -> Log:
        validate_topic_name(topic_partition.topic)
        if topic_partition in self._unusable:
            raise self._unusable[topic_partition]
        wanted = (attachment.wanted_dir(topic_partition) for attachment in self.attached)
        log_dir = next(filter(None, wanted), None) or with_fewest_logs(self.live_dirs)
        self._put_leftovers_away(topic_partition)
        source = self._loader.source(log_dir, topic_partition, is_clean=True)
        try:
            loaded = load_log(source)
            sync_recovered(loaded)
            if len(self.live_dirs) < len(self.dirs):  # the others may have an older one
                log_dir.disk.replace(f"{source.directory}/{MOVE_MARK}", b"")
        except OSError as error:
            raise self._undo_creation(log_dir, topic_partition, error) from error
        log = Log(self.runtime, log_dir, loaded, NO_UUID)
        return self._put_in(log)

    def _undo_creation(
        self, log_dir: LogDir, topic_partition: TopicPartition, error: OSError
    ) -> KafkaError:
        """Rename the files that were made of a log: that needs no file, where too many are open."""
        path = log_dir.file(str(topic_partition))
        try:
            if log_dir.disk.is_dir(path):
                gone = log_dir.file(deleted_dir_name(topic_partition, self.unique_name()))
                log_dir.disk.rename(path, gone)
                self.remove_later(gone)
        except OSError as second_error:
            log_dir.fail(second_error)
        return log_dir.refused(error, f"creation of {path}")

    def set_aside(self, log: Log, why: KafkaError) -> None:
        """Serve neither a log that was loaded nor another of its partition, before a restart."""
        log.log_dir.keep_offsets([log.topic_partition])
        self._take_out(log).close()
        self._unusable[log.topic_partition] = why

    def may_be_on_disk(self, topic_partition: TopicPartition) -> bool:
        """Whether there may be a log of the partition that is not served: it cannot be read."""
        return topic_partition in self._unusable or len(self.live_dirs) < len(self.dirs)

    def _put_in(self, log: Log) -> Log:
        self._logs[log.topic_partition] = log
        log.log_dir.log_count += 1
        return log

    def _take_out(self, log: Log) -> Log:
        del self._logs[log.topic_partition]
        log.log_dir.log_count -= 1
        return log

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Delete a partition: its directory gets another name now and goes a little later.

        KAFKA_STORAGE_ERROR if that cannot be; then the log is still there.
        """
        self._tell_removal(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None:
            log.check_available()
            self._delete_directory(log)
            self._take_out(log)
            logger.info("Deleted %s", log.dir)
        self._note_deletion()

    def put_stray_away(self, topic_partition: TopicPartition, topic_id: UUID | None) -> None:
        """Rename the directory of a topic that was deleted, or made again, while we were away.

        Its records are kept, as in Kafka, but they belong to no log of the broker.
        """
        log = self._logs.get(topic_partition)
        if log is None or NO_UUID in (topic_id, log.topic_id) or log.topic_id == topic_id:
            return
        log.check_available()
        self._tell_removal(topic_partition)
        stray = log.log_dir.file(stray_dir_name(topic_partition, self.unique_name()))
        logger.warning(
            "%s is of topic id %s, which is %s now; it is kept as %s",
            log.dir,
            log.topic_id,
            topic_id or "deleted",
            stray,
        )
        log.delete(stray, is_kept=True)
        self._take_out(log)
        self._note_deletion()

    def _tell_removal(self, topic_partition: TopicPartition) -> None:
        for attachment in self.attached:
            attachment.on_removal(topic_partition)

    def _delete_directory(self, log: Log) -> None:
        log.delete(log.log_dir.file(deleted_dir_name(log.topic_partition, self.unique_name())))

    def unique_name(self) -> str:
        """32 hexadecimal digits that no directory has in its name."""
        return f"{self.runtime.random.getrandbits(128):032x}"

    def _note_deletion(self) -> None:
        if not self._has_deleted:
            self._has_deleted = True
            self.runtime.scheduler.call_soon(self._forget_deleted)

    def _forget_deleted(self) -> None:
        """Take deleted logs out of the checkpoints, which would be applied to new ones."""
        self._has_deleted = False
        self.checkpoints.write_all()
        waiting, self._awaiting_checkpoints = self._awaiting_checkpoints, []
        self.runtime.scheduler.spawn(self._proceed_all(waiting), "deletions are noted")

    async def _proceed_all(self, waiting: list[Callable[[], object]]) -> None:
        """A full disk gets a little time: deleted files may make room."""
        await self.checkpoints.written()
        for _ in range(CHECKPOINT_RETRIES):
            if self.checkpoints.are_on_disk:
                break
            await pause(self.runtime.scheduler, CHECKPOINT_RETRY_MS)
            self.checkpoints.write_all()
            await self.checkpoints.written()
        self.checkpoints.give_up()
        for proceed in waiting:
            self.runtime.scheduler.call_soon(proceed)

    def when_deletions_are_noted(self, proceed: Callable[[], object]) -> None:
        """Call `proceed` once the checkpoints no longer hold the logs that were just deleted."""
        if self._has_deleted:
            self._awaiting_checkpoints.append(proceed)
        else:
            proceed()

    async def truncate(
        self, log: Log, offset: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Drop everything of a log from an offset on.

        First the recovery point is lowered on disk, and how far the log is compacted: after a loss
        of power, later ones would cover what was written in the place of the rest. Nothing goes if
        `is_wanted` is false by then, because this replica has meanwhile become the leader. At last
        a lowered start is on disk: a later one would cost the batches before it at the next start.
        """
        if drops(log, offset):
            before = log.log_start_offset
            await self._lower_recovery_point(log, offset)
            if is_wanted():
                producers = self.runtime.slices.begin(producers_before(log, offset))
                if isinstance(producers, Coroutine):
                    producers = await producers
                if is_wanted():
                    truncate_to(log, offset, producers)
            if log.log_start_offset < before:
                await self.checkpoints.lower_log_start(log)

    async def truncate_fully_and_start_at(
        self, log: Log, offset: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Drop a log's whole contents, in the way of `truncate`, and let it begin at an offset."""
        await self._lower_recovery_point(log, min(offset, log.log_start_offset))
        if is_wanted():
            truncate_fully_and_start_at(log, offset)

    async def _lower_recovery_point(self, log: Log, offset: int) -> None:
        if not self._to_lower:
            self._lowering = self.runtime.scheduler.spawn(self._write_lowered(), "lower recovery")
        self._to_lower.append((log, offset))
        # Shielded: cancelling one truncation must not end a write that others wait for.
        await asyncio.shield(self._lowering)
        needed = log.log_dir.recovery_points, log.log_dir.cleaned_offsets
        self.checkpoints.check_for_cut(log, *needed)

    async def _write_lowered(self) -> None:
        """Write one checkpoint for all logs that will be cut in this turn of the loop."""
        lowered, self._to_lower = self._to_lower, []
        for log, offset in lowered:
            log.flusher.truncate(offset)
            log.cleaned_offset = min(log.cleaned_offset, offset)
        self.checkpoints.write_recovery_points()
        self.checkpoints.write_cleaned_offsets()
        dirs = dict.fromkeys(log.log_dir for log, _ in lowered)
        files = [file for each in dirs for file in (each.recovery_points, each.cleaned_offsets)]
        await self.checkpoints.written([file.path for file in files])

    def remove_later(self, path: str) -> None:
        """Finish a deletion that was under way when the broker stopped, or was refused."""
        remove_later(self.runtime, path, self.config.log_segment_delete_delay_ms)

    def update_topic_config(self, topic: str) -> None:
        """Let the logs of a topic follow its changed configuration."""
        config = self._topic_configs(topic)
        for topic_partition, log in self._logs.items():
            if topic_partition.topic == topic:
                log.update_config(config)

    def update_all_configs(self, config: BrokerConfig) -> None:
        """Let every log follow the broker's changed settings."""
        self._loader.update_config(config, self._logs.values())
        for topic in {topic_partition.topic for topic_partition in self._logs}:
            self.update_topic_config(topic)
        for attachment in self.attached:
            attachment.update_config(config)

    def delete_old_segments(self) -> Work[int]:
        """Apply retention to every log, in slices; returns how many segments were deleted."""
        return retain(list(self._logs.values()), self.runtime.clock.now_ms())

    def remove_expired_producers(self) -> Work[None]:
        """Forget the producers that stopped writing long ago, in slices."""
        now_ms = self.runtime.clock.monotonic_ms()
        seen = 0
        for log in list(self._logs.values()):
            state = log.producer_state_manager
            seen += 1 + len(state.producers)
            yield from state.remove_expired(now_ms)
            if seen >= PRODUCERS_IN_A_SLICE:
                seen = 0
                yield

    def _probe_dirs(self) -> None:
        """Checkpoint the recovery points even if unchanged, to notice a broken idle disk."""
        for log_dir in self.live_dirs:
            log_dir.recovery_points.forget()
        self.checkpoints.write_recovery_points()

    def _logs_by_dir(self) -> list[tuple[LogDir, list[Log]]]:
        by_dir: dict[LogDir, list[Log]] = {log_dir: [] for log_dir in self.live_dirs}
        for log in self._logs.values():
            if log.log_dir in by_dir:
                by_dir[log.log_dir].append(log)
        return list(by_dir.items())

    def _logs_to_come(self, log_dir: LogDir) -> list[Log]:
        """The logs that will be in a directory: its checkpoints hold them already."""
        return [log for attachment in self.attached for log in attachment.logs_into(log_dir)]

    async def shutdown(self) -> None:
        """Flush every log, mark the directories as clean, and release them."""
        for timer in self._timers:
            timer.cancel()
        self.is_stopping = True
        for attachment in reversed(self.attached):
            await attachment.shutdown()
        for _, logs in self._logs_by_dir():
            await asyncio.gather(*(self._flush_for_good(log) for log in logs))
        self.checkpoints.write_all()
        await self.checkpoints.written()
        self.checkpoints.give_up()
        for log_dir in self.dirs:
            log_dir.close()

    async def _flush_for_good(self, log: Log) -> None:
        try:
            while log.flusher.is_busy:  # its job has older epochs, and may be done after the last
                log.flusher.on_flushed = (ended := asyncio.Event()).set
                await ended.wait()
            job = log.prepare_close()
            if job is not None:
                await self.runtime.background.run(job)
                log.note_flushed()
        except Exception as error:  # of any kind: the directory must not count as clean
            log.log_dir.fail(error)
        log.close()


def _reach(log: Log) -> tuple[int, int]:
    """How far a log reaches: its last epoch, and its end."""
    return log.leader_epoch_cache.latest_epoch, log.log_end_offset
