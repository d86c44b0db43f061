"""The log of one partition: a sequence of segments, appended to at the end and read anywhere.

    log start offset          high watermark   log end offset
          v                         v                v
    ......[  segment  ][  segment  ][ active segment ]
          deleted before            written after

Invariant: log start <= high watermark <= log end. Offsets below the log start may still be in the
first segment; they are not served. All methods run on the loop's thread; fsync does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.follower_append import append_as_follower
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_dir import LogDir
from ottla.log.log_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from ottla.log.log_flusher import FlushJob, LogFlusher
from ottla.log.log_results import FetchDataInfo, LogAppendInfo, info_of_duplicate, older_epoch
from ottla.log.log_retention import delete_old_segments
from ottla.log.log_segment import LogSegment
from ottla.log.log_truncation import truncate_fully_and_start_at, truncate_to
from ottla.log.log_validator import AppendOrigin, LogValidator
from ottla.log.partition_metadata import write_topic_id
from ottla.log.recovery import LoadedLog
from ottla.log.segment_deletion import delete_directory, delete_segments
from ottla.log.segments import Segments
from ottla.log.time_index import NO_TIMESTAMP
from ottla.log.txn_index import AbortedTxn
from ottla.log.txn_index_repair import rebuild_txn_indexes
from ottla.record.record_batch import RecordBatch, assign_offset
from ottla.runtime import Buffer, File, Runtime
from ottla.structs import NO_EPOCH, TopicPartition

__all__ = ["FetchDataInfo", "Log", "LogAppendInfo"]

logger = logging.getLogger(__name__)

CLIENT: Final = AppendOrigin.CLIENT

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3


class Log:
    """One partition on disk."""

    __slots__ = (
        "_flusher",
        "_roll_ms",
        "_runtime",
        "_validator",
        "cleaned_offset",
        "config",
        "dir",
        "high_watermark",
        "is_deleted",
        "leader_epoch_cache",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "on_flushed",
        "producer_state_manager",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        runtime: Runtime,
        log_dir: LogDir,
        loaded: LoadedLog,
        topic_id: UUID,
        high_watermark: int = 0,
    ) -> None:
        self._runtime = runtime
        self.log_dir = log_dir
        self.dir = loaded.source.directory
        self.topic_partition: TopicPartition = loaded.source.topic_partition
        self.topic_id = topic_id
        self.segments = loaded.segments
        self.leader_epoch_cache = loaded.leader_epoch_cache
        self.producer_state_manager = loaded.producer_state_manager
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = self.log_start_offset
        self.is_deleted = False
        # What lies before has been compacted.
        self.cleaned_offset = min(loaded.source.cleaned_offset, loaded.log_end_offset)
        self._flusher = LogFlusher(runtime, self, loaded.recovery_point, loaded.has_new_names)
        self.on_flushed: Callable[[], object] = lambda: None
        self.update_config(loaded.source.config)
        self.update_high_watermark(high_watermark)

    def __repr__(self) -> str:
        return f"Log({self.dir}, offsets {self.log_start_offset}-{self.log_end_offset})"

    def update_config(self, config: TopicConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self.config = config
        self._validator = LogValidator(config)
        self._roll_ms = config.segment_ms
        if "compact" in config.cleanup_policy:  # which leaves the active segment alone
            self._roll_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        self.segments.active.index_interval_bytes = config.index_interval_bytes

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes()

    @property
    def recovery_point(self) -> int:
        """The offset before which everything is on disk for sure."""
        return self._flusher.recovery_point

    @property
    def scan_point(self) -> int:
        """Where recovery has to begin: in the first segment that was not closed and flushed."""
        return min(self._flusher.recovery_point, self._flusher.closed_point)

    def update_high_watermark(self, offset: int) -> None:
        """Set the high watermark, within the bounds of the log."""
        self.high_watermark = max(self.log_start_offset, min(offset, self.log_end_offset))

    @property
    def last_stable_offset(self) -> int:
        """How far committed records can be told from others: before it no transaction is open."""
        producers = self.producer_state_manager
        if not producers.ongoing_txns and not producers.unreplicated_txns:
            return self.high_watermark
        producers.on_high_watermark(self.high_watermark)
        unstable = producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def awaits_flush(self, offset: int) -> bool:
        """Whether the record at `offset` is on its way to disk, because a flush was asked for."""
        return self._flusher.awaits(offset)

    @property
    def safe_end_offset(self) -> int:
        """The end of what no flush is waited for: replicas say that they have nothing beyond it."""
        return self._flusher.safe_end_offset

    @property
    def is_available(self) -> bool:
        return not self.is_deleted and not self.log_dir.is_offline

    def check_available(self) -> None:
        if self.is_deleted:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} has been deleted"
            )
        if self.log_dir.is_offline:
            raise self.log_dir.offline_error()

    # -- appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one batch: check it, stamp offset and epoch in place, and write it in one call.

        Raises KafkaError with the code for the producer, and then nothing was appended.
        """
        if self.is_deleted or self.log_dir.is_offline:
            self.check_available()
        epochs = self.leader_epoch_cache
        if NO_EPOCH < leader_epoch < epochs.latest_epoch:
            raise older_epoch(self.topic_partition, leader_epoch, epochs.latest_epoch)
        batch, max_timestamp_ms, append_time_ms = self._validator.validate(records, now_ms, origin)
        if batch.producer_id >= 0:
            if origin is not CLIENT:
                self.producer_state_manager.check_coordinator(batch)
            elif (duplicate := self.producer_state_manager.check(batch)) is not None:
                is_append_time = self._validator.is_log_append_time
                awaits_flush = self._flusher.awaits(duplicate.last_offset)
                return info_of_duplicate(
                    duplicate, batch, self.log_start_offset, is_append_time, awaits_flush
                )
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        data = batch.buffer
        segment = self.segment_for(len(data), last_offset, max_timestamp_ms, now_ms)
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

    def append_as_follower(self, records: Buffer, leader_epoch: int, *, now_ms: int) -> int:
        """Append the whole batches that the leader of an epoch has sent; returns their size."""
        return append_as_follower(self, records, leader_epoch, now_ms)

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

    # -- rolling

    def segment_for(
        self, added_bytes: int, last_offset: int, timestamp_ms: int, now_ms: int
    ) -> LogSegment:
        """The active segment, a new one if the batch is too large, late or far off for it."""
        segment = self.segments.active
        size = segment.size
        if size and (
            size > self._validator.segment_bytes - added_bytes
            or segment.is_due(timestamp_ms, now_ms, self._roll_ms)
            or segment.is_full
            or not segment.fits(last_offset)
        ):
            self.roll()
        return self.segments.active

    def has_room(
        self, segment: LogSegment, added_bytes: int, batch: RecordBatch, now_ms: int
    ) -> bool:
        """Whether a segment takes so many bytes, of which `batch` is the last, without a roll."""
        return (
            segment.size <= self._validator.segment_bytes - added_bytes
            and segment.fits(batch.last_offset)
            and not segment.is_due(batch.max_timestamp, now_ms, self._roll_ms)
        )

    def roll(self) -> None:
        """Close the active segment and begin a new one at the log's end, unless it is empty."""
        self.check_available()
        active = self.segments.active
        if not active.size and active.base_offset == self.log_end_offset:
            return
        segment = self.segment_at(self.log_end_offset)
        try:
            active.become_inactive()
            segment.create()
            self._take_snapshot()
        except OSError as error:
            self._undo_roll(segment)
            raise self.log_dir.failed(error, f"roll of {self.topic_partition}") from error
        self.segments = Segments([*self.segments, segment])
        self.flush(segment.base_offset)

    def segment_at(self, base_offset: int) -> LogSegment:
        runtime, config = self._runtime, self.config
        now_ms = runtime.clock.now_ms()
        segment = LogSegment(runtime.disk, self.dir, base_offset, config, now_ms)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        segment.roll_jitter_ms = runtime.random.randrange(jitter_ms) if jitter_ms else 0
        return segment

    def _undo_roll(self, segment: LogSegment) -> None:
        """The next append goes into the old segment: a newer one would hide it after a restart."""
        try:
            segment.remove()
        except OSError as error:
            self.log_dir.fail(error)

    def _take_snapshot(self) -> None:
        offset = self.log_end_offset
        self.producer_state_manager.take_snapshot(offset)
        self._flusher.note_new_file(self.producer_state_manager.snapshot_path(offset))

    # -- reading

    def read(
        self, start_offset: int, max_bytes: int, *, max_offset: int, min_one_message: bool
    ) -> FetchDataInfo:
        """The batches from `start_offset` on, up to `max_offset`, without touching their bytes.

        They come from one segment and are whole. OFFSET_OUT_OF_RANGE before the log's start or
        behind its end; nothing is read at the end itself.
        """
        if self.is_deleted or self.log_dir.is_offline:
            self.check_available()
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {start_offset} is not within "
                f"{self.log_start_offset} and {self.log_end_offset}",
            )
        max_offset = min(max_offset, self.log_end_offset)
        if start_offset >= max_offset or (max_bytes <= 0 and not min_one_message):
            return FetchDataInfo(start_offset)
        try:
            return self._read(start_offset, max_bytes, max_offset, min_one_message)
        except OSError as error:
            raise self.log_dir.failed(error, f"read of {self.topic_partition}") from error

    def _read(
        self, start_offset: int, max_bytes: int, max_offset: int, min_one_message: bool
    ) -> FetchDataInfo:
        segments = self.segments
        index = len(segments) - 1
        if start_offset < segments.active.base_offset:
            index = segments.index_of(start_offset)
        while index < len(segments) and segments.base_offsets[index] < max_offset:
            segment = segments.items[index]
            end_position = segment.size
            if max_offset < segments.end_offset(index, self.log_end_offset):
                border = segment.position_of(max_offset)
                end_position = segment.size if border is None else border
            records, is_incomplete = segment.read(
                start_offset, max_bytes, end_position, min_one_message
            )
            if records is not None or is_incomplete:
                return FetchDataInfo(start_offset, records, is_incomplete)
            index += 1  # compaction has left nothing of this segment from the offset on
        return FetchDataInfo(start_offset)

    def aborted_transactions(self, data: FetchDataInfo, max_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that have records in what was read, up to an offset."""
        try:
            return self.segments.aborted_transactions(data.fetch_offset, data.records, max_offset)
        except CorruptIndexError:
            rebuild_txn_indexes(self, data.fetch_offset)
            return self.segments.aborted_transactions(data.fetch_offset, data.records, max_offset)
        except OSError as error:
            raise self.log_dir.failed(error, f"read of {self.topic_partition}") from error

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """Timestamp, offset and epoch of the first record as late as a time; None if none is.

        -1 asks for the log's end, -2 for its start (timestamp -1 both), -3 for the first of the
        records with the largest timestamp.
        """
        self.check_available()
        epochs = self.leader_epoch_cache
        if timestamp_ms == LATEST_TIMESTAMP:
            return NO_TIMESTAMP, self.log_end_offset, epochs.latest_epoch
        if timestamp_ms == EARLIEST_TIMESTAMP:
            return NO_TIMESTAMP, self.log_start_offset, epochs.epoch_for(self.log_start_offset)
        try:
            if timestamp_ms == MAX_TIMESTAMP:
                return self.segments.latest_record(self.log_start_offset)
            if timestamp_ms < 0:
                return None
            return self.segments.search_time(timestamp_ms, self.log_start_offset)
        except OSError as error:
            raise self.log_dir.failed(error, f"read of {self.topic_partition}") from error

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

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete the segments that retention does not keep, and say how many they were."""
        return delete_old_segments(self, now_ms) if self.is_available else 0

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
        self.dir, self.log_dir = directory, log_dir
        self.producer_state_manager.directory = directory
        self.leader_epoch_cache.relocate(f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        self._flusher.relocate(synced_offset)
        files = [segment.move_to(directory) for segment in self.segments]
        return [file for file in files if file is not None]

    def truncate_to(self, offset: int) -> None:
        """Drop everything from an offset on; a batch that holds it goes as a whole."""
        truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on with an empty log at an offset."""
        truncate_fully_and_start_at(self, offset)

    def sync_directory(self) -> None:
        """Have the names of the files that are there now on disk."""
        self._runtime.disk.fsync_dir(self.dir)

    # -- getting to disk, and ending

    def flush(self, up_to: int | None = None) -> None:
        """Have everything before an offset, or all there is, forced to disk in the background."""
        self._flusher.flush(self.log_end_offset if up_to is None else up_to)

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
            self._take_snapshot()
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
