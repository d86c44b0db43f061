"""The log of one partition: a sequence of segments, appended to at the end and read anywhere.

`Log` appends as a leader; below it, the begin of its segments. Readers see the half in
`readable_log`; flushes, recovery, retention and the cleaner have files of their own.

All methods run on the loop's thread; fsync does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.flush_job import FlushJob
from ottla.log.log_dir import LogDir, write_topic_id
from ottla.log.log_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.log.log_flusher import LogFlusher
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
from ottla.runtime import File, Runtime
from ottla.structs import NO_EPOCH, NO_OFFSET

__all__ = ["FetchDataInfo", "Log", "LogAppendInfo"]

CLIENT: Final = AppendOrigin.CLIENT


class Log(ReadableLog):
    """One partition on disk."""

    __slots__ = ("_runtime", "_validator", "cleaned_offset", "config", "flusher", "roller")

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
        self.flusher = LogFlusher(runtime, self, loaded.recovery_point, loaded.has_new_names)
        self.roller = LogRoller(runtime, self)
        self.update_config(loaded.source.config)
        self.update_high_watermark(high_watermark)

    def update_config(self, config: TopicConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self.config = config
        self._validator = LogValidator(config)
        self.flusher.update_config(config)
        self.roller.update_config(config)
        self.segments.active.index_interval_bytes = config.index_interval_bytes

    @property
    def recovery_point(self) -> int:
        """The offset before which everything is on disk for sure."""
        return self.flusher.recovery_point

    @property
    def scan_point(self) -> int:
        """Where recovery has to begin: in the first segment that was not closed and flushed."""
        return min(self.flusher.recovery_point, self.flusher.closed_point)

    @property
    def safe_end_offset(self) -> int:
        """The end of the records that await no flush: a replica claims nothing beyond it."""
        flusher = self.flusher
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
                awaits_flush = self.flusher.awaits(duplicate.last_offset)
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
            self._note_producer(segment, batch, base_offset, max_timestamp_ms)
        flusher = self.flusher
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
        self, segment: LogSegment, batch: RecordBatch, base_offset: int, max_timestamp_ms: int
    ) -> None:
        if not batch.is_control:
            self.producer_state_manager.append(batch, base_offset, max_timestamp_ms)
            return
        self.producer_state_manager.on_high_watermark(self.high_watermark)
        aborted = self.producer_state_manager.replay(RecordBatch(batch.buffer))
        if aborted is not None:
            self.note_aborted(segment, aborted)

    def note_aborted(self, segment: LogSegment, aborted: AbortedTxn) -> None:
        """Index an aborted transaction, for readers of committed records, where its marker is."""
        try:
            segment.txn_index.append(aborted)
        except OSError as error:  # readers would be shown an aborted transaction
            raise self.log_dir.failed(error, f"append to {self.topic_partition}") from error

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

    def relocate(self, log_dir: LogDir, directory: str, synced_offset: int) -> list[File]:
        """Continue with equal files elsewhere; returns the old ones, which may still be read."""
        self.log_dir.log_count -= 1
        log_dir.log_count += 1
        self.dir, self.log_dir = directory, log_dir
        self.producer_state_manager.directory = directory
        self.leader_epoch_cache.relocate(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.flusher.relocate(synced_offset)
        files = [segment.move_to(directory) for segment in self.segments]
        return [file for file in files if file is not None]

    def sync_directory(self) -> None:
        """Force the names of the present files to disk."""
        self._runtime.disk.fsync_dir(self.dir)

    def flush(self, up_to: int | None = None) -> None:
        """Force everything before an offset, or all there is, to disk in the background."""
        self.flusher.flush(self.log_end_offset if up_to is None else up_to)

    def take_snapshot(self, offset: int) -> None:
        """Write down the state of the producers at the log's end, for a segment that begins there.

        The segment may begin behind a gap.
        """
        self.producer_state_manager.take_snapshot(offset)
        self.flusher.note_new_file(self.producer_state_manager.snapshot_path(offset))

    def set_topic_id(self, topic_id: UUID) -> None:
        """Write down which topic the directory belongs to."""
        path = f"{self.dir}/{PARTITION_METADATA}"
        write_topic_id(self._runtime.disk, path, topic_id)
        self.flusher.note_new_file(path)
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
            self.flusher.job(self.log_end_offset, is_last=True) if self.flusher.is_needed else None
        )

    def note_flushed(self) -> None:
        """The job of `prepare_close` has succeeded."""
        self.flusher.recovery_point = self.flusher.closed_point = self.log_end_offset

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


class LogRoller:
    """Gives a log the segment that the next batch goes into.

    A new segment is begun before a batch that would make the active one larger than segment.bytes,
    that comes later than segment.ms after its first batch (max.compaction.lag.ms on a compacted
    topic, since the active segment is never compacted), that does not fit into its index, or whose
    offset cannot be written relative to its base offset.
    """

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
        self, added_bytes: int, base_offset: int, last_offset: int, timestamp_ms: int, now_ms: int
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
