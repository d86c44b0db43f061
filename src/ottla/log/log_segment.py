"""One segment of a log: a file of record batches, and the indexes beside it.

A segment is named by its base offset: no record in it has a smaller one, and none in the segment
before has one as large. Batches lie in the file as the producers packed them. Only the newest
segment of a log, the active one, is written to, at its end and nowhere else.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ottla.config.topic_config import TopicConfig
from ottla.log.file_batches import BATCH_READ_BYTES, read_headers
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from ottla.log.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex, OffsetPosition
from ottla.log.recent_batches import RecentBatches
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.record.record_batch import CorruptRecordError, RecordBatch
from ottla.runtime import Buffer, Disk, File, FileRegion
from ottla.structs import NO_TIMESTAMP

logger = logging.getLogger(__name__)

MAX_READ_HINTS: Final = 64


class LogSegment:
    """A file of batches with its indexes. Invariant: `size` ends with the last whole batch.

    `created_ms` is when it was begun or, after a start, last written to; `has_warned` says that a
    record of the future was reported. `max_timestamp_ms` and `offset_of_max_timestamp` are of the
    batch with the largest timestamp.
    `revision` grows when the files are changed other than by appending.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_hints",
        "_is_index_rebuilt",
        "base_offset",
        "bytes_since_last_index_entry",
        "created_ms",
        "directory",
        "first_timestamp_ms",
        "has_warned",
        "index_interval_bytes",
        "max_timestamp_ms",
        "offset_index",
        "offset_of_max_timestamp",
        "recent",
        "revision",
        "roll_jitter_ms",
        "size",
        "suffix",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, config: TopicConfig, now_ms: int
    ) -> None:
        def path(suffix: str) -> str:
            return segment_path(directory, base_offset, suffix)

        self._disk = disk
        self.suffix = ""
        self._file: File | None = None
        self._hints: dict[int, int] = {}
        self._is_index_rebuilt = False
        self.directory = directory
        self.base_offset = base_offset
        self.index_interval_bytes = config.index_interval_bytes
        self.created_ms = now_ms
        self.roll_jitter_ms = 0
        self.has_warned = False
        self.revision = 0
        limit = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, path(INDEX_SUFFIX), base_offset, limit)
        self.time_index = TimeIndex(disk, path(TIME_INDEX_SUFFIX), base_offset, limit)
        self.txn_index = TransactionIndex(disk, path(TXN_INDEX_SUFFIX), base_offset)
        self.size = 0
        self.recent = RecentBatches()
        self.bytes_since_last_index_entry = 0
        self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset

    def __repr__(self) -> str:
        return f"LogSegment({self.path}, size={self.size})"

    @property
    def path(self) -> str:
        return segment_path(self.directory, self.base_offset, LOG_SUFFIX + self.suffix)

    @property
    def file(self) -> File:
        """The file of batches, opened when first needed."""
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    @property
    def is_full(self) -> bool:
        """Whether an index has no room for another entry."""
        return self.offset_index.is_full or self.time_index.is_full

    def fits(self, offset: int) -> bool:
        """Whether an offset can be written relative to the base offset, in 31 bits."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp; if the records have none, when the file was last written to."""
        if self.max_timestamp_ms >= 0:
            return self.max_timestamp_ms
        return self._disk.modified_ms(self.path)

    def is_due(self, timestamp_ms: int, now_ms: int, segment_ms: int) -> bool:
        """Whether it has been written to for segment.ms, by its records' time or the clock."""
        if self.first_timestamp_ms >= 0 and timestamp_ms >= 0:
            age_ms = timestamp_ms - self.first_timestamp_ms
        else:
            age_ms = now_ms - self.created_ms
        return age_ms > segment_ms - self.roll_jitter_ms

    def create(self) -> None:
        """Make the files of an empty segment."""
        self._file = self._disk.open(self.path, create=True)
        if self._file.size():
            self._file.truncate(0)
        self.offset_index.create()
        self.time_index.create()

    def append(
        self, data: Buffer, base_offset: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Write one batch at the end; after an OSError the segment is as it was before."""
        size = len(data)
        if self.bytes_since_last_index_entry > self.index_interval_bytes:
            self.load_indexes()
        file = self._file or self.file
        file.pwrite(data, self.size)
        self.add_batch(size, base_offset, last_offset, max_timestamp_ms)

    def load_indexes(self) -> None:
        """Have the indexes in memory: once a batch is written, indexing it needs no disk."""
        self.offset_index.raw_entries()
        self.time_index.raw_entries()

    def add_batch(
        self, size: int, base_offset: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Count and index a batch that lies at the end of the file."""
        position = self.size
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.offset_of_max_timestamp = last_offset
        if not position:
            self.first_timestamp_ms = max_timestamp_ms
        elif self.bytes_since_last_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.offset_of_max_timestamp)
            self.bytes_since_last_index_entry = 0
        self.bytes_since_last_index_entry += size
        self.recent.append(base_offset, last_offset, position)
        self.size = position + size

    def write_indexes(self) -> None:
        """Bring the files of the indexes up to date."""
        self.offset_index.write_out()
        self.time_index.write_out()

    def become_inactive(self) -> None:
        """No batch will follow, and the time index must end with the largest timestamp."""
        self.time_index.maybe_append(self.max_timestamp_ms, self.offset_of_max_timestamp)
        self.write_indexes()

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all behind it."""
        position = self.position_of(offset)
        if position is None or position == self.size:
            return
        self.truncate_bytes(position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.load_tail()

    def truncate_bytes(self, size: int) -> None:
        """Cut the file; the indexes are left for the caller to mend."""
        self.revision += 1
        self.file.truncate(size)
        self.size = size
        self.recent.truncate(size)
        self._hints.clear()

    def open(self) -> None:
        """Take the files as they are; CorruptIndexError if the size of an index cannot be right."""
        self.size = self._disk.file_size(self.path)
        self.offset_index.open()
        self.time_index.open()
        self.max_timestamp_ms, self.offset_of_max_timestamp = self.time_index.last_entry()

    def load_tail(self) -> None:
        """Work out the state of the end: timestamps, and bytes since the last index entry."""
        entry = self.offset_index.last_entry()
        latest = self.time_index.last_entry()
        self.bytes_since_last_index_entry = self.size - entry.position
        self.max_timestamp_ms, self.offset_of_max_timestamp = latest
        for _, batch in self.headers_from(min(entry.offset, latest.offset)):
            if batch.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = batch.max_timestamp
                self.offset_of_max_timestamp = batch.last_offset
        self.first_timestamp_ms = self._read_first_timestamp()

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the headers of the batches."""
        end = self.size
        try:
            self.reset()
            for _, batch in read_headers(self.file, 0, end, BATCH_READ_BYTES):
                self.add_batch(
                    batch.size_in_bytes, batch.base_offset, batch.last_offset, batch.max_timestamp
                )
        finally:
            if self.size != end:  # the log itself is damaged: only the part before that is known
                self.recent.truncate(0)
                self.size = end

    def reset(self) -> None:
        """Forget everything but the file, whose batches are about to be added again."""
        self.revision += 1
        self.size = 0
        self.recent.truncate(0)
        self._hints.clear()
        self.bytes_since_last_index_entry = 0
        self.first_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.offset_index.create()
        self.time_index.create()

    def _read_first_timestamp(self) -> int:
        for _, batch in read_headers(self.file, 0, self.size):
            return batch.max_timestamp
        return NO_TIMESTAMP

    def position_of(self, offset: int) -> int | None:
        """Where the batch that holds `offset`, or the next one, begins; None behind the last."""
        if offset >= self.recent.start_offset:
            return self.recent.position_of(offset)
        position = self._hints.get(offset)
        return self._search(offset) if position is None else position

    def _search(self, offset: int) -> int | None:
        """`position_of` by the index.

        A sequential reader waits for no disk read: the batch that it has just read is in the page
        cache, and the wanted batch begins where that one ends.
        """
        for position, batch in self.headers_from(offset):
            if batch.last_offset >= offset:
                return position
            if batch.next_offset == offset:
                following = position + batch.size_in_bytes
                return following if following < self.size else None
        return None

    def header_of(self, offset: int) -> tuple[int, RecordBatch] | None:
        """Position and header of the batch that holds `offset`, or of the next one."""
        for position, batch in self.headers_from(offset):
            if batch.last_offset >= offset:
                return position, batch
        return None

    def headers_from(self, offset: int) -> Iterator[tuple[int, RecordBatch]]:
        """The headers from the last index entry at or before `offset` to the end.

        An index that proves wrong is rebuilt, once. CorruptRecordError if the log is wrong too.
        """
        entry = self.offset_index.lookup(offset)
        if entry.position and not self.confirms(entry):
            self.mend_indexes(CorruptIndexError(f"{self.offset_index.path}: {entry} is not so"))
            entry = self.offset_index.lookup(offset)
        return read_headers(self.file, entry.position, self.size)

    def confirms(self, entry: OffsetPosition) -> bool:
        """Whether the batch at the position of an index entry ends with its offset.

        Before Kafka 1.1 an entry had the first offset.
        """
        try:
            _, batch = next(read_headers(self.file, entry.position, self.size))
            return entry.offset == batch.last_offset or entry.offset == batch.base_offset
        except (StopIteration, CorruptRecordError):
            return False

    def read(
        self, start_offset: int, max_bytes: int, end_position: int, min_one_message: bool
    ) -> tuple[FileRegion | None, bool]:
        """The whole batches from the one with `start_offset` on, before `end_position`.

        If not even the first one fits into `max_bytes`, it comes alone where `min_one_message` is
        set; otherwise nothing comes, and the second result is True.
        """
        position = self.position_of(start_offset)
        if position is None or position >= end_position:
            return None, False
        size = end_position - position
        if size > max_bytes:
            border = self._border_before(position + max_bytes, position)
            if border == position:
                if not min_one_message:
                    return None, True
                border = self._border_after(position)
            size = border - position
        return FileRegion(self.file, position, size), False

    def skip_empty(
        self, position: int, end_position: int, max_count: int
    ) -> tuple[int, RecordBatch]:
        """Position and header of the first batch with records, from the one at `position` on.

        If none of the next `max_count` batches has any, position and header of the last of them.
        """
        headers = islice(read_headers(self.file, position, end_position), max_count)
        found = next(headers)
        while not found[1].record_count and (following := next(headers, None)) is not None:
            found = following
        return found

    def holds(self, records: FileRegion) -> bool:
        """Whether these records were read from here."""
        return records.file is self._file

    def offset_behind(self, records: FileRegion) -> int:
        """An offset at or behind the end of records that were read from here, from the index."""
        return self.offset_index.offset_behind(records.position + records.size)

    def _border_before(self, position: int, start: int) -> int:
        """The last border of a batch at or before `position`; one is at `start`."""
        border = self.recent.border_before(position)
        if border is not None:
            return border
        entry = self.offset_index.lookup_position(position)
        if entry.position <= start:
            entry = OffsetPosition(self.base_offset, start)
        elif not self.file.is_cached(position - entry.position + 1, entry.position):
            return entry.position  # a little less, without waiting for the disk
        for border, batch in read_headers(self.file, entry.position, self.size):
            if border + batch.size_in_bytes > position:
                self._hint(batch.base_offset, border)
                return border
        return self.size

    def _border_after(self, position: int) -> int:
        """The end of the batch at `position`."""
        border = self.recent.border_after(position)
        if border is not None:
            return border
        _, batch = next(read_headers(self.file, position, self.size))
        return position + batch.size_in_bytes

    def _hint(self, offset: int, position: int) -> None:
        """Note where a reader will continue, so that reading in sequence needs no search."""
        if len(self._hints) >= MAX_READ_HINTS:
            self._hints.clear()
        self._hints[offset] = position

    def mend_indexes(self, error: CorruptIndexError) -> None:
        """Rebuild indexes that have proved wrong, once; CorruptRecordError if the log is wrong."""
        if self._is_index_rebuilt:
            raise CorruptRecordError(str(error))
        logger.warning("Rebuilding the indexes of %s: %s", self.path, error)
        self._is_index_rebuilt = True
        try:
            self.rebuild_indexes()
            self.become_inactive()
        except OSError as cause:  # one that passes elsewhere would leave half an index here
            raise OSError(errno.EIO, f"rebuilding its indexes: {cause}", self.path) from cause

    def move_to(self, directory: str) -> File | None:
        """Use the same files in another directory from now on; returns the open file, if any."""
        self.directory = directory
        for index, kind in (
            (self.offset_index, INDEX_SUFFIX),
            (self.time_index, TIME_INDEX_SUFFIX),
            (self.txn_index, TXN_INDEX_SUFFIX),
        ):
            index.path = segment_path(directory, self.base_offset, kind)
        file, self._file = self._file, None
        return file

    def files(self) -> list[str]:
        """The files of the segment that exist."""
        names = [kind + self.suffix for kind in SEGMENT_SUFFIXES]
        paths = [segment_path(self.directory, self.base_offset, name) for name in names]
        return [path for path in paths if self._disk.exists(path)]

    def release_indexes(self) -> None:
        """Free the memory of entries that can be read again; not for the active segment."""
        self.recent.truncate(0)
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.release()

    def close(self) -> None:
        """Close the file; the segment is no longer used."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Close the segment and remove its files at once: they have had no readers."""
        self.close()
        for path in self.files():
            self._disk.unlink(path)
