"""The half of a log that readers see: where it begins and ends, its stable part, and its records.

    log start offset          high watermark   log end offset
          v                         v                v
    ......[  segment  ][  segment  ][ active segment ]
          deleted before            written after

Invariant: log start <= high watermark <= log end. Offsets below the log start may still be in the
first segment; they are not served.
"""

from __future__ import annotations

import errno
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_dir import LogDir
from ottla.log.log_results import FetchDataInfo
from ottla.log.recovery import LoadedLog, rebuild_txn_indexes
from ottla.log.time_search import TimedOffset, latest_record, search_time
from ottla.log.transaction_index import AbortedTxn
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.runtime import FileRegion
from ottla.runtime.scheduler import Work
from ottla.structs import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TopicPartition,
)

# At most so many batches without records are skipped in one read, so that the loop is not held for
# long. Each segment counts as BATCHES_PER_SEGMENT more, because its file may have to be opened.
MAX_SKIPPED_BATCHES = 16_384
BATCHES_PER_SEGMENT: Final = 16


class ReadableLog:
    """One partition on disk, as far as reading goes; `Log` writes to it."""

    __slots__ = (
        "dir",
        "high_watermark",
        "is_deleted",
        "leader_epoch_cache",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "producer_state_manager",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, log_dir: LogDir, loaded: LoadedLog, topic_id: UUID) -> None:
        self.log_dir = log_dir
        self.dir = loaded.source.directory
        self.topic_partition: TopicPartition = loaded.source.topic_partition
        self.topic_id = topic_id
        self.segments = loaded.segments
        self.leader_epoch_cache = loaded.leader_epoch_cache
        self.producer_state_manager = loaded.producer_state_manager
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.is_deleted = False

    def __repr__(self) -> str:
        return f"Log({self.dir}, offsets {self.log_start_offset}-{self.log_end_offset})"

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes()

    def update_high_watermark(self, offset: int) -> None:
        """Set the high watermark, within the bounds of the log."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        self.high_watermark = offset if offset > self.log_start_offset else self.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the part whose transactions have ended: before it no transaction is open."""
        producers = self.producer_state_manager
        if not producers.ongoing_txns and not producers.unreplicated_txns:
            return self.high_watermark
        producers.on_high_watermark(self.high_watermark)
        unstable = producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        # A transaction whose beginning was deleted has no records before the log's start.
        return min(max(unstable, self.log_start_offset), self.high_watermark)

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

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_offset: int,
        min_one_message: bool,
        skips_empty: bool = False,
    ) -> FetchDataInfo:
        """The batches from `start_offset` on, up to `max_offset`, without touching their bytes.

        They come from one segment and are whole. OFFSET_OUT_OF_RANGE before the log's start or
        behind its end; nothing is read at the end itself.

        With `skips_empty`, as for consumers, batches without records are skipped where the answer
        would hold nothing else: librdkafka takes such an answer for a record that did not fit.
        Where no records follow, the last of these batches comes alone and takes the reader to the
        end.
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
            return self._read(start_offset, max_bytes, max_offset, min_one_message, skips_empty)
        except OSError as error:
            raise self.log_dir.refused(error, f"read of {self.topic_partition}") from error

    def _read(
        self,
        start_offset: int,
        max_bytes: int,
        max_offset: int,
        min_one_message: bool,
        skips_empty: bool,
    ) -> FetchDataInfo:
        segments = self.segments
        base_offsets = segments.base_offsets
        index, count = len(base_offsets) - 1, len(base_offsets)
        if start_offset < base_offsets[-1]:
            index = segments.index_of(start_offset)
        last_empty: FileRegion | None = None
        room = MAX_SKIPPED_BATCHES
        while index < count and base_offsets[index] < max_offset and room > 0:
            segment = segments.items[index]
            end_position = segment.size
            if end_position and max_offset < segments.end_offset(index, self.log_end_offset):
                border = segment.position_of(max_offset)
                end_position = segment.size if border is None else border
            index += 1
            if not end_position:
                continue  # compaction has left nothing of this segment
            records, is_incomplete = segment.read(
                start_offset, max_bytes, end_position, min_one_message
            )
            if records is None and not is_incomplete:
                continue
            if records is None or not skips_empty or records.size % BATCH_OVERHEAD:
                is_cut = (
                    records is None
                    or records.position + records.size < end_position
                    or (index < count and base_offsets[index] < max_offset)
                )
                return FetchDataInfo(start_offset, records, is_cut)
            # The size is that of bare headers: maybe none of these batches has records.
            position, batch = segment.skip_empty(records.position, end_position, room)
            if position == records.position and batch.record_count:
                return FetchDataInfo(start_offset, records)
            if batch.record_count:
                found = segment.read(batch.base_offset, max_bytes, end_position, min_one_message)
                return FetchDataInfo(start_offset, *found)
            last_empty = FileRegion(records.file, position, BATCH_OVERHEAD)
            room -= (position - records.position) // BATCH_OVERHEAD + BATCHES_PER_SEGMENT
        return FetchDataInfo(start_offset, last_empty)

    def aborted_transactions(self, data: FetchDataInfo, max_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in a read, up to an offset."""
        segments, start_offset = self.segments, data.fetch_offset
        try:
            try:
                return segments.aborted_transactions(start_offset, data.records, max_offset)
            except CorruptIndexError:
                producers = self.producer_state_manager
                rebuild_txn_indexes(self.log_dir, segments, producers, start_offset)
                return segments.aborted_transactions(start_offset, data.records, max_offset)
        except OSError as error:
            raise self.log_dir.refused(error, f"read of {self.topic_partition}") from error

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> Work[TimedOffset | None]:
        """The first record at or after a time; None if none is. It may take work in slices.

        -1 asks for the log's end, -2 for its start (both with timestamp -1), -3 for the first of
        the records with the largest timestamp.
        """
        self.check_available()
        epochs = self.leader_epoch_cache
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimedOffset(NO_TIMESTAMP, self.log_end_offset, epochs.latest_epoch)
        if timestamp_ms == EARLIEST_TIMESTAMP:
            start = self.log_start_offset
            return TimedOffset(NO_TIMESTAMP, start, epochs.epoch_for(start))
        if timestamp_ms == MAX_TIMESTAMP:
            return (yield from self._search(latest_record(self.segments, self.log_start_offset)))
        if timestamp_ms < 0:
            return None
        search = search_time(self.segments, timestamp_ms, self.log_start_offset)
        return (yield from self._search(search))

    def _search(self, search: Work[TimedOffset | None]) -> Work[TimedOffset | None]:
        """Search in slices; a log that others have moved, cleaned or cut meanwhile ends it."""
        while True:
            try:
                next(search)
            except StopIteration as end:
                found: TimedOffset | None = end.value
                return found
            except OSError as error:
                if error.errno == errno.EBADF:  # closed in a pause, as its segment was replaced
                    raise self._changed() from error
                raise self.log_dir.refused(error, f"read of {self.topic_partition}") from error
            before = self.dir, self.segments.first, self.log_end_offset
            yield
            self.check_available()
            if before[:2] != (self.dir, self.segments.first) or self.log_end_offset < before[2]:
                raise self._changed()

    def _changed(self) -> KafkaError:
        text = f"{self.topic_partition} has changed while it was searched"
        return KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
