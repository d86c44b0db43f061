"""The log of one partition: a sequence of segments, appended to at the end and read anywhere.

`Log` appends as a leader; below it, its flushes and the begin of its segments. Readers see the
half in `readable_log`; recovery, retention and the cleaner have files of their own.

All methods run on the loop's thread; fsync does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.config.config_type import LONG_MAX
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.flush_job import FlushJob
from ottla.log.log_dir import LogDir, write_topic_id
from ottla.log.log_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.log.log_results import FetchDataInfo, LogAppendInfo, info_of_duplicate, older_epoch
from ottla.log.log_segment import LogSegment
from ottla.log.log_validator import AppendOrigin, LogValidator, ValidBatch
from ottla.log.offset_index import MAX_OFFSET, MAX_RELATIVE_OFFSET
from ottla.log.readable_log import ReadableLog
from ottla.log.recovery import LoadedLog
from ottla.log.segment_files import delete_directory, delete_segments
from ottla.log.segments import Segments
from ottla.log.transaction_index import AbortedTxn
from ottla.record.record_batch import RecordBatch, assign_offset
from ottla.runtime import File, Runtime, Timer
from ottla.structs import NO_EPOCH, NO_OFFSET

__all__ = ["FetchDataInfo", "Log", "LogAppendInfo"]

logger = logging.getLogger(__name__)


class CleaningAbortedError(Exception):
    """The log was truncated, shortened or deleted, or the broker stops, while it was cleaned.

    A new segment is begun before a batch that would make the active one larger than segment.bytes,
    that comes later than segment.ms after its first batch (max.compaction.lag.ms on a compacted
    topic, since the active segment is never compacted), that does not fit into its index, or whose
    offset cannot be written relative to its base offset.
    """


CLIENT: Final = AppendOrigin.CLIENT


class Log(ReadableLog):
    """One partition on disk."""

    __slots__ = (
        "_flusher",
        "_runtime",
        "_validator",
        "cleaned_offset",
        "config",
        "on_flushed",
        "roller",
    )

    def __init__(
        self,
        runtime: Runtime,
        log_dir: LogDir,
        loaded: LoadedLog,
        topic_id: UUID,
        high_watermark: int = 0,
    ) -> None:
        super().__init__(log_dir, loaded, topic_id)
        self._runtime = runtime
        # Everything before this offset has been compacted.
        self.cleaned_offset = min(loaded.source.cleaned_offset, loaded.log_end_offset)
        self._flusher = LogFlusher(runtime, self, loaded.recovery_point, loaded.has_new_names)
        self.on_flushed: Callable[[], object] = lambda: None
        self.roller = LogRoller(runtime, self)
        self.update_config(loaded.source.config)
        self.update_high_watermark(high_watermark)

    def update_config(self, config: TopicConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self.config = config
        self._validator = LogValidator(config)
        self.roller.update_config(config)
        self.segments.active.index_interval_bytes = config.index_interval_bytes

    @property
    def recovery_point(self) -> int:
        """The offset before which everything is on disk for sure."""
        return self._flusher.recovery_point

    @property
    def scan_point(self) -> int:
        """Where recovery has to begin: in the first segment that was not closed and flushed."""
        return min(self._flusher.recovery_point, self._flusher.closed_point)

    def awaits_flush(self, offset: int) -> bool:
        """Whether the record at `offset` is on its way to disk, because a flush was asked for."""
        return self._flusher.awaits(offset)

    @property
    def safe_end_offset(self) -> int:
        """The end of the records that await no flush: a replica claims nothing beyond it."""
        flusher = self._flusher
        if flusher.wanted <= flusher.recovery_point:  # asked with every append
            return self.log_end_offset
        return flusher.safe_end_offset

    def append_as_leader(
        self,
        records: memoryview | ValidBatch,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        refused_end: int = NO_OFFSET,
    ) -> LogAppendInfo:
        """Append one batch: check it, stamp offset and epoch in place, and write it in one call.

        `refused_end` is where the log ended when batches were refused a short while ago.
        Raises KafkaError with the code for the producer, and LargeBatchError for a batch that takes
        too long to check here; nothing was appended then. A batch that `LargeBatches` has checked
        may be given in place of the bytes.
        """
        if self.is_deleted or self.log_dir.is_offline:
            self.check_available()
        epochs = self.leader_epoch_cache
        if NO_EPOCH < leader_epoch < epochs.latest_epoch:
            raise older_epoch(self.topic_partition, leader_epoch, epochs.latest_epoch)
        if not isinstance(records, tuple):
            records = self._validator.validate(records, now_ms, origin)
        batch, max_timestamp_ms, append_time_ms = records
        if batch.producer_id >= 0:
            if origin is not CLIENT:
                self.producer_state_manager.check_coordinator(batch)
            elif (duplicate := self.producer_state_manager.check(batch, refused_end)) is not None:
                is_append_time = self._validator.is_log_append_time
                awaits_flush = self._flusher.awaits(duplicate.last_offset)
                return info_of_duplicate(
                    duplicate, batch, self.log_start_offset, is_append_time, awaits_flush
                )
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        data, roller = batch.buffer, self.roller
        segment = roller.segment_for(len(data), base_offset, last_offset, max_timestamp_ms, now_ms)
        assign_offset(data, 0, base_offset, leader_epoch)
        try:
            segment.append(data, base_offset, last_offset, max_timestamp_ms)
        except OSError as error:
            raise self.write_failed(segment, error) from error
        self.log_end_offset = last_offset + 1
        if leader_epoch > epochs.latest_epoch:
            epochs.assign(leader_epoch, base_offset)
        if batch.producer_id >= 0:
            self._note_producer(segment, batch, base_offset, max_timestamp_ms, now_ms)
        flusher = self._flusher
        flusher.flush_if_due()
        return LogAppendInfo(
            base_offset,
            last_offset,
            max_timestamp_ms,
            append_time_ms,
            self.log_start_offset,
            batch.record_count,
            len(data),
            False,
            flusher.wanted > flusher.recovery_point and flusher.awaits(last_offset),
        )

    def _note_producer(
        self,
        segment: LogSegment,
        batch: RecordBatch,
        base_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
    ) -> None:
        if not batch.is_control:
            self.producer_state_manager.append(batch, base_offset, max_timestamp_ms, now_ms)
            return
        self.producer_state_manager.on_high_watermark(self.high_watermark)
        aborted = self.producer_state_manager.replay(RecordBatch(batch.buffer), now_ms)
        if aborted is not None:
            self.note_aborted(segment, aborted)

    def note_aborted(self, segment: LogSegment, aborted: AbortedTxn) -> None:
        """Index an aborted transaction, for readers of committed records, where its marker is."""
        try:
            segment.txn_index.append(aborted)
        except OSError as error:  # readers would be shown an aborted transaction
            raise self.log_dir.failed(error, f"append to {self.topic_partition}") from error

    def flush_if_due(self) -> None:
        """After an append: begin the flush that the settings ask for."""
        self._flusher.flush_if_due()

    def write_failed(self, segment: LogSegment, error: OSError) -> KafkaError:
        """Cut off the remains of a failed write; if that fails, take the directory offline."""
        try:
            segment.file.truncate(segment.size)
        except OSError as second_error:
            self.log_dir.fail(second_error)
        return self.log_dir.refused(error, f"append to {self.topic_partition}")

    def maybe_increment_log_start_offset(self, offset: int) -> None:
        """Serve nothing before an offset, which must not be above the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: log start {offset} would be above the high watermark "
                f"{self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self._start_at(offset)

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        self.leader_epoch_cache.truncate_from_start(offset)

    def remove_segments(self, gone: Sequence[LogSegment]) -> None:
        """Delete some segments, but not all, from the log; it then starts at the first one left."""
        kept, _ = self.segments.split(lambda segment: segment not in gone)
        try:
            delete_segments(self._runtime, gone, self.config.file_delete_delay_ms)
            self.segments = Segments(kept)
            bases = {segment.base_offset for segment in gone} - set(self.segments.base_offsets)
            self.producer_state_manager.delete_snapshots(bases.__contains__)
        except OSError as error:
            raise self.log_dir.failed(error, f"deletion in {self.topic_partition}") from error
        if self.segments.first.base_offset > self.log_start_offset:
            self._start_at(self.segments.first.base_offset)

    def lower_recovery_point(self, offset: int) -> None:
        """Lower the recovery point to an offset."""
        self._flusher.truncate(offset)

    def relocate(self, log_dir: LogDir, directory: str, synced_offset: int) -> list[File]:
        """Continue with equal files elsewhere; returns the old ones, which may still be read."""
        self.log_dir.log_count -= 1
        log_dir.log_count += 1
        self.dir, self.log_dir = directory, log_dir
        self.producer_state_manager.directory = directory
        self.leader_epoch_cache.relocate(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._flusher.relocate(synced_offset)
        files = [segment.move_to(directory) for segment in self.segments]
        return [file for file in files if file is not None]

    def sync_directory(self) -> None:
        """Force the names of the present files to disk."""
        self._runtime.disk.fsync_dir(self.dir)

    def flush(self, up_to: int | None = None) -> None:
        """Force everything before an offset, or all there is, to disk in the background."""
        self._flusher.flush(self.log_end_offset if up_to is None else up_to)

    def take_snapshot(self, offset: int) -> None:
        """Write down the state of the producers at the log's end, for a segment that begins there.

        The segment may begin behind a gap.
        """
        self.producer_state_manager.take_snapshot(offset)
        self._flusher.note_new_file(self.producer_state_manager.snapshot_path(offset))

    def set_topic_id(self, topic_id: UUID) -> None:
        """Write down which topic the directory belongs to."""
        path = f"{self.dir}/{PARTITION_METADATA}"
        write_topic_id(self._runtime.disk, path, topic_id)
        self._flusher.note_new_file(path)
        self.topic_id = topic_id

    def release_memory(self) -> None:
        """Free the indexes of closed segments; they are read again when needed."""
        for segment in self.segments.items[:-1]:
            segment.release_indexes()

    def prepare_close(self) -> FlushJob | None:
        """Write all state for a clean stop; the job brings it to disk. None if it is on disk."""
        self.segments.active.become_inactive()
        if (self.producer_state_manager.latest_snapshot_offset or 0) != self.log_end_offset:
            self.take_snapshot(self.log_end_offset)
        return (
            self._flusher.job(self.log_end_offset, is_last=True)
            if self._flusher.is_needed
            else None
        )

    def note_flushed(self) -> None:
        """The job of `prepare_close` has succeeded."""
        self._flusher.recovery_point = self._flusher.closed_point = self.log_end_offset

    def close(self) -> None:
        """Close the files; the log is no longer used."""
        for segment in self.segments:
            segment.close()

    def delete(self, deleted_dir: str, *, is_kept: bool = False) -> None:
        """Rename the directory; its files are closed later, and removed unless `is_kept`."""
        delay_ms, runtime = self.config.file_delete_delay_ms, self._runtime
        try:
            delete_directory(runtime, self.dir, deleted_dir, delay_ms, self.close, is_kept=is_kept)
        except OSError as error:
            raise self.log_dir.failed(error, f"deletion of {self.topic_partition}") from error
        self.is_deleted = True


FLUSH_RETRY_MS: Final = 1_000


class LogFlusher:
    """Flushes one log, one job at a time; requests of the meantime go into the next one.

    `recovery_point` is the offset before which all batches are on disk for sure: it moves when an
    fsync has succeeded and not before. An fsync that fails takes the log directory offline.
    `closed_point` is the base offset of a segment before which the indexes are on disk, too.
    """

    __slots__ = (
        "_generation",
        "_has_new_names",
        "_is_busy",
        "_log",
        "_retry_timer",
        "_runtime",
        "_timer",
        "_unsynced_paths",
        "closed_point",
        "recovery_point",
        "wanted",
    )

    def __init__(
        self, runtime: Runtime, log: Log, recovery_point: int, has_new_names: bool = True
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._is_busy = False
        self._generation = 0
        self.wanted = recovery_point
        """What was asked to be brought to disk ends here."""
        self._has_new_names = has_new_names
        self._unsynced_paths: list[str] = []
        self.recovery_point = recovery_point
        self.closed_point = log.segments.active.base_offset

    def note_new_file(self, path: str) -> None:
        """A file was made that the next flush has to sync as well."""
        self._unsynced_paths.append(path)
        self._has_new_names = True

    def flush_if_due(self) -> None:
        """After an append: apply flush.messages, which its answer waits for, and flush.ms."""
        log = self._log
        config = log.config
        if log.log_end_offset - self.recovery_point >= config.flush_messages:
            self.flush(log.log_end_offset)
        elif config.flush_ms < LONG_MAX and self._timer is None:
            self._timer = self._runtime.scheduler.call_later(config.flush_ms, self._on_timer)

    def flush(self, up_to: int) -> None:
        """Bring everything before `up_to` to disk soon."""
        self.wanted = max(self.wanted, up_to)
        if not self._is_busy and self._is_wanted and self._log.is_available:
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
        if self._log.config.flush_messages < LONG_MAX:
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
            self._is_busy = False
            if log_dir.on_flush is not None:
                log_dir.on_flush(clock.monotonic_ms() - began_ms)
            if generation == self._generation:
                self.recovery_point = max(self.recovery_point, up_to)
                self.closed_point = max(self.closed_point, closed_point)
            self.flush(self.wanted)
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
        """Count nothing of the job as on disk; a full disk may have room at the next flush.

        That comes by itself: those that wait for this one need not append anything before it is
        done.
        """
        log = self._log
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
        log.on_flushed()

    def _retry_later(self) -> None:
        if self._retry_timer is None and self._log.is_available:
            call_later = self._runtime.scheduler.call_later
            self._retry_timer = call_later(FLUSH_RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.flush(self.wanted)


class LogRoller:
    """Gives a log the segment that the next batch goes into."""

    __slots__ = ("_log", "_roll_ms", "_runtime", "_segment_bytes")

    def __init__(self, runtime: Runtime, log: Log) -> None:
        self._runtime = runtime
        self._log = log

    def update_config(self, config: TopicConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self._segment_bytes = config.segment_bytes
        self._roll_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            self._roll_ms = min(config.segment_ms, config.max_compaction_lag_ms)

    def segment_for(
        self,
        added_bytes: int,
        base_offset: int,
        last_offset: int,
        timestamp_ms: int,
        now_ms: int,
    ) -> LogSegment:
        """The active segment, or a new one if the batch is too large, late or far off for it."""
        log = self._log
        if last_offset >= MAX_OFFSET:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{log.topic_partition}: no offset is left"
            )
        segment = log.segments.active
        size = segment.size
        if size:
            is_due = (
                size > self._segment_bytes - added_bytes
                or segment.offset_index.is_full
                or segment.time_index.is_full
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or segment.is_due(timestamp_ms, now_ms, self._roll_ms)
            )
        elif base_offset < segment.base_offset and len(log.segments) > 1:
            # The batch that it was begun for could not be written, and another one comes.
            self._drop_active()
            return self.segment_for(added_bytes, base_offset, last_offset, timestamp_ms, now_ms)
        else:
            is_due = last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        if is_due:
            # A compacted log may have a wider gap here than one segment can hold (KAFKA-4451).
            is_far = last_offset - log.log_end_offset > MAX_RELATIVE_OFFSET
            self.roll(base_offset if is_far else log.log_end_offset)
            return log.segments.active
        return segment

    def has_room(
        self, segment: LogSegment, added_bytes: int, batch: RecordBatch, now_ms: int
    ) -> bool:
        """Whether a segment has room for so many bytes, which end with `batch`, without a roll."""
        return (
            segment.size <= self._segment_bytes - added_bytes
            and segment.fits(batch.last_offset)
            and not segment.is_due(batch.max_timestamp, now_ms, self._roll_ms)
        )

    def roll(self, base_offset: int | None = None) -> None:
        """Close the active segment and begin a new one, unless it is empty.

        It begins at the log's end, or at an offset behind that.
        """
        log = self._log
        log.check_available()
        active = log.segments.active
        if base_offset is None:
            base_offset = log.log_end_offset
        if not active.size and active.base_offset == base_offset:
            return
        segment = self.segment_at(base_offset)
        try:
            active.become_inactive()
            segment.create()
            log.take_snapshot(base_offset)
        except OSError as error:
            self._undo(segment)
            raise log.log_dir.refused(error, f"roll of {log.topic_partition}") from error
        log.segments = Segments([*log.segments, segment])
        log.flush(log.log_end_offset)

    def _drop_active(self) -> None:
        """Go back to the segment before the active one, which is empty."""
        log = self._log
        try:
            log.segments.active.remove()
            log.segments = Segments(log.segments.items[:-1])
            log.producer_state_manager.delete_snapshots(lambda each: each > log.log_end_offset)
        except OSError as error:
            raise log.log_dir.failed(error, f"roll of {log.topic_partition}") from error

    def segment_at(self, base_offset: int) -> LogSegment:
        """A segment with the settings of the topic; its files are not there yet."""
        runtime, config = self._runtime, self._log.config
        now_ms = runtime.clock.now_ms()
        segment = LogSegment(runtime.disk, self._log.dir, base_offset, config, now_ms)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        segment.roll_jitter_ms = runtime.random.randrange(jitter_ms) if jitter_ms else 0
        return segment

    def _undo(self, segment: LogSegment) -> None:
        """Remove the new segment: after a restart it would hide the next batches of the old one."""
        try:
            segment.remove()
        except OSError as error:
            self._log.log_dir.fail(error)
