"""The log of one partition: a sequence of segments, appended to at the end and read anywhere.

Every subject has a file of its own:

    reading, look-up   log_reading: the half of a log that readers see
    appending          here, as a leader; follower_append
    rolling            log_rolling
    getting to disk    log_flusher; after a crash recovery
    shortening         log_retention and log_truncation; cleaner/ compacts

All methods run on the loop's thread; fsync does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.indexes.txn_index import AbortedTxn
from ottla.log.log_dir import LogDir
from ottla.log.log_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.log.log_flusher import FlushJob, LogFlusher
from ottla.log.log_reading import ReadableLog
from ottla.log.log_results import FetchDataInfo, LogAppendInfo, info_of_duplicate, older_epoch
from ottla.log.log_rolling import LogRoller
from ottla.log.log_segment import LogSegment
from ottla.log.log_validator import AppendOrigin, LogValidator, ValidBatch
from ottla.log.partition_metadata import write_topic_id
from ottla.log.producers.producer_state import NO_OFFSET
from ottla.log.recovery import LoadedLog
from ottla.log.segment_deletion import delete_directory, delete_segments
from ottla.log.segments import Segments
from ottla.record.record_batch import RecordBatch, assign_offset
from ottla.runtime import File, Runtime
from ottla.structs import NO_EPOCH

__all__ = ["FetchDataInfo", "Log", "LogAppendInfo"]

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
        # What lies before has been compacted.
        self.cleaned_offset = min(loaded.source.cleaned_offset, loaded.log_end_offset)
        self._flusher = LogFlusher(runtime, self, loaded.recovery_point, loaded.has_new_names)
        self.on_flushed: Callable[[], object] = lambda: None
        self.roller = LogRoller(runtime, self, loaded.source.config)
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
        """The end of what no flush is waited for: replicas say that they have nothing beyond it."""
        return self._flusher.safe_end_offset

    # -- appending

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

        `refused_end` says where the log ended when batches were refused a short while ago.
        Raises KafkaError with the code for the producer, and LargeBatchError for what takes too
        long to be checked here; nothing was appended then. What `LargeBatches` has checked may be
        given in place of the bytes.
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
        data = batch.buffer
        segment = self.roller.segment_for(len(data), last_offset, max_timestamp_ms, now_ms)
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
        self._flusher.flush_if_due()
        return LogAppendInfo(
            base_offset,
            last_offset,
            max_timestamp_ms,
            append_time_ms,
            self.log_start_offset,
            batch.record_count,
            len(data),
            awaits_flush=self._flusher.awaits(last_offset),
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
        """Let readers of committed records know of a transaction whose marker is in a segment."""
        try:
            segment.txn_index.append(aborted)
        except OSError as error:  # readers would be shown an aborted transaction
            self.log_dir.fail(error)

    def flush_if_due(self) -> None:
        """After an append: begin the flush that the settings ask for."""
        self._flusher.flush_if_due()

    def write_failed(self, segment: LogSegment, error: OSError) -> KafkaError:
        """Cut off what a write that failed has left behind; if that fails too, the disk is gone."""
        try:
            segment.file.truncate(segment.size)
        except OSError as second_error:
            self.log_dir.fail(second_error)
        return self.log_dir.failed(error, f"append to {self.topic_partition}")

    # -- shortening

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
        """Take segments, but not all, out of the log; the log starts at what is left."""
        kept, _ = self.segments.split(lambda segment: segment not in gone)
        self.segments = Segments(kept)
        try:
            delete_segments(self._runtime, gone, self.config.file_delete_delay_ms)
            bases = {segment.base_offset for segment in gone} - set(self.segments.base_offsets)
            self.producer_state_manager.delete_snapshots(bases.__contains__)
        except OSError as error:
            raise self.log_dir.failed(error, f"deletion in {self.topic_partition}") from error
        if self.segments.first.base_offset > self.log_start_offset:
            self._start_at(self.segments.first.base_offset)

    def lower_recovery_point(self, offset: int) -> None:
        """Take back that what lies behind an offset is on disk."""
        self._flusher.truncate(offset)

    def relocate(self, log_dir: LogDir, directory: str, synced_offset: int) -> list[File]:
        """Go on with equal files elsewhere; returns the old ones, which may still be read from."""
        self.log_dir.log_count -= 1
        log_dir.log_count += 1
        self.dir, self.log_dir = directory, log_dir
        self.producer_state_manager.directory = directory
        self.leader_epoch_cache.relocate(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._flusher.relocate(synced_offset)
        files = [segment.move_to(directory) for segment in self.segments]
        return [file for file in files if file is not None]

    def sync_directory(self) -> None:
        """Have the names of the files that are there now on disk."""
        self._runtime.disk.fsync_dir(self.dir)

    # -- getting to disk, and ending

    def flush(self, up_to: int | None = None) -> None:
        """Have everything before an offset, or all there is, forced to disk in the background."""
        self._flusher.flush(self.log_end_offset if up_to is None else up_to)

    def take_snapshot(self) -> None:
        """Write down the state of the producers at the log's end."""
        offset = self.log_end_offset
        self.producer_state_manager.take_snapshot(offset)
        self._flusher.note_new_file(self.producer_state_manager.snapshot_path(offset))

    def set_topic_id(self, topic_id: UUID) -> None:
        """Write down which topic the directory belongs to."""
        path = f"{self.dir}/{PARTITION_METADATA}"
        write_topic_id(self._runtime.disk, path, topic_id)
        self._flusher.note_new_file(path)
        self.topic_id = topic_id

    def release_memory(self) -> None:
        """Give back the indexes of closed segments; they are read again when needed."""
        for segment in self.segments.items[:-1]:
            segment.release_indexes()

    def prepare_close(self) -> FlushJob | None:
        """Write all state for a clean stop; the job brings it to disk. None if it is there."""
        self.segments.active.become_inactive()
        if (self.producer_state_manager.latest_snapshot_offset or 0) != self.log_end_offset:
            self.take_snapshot()
        return (
            self._flusher.job(self.log_end_offset, is_last=True)
            if self._flusher.is_needed
            else None
        )

    def note_flushed(self) -> None:
        """The job of `prepare_close` has succeeded."""
        self._flusher.recovery_point = self._flusher.closed_point = self.log_end_offset

    def close(self) -> None:
        """Close the files; the log is not used any more."""
        for segment in self.segments:
            segment.close()

    def delete(self, deleted_dir: str, *, is_kept: bool = False) -> None:
        """Give the directory another name; its files are closed later, and go if not kept."""
        self.is_deleted = True
        delay_ms, runtime = self.config.file_delete_delay_ms, self._runtime
        try:
            delete_directory(runtime, self.dir, deleted_dir, delay_ms, self.close, is_kept=is_kept)
        except OSError as error:
            raise self.log_dir.failed(error, f"deletion of {self.topic_partition}") from error
