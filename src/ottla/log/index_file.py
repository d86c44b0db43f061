"""What the offset index and the time index share: fixed-size entries that only grow at the end.

The entries are kept in memory as they lie in the file and are written out when the segment is
closed, flushed or checkpointed, not one by one: after a crash the indexes of every segment that was
not known to be flushed are rebuilt anyway. The entries of a closed segment are read when first
looked up and may be dropped again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from ottla.runtime import Disk
from ottla.runtime.scheduler import Work
from ottla.structs import NO_TIMESTAMP


class CorruptIndexError(Exception):
    """An index that does not fit its segment; it can be rebuilt from the log."""


class IndexFile:
    """Entries of one index. Invariant: `_entries[:_written]` is what the file holds."""

    __slots__ = (
        "_count",
        "_disk",
        "_entries",
        "_newest",
        "_written",
        "base_offset",
        "is_full",
        "max_entries",
        "path",
    )

    ENTRY: ClassVar[Struct]
    KEPT_FREE: ClassVar[int] = 0
    """So many entries before the last one the index counts as full."""

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._entries: bytearray | None = None
        self._written = 0
        self._newest: int | None = None
        """What the last entry begins with, where that was asked for since entries were cut."""
        self._set_count(0)

    def create(self) -> None:
        """Begin an empty index; its file is made at once, because a missing one means damage."""
        self._entries = bytearray()
        self._set_count(0)
        self._write_from(0)

    def open(self) -> None:
        """Take the file as it is, without reading it; CorruptIndexError where it cannot be one."""
        try:
            size = self._disk.file_size(self.path)
        except FileNotFoundError:
            raise CorruptIndexError(f"{self.path} is missing") from None
        if size % self.ENTRY.size:
            raise CorruptIndexError(
                f"{self.path} has {size} bytes, which are no whole entries of {self.ENTRY.size}"
            )
        self._entries = None
        self._written = size
        self._set_count(size // self.ENTRY.size)

    def __len__(self) -> int:
        return self._count

    @property
    def written_bytes(self) -> int:
        """How many bytes are in the file."""
        return self._written

    def raw_entries(self) -> bytearray:
        """All entries as they lie in the file, read if they are not in memory."""
        if self._entries is None:
            self._entries = bytearray(self._disk.read_bytes(self.path)[: self._written])
        return self._entries

    def entry(self, index: int) -> tuple[int, ...]:
        """The numbers of one entry, as stored. Asking for the last one does not load the others."""
        if index == self._count - 1 and self._entries is None:
            return self.ENTRY.unpack(self._read_last())
        return self.ENTRY.unpack_from(self.raw_entries(), index * self.ENTRY.size)

    def write_out(self) -> None:
        """Bring the file up to what is in memory."""
        if self._entries is not None and len(self._entries) > self._written:
            self._write_from(self._written)

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        if count >= self._count:
            return
        size = count * self.ENTRY.size
        del self.raw_entries()[size:]
        self._set_count(count)
        if size < self._written:
            self._write_from(size)

    def release(self) -> None:
        """Free the memory; what is not in the file yet stays."""
        if self._entries is not None and len(self._entries) == self._written:
            self._entries = None

    def _append(self, *numbers: int) -> None:
        entries = self._entries
        if entries is None:
            entries = self.raw_entries()
        entries += self.ENTRY.pack(*numbers)
        self._count += 1
        self.is_full = self._count >= self.max_entries - self.KEPT_FREE

    def _set_count(self, count: int) -> None:
        self._count = count
        self._newest = None
        # Asked with every append, and another answer only after an entry that was added or cut.
        self.is_full = count >= self.max_entries - self.KEPT_FREE

    def _read_last(self) -> bytes:
        file = self._disk.open(self.path)
        try:
            return file.pread(self.ENTRY.size, self._written - self.ENTRY.size)
        finally:
            file.close()

    def _write_from(self, position: int) -> None:
        entries = self.raw_entries()
        file = self._disk.open(self.path, create=True)
        try:
            if file.size() > position:
                file.truncate(position)
            if len(entries) > position:
                file.pwrite(bytes(entries[position:]), position)
        finally:
            file.close()
        self._written = len(entries)


# The offset index of a segment: which batch to begin at when looking for an offset.
#
# An entry is 8 bytes, the offset relative to the segment's base offset and a position in its file,
# both int32. Sparse: about one entry for every `index.interval.bytes` of log. As in Kafka, the
# offset is the last one of the batch at the position, so
#
#     entries (base 100)        file
#     (+4,  4200)               position 4200: batch 103-104
#     (+11, 8500)               position 8500: batch 108-111
#
# looking for 110 begins at 4200 and walks over batch headers; looking for 111 begins at 8500.
# Invariant: offsets and positions both grow, and position 0 has no entry.


MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_OFFSET = 2**63 - 1


class OffsetPosition(NamedTuple):
    """An offset and where in the segment's file its batch begins."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """Offset to position of the batch, for one segment."""

    __slots__ = ()

    ENTRY: ClassVar[Struct] = Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        """Add the last offset of the batch at `position`; both are larger than all before."""
        self._append(offset - self.base_offset, position)

    def lookup(self, target_offset: int) -> OffsetPosition:
        """The last entry at or before an offset, or the beginning of the segment."""
        return self._before(bisect_right(range(len(self)), target_offset, key=self._offset))

    def lookup_position(self, position: int) -> OffsetPosition:
        """The last entry whose batch begins at or before a position, or the segment's beginning."""
        return self._before(bisect_right(range(len(self)), position, key=self._position))

    def lookup_before(self, position: int, count: int) -> OffsetPosition:
        """The entry `count` entries before the one for a position, or the segment's beginning."""
        index = bisect_right(range(len(self)), position, key=self._position)
        return self._before(max(0, index - count))

    def offset_behind(self, position: int) -> int:
        """An offset that no batch before a position holds, as near as the entries allow."""
        index = bisect_left(range(len(self)), position, key=self._position)
        return self._offset(index) if index < len(self) else MAX_OFFSET

    def entries(self) -> Iterator[OffsetPosition]:
        """Every entry, in order."""
        for relative_offset, position in self.ENTRY.iter_unpack(self.raw_entries()):
            yield OffsetPosition(self.base_offset + relative_offset, position)

    def last_entry(self) -> OffsetPosition:
        """The last entry, or the beginning of the segment."""
        return self._before(len(self))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or behind an offset."""
        self.truncate_entries(bisect_right(range(len(self)), offset - 1, key=self._offset))

    def check(self, size_in_bytes: int) -> None:
        """CorruptIndexError if the last entry cannot belong to a segment of this size."""
        if not len(self):
            return
        offset, position = self.last_entry()
        if offset <= self.base_offset or not 0 < position < size_in_bytes:
            raise CorruptIndexError(
                f"{self.path}: its last entry says that offset {offset} is at position {position} "
                f"of {size_in_bytes}"
            )

    def _before(self, index: int) -> OffsetPosition:
        if index == 0:
            return OffsetPosition(self.base_offset, 0)
        relative_offset, position = self.entry(index - 1)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def _offset(self, index: int) -> int:
        return self.base_offset + self.entry(index)[0]

    def _position(self, index: int) -> int:
        return self.entry(index)[1]


# The time index of a segment: from which offset on records can be as new as a timestamp.
#
# An entry is 12 bytes: a timestamp in ms (int64) and an offset relative to the segment's base
# offset (int32). (T, o) says that T is the largest timestamp up to here, and that every record with
# a later one lies behind o, which is the last offset of the batch that T came with. The last entry
# of a closed segment holds its largest timestamp. Invariant: timestamps grow from entry to entry,
# offsets never fall.


ENTRIES_IN_A_SLICE: Final = 10_000


class TimestampOffset(NamedTuple):
    """A timestamp and the offset of the batch that it came with."""

    timestamp_ms: int
    offset: int


class TimeIndex(IndexFile):
    """Timestamp to offset, for one segment.

    Invariant: the first `_ordered_count` entries in memory were seen to be in order.
    """

    __slots__ = ("_ordered_count",)
    _ordered_count: int

    ENTRY: ClassVar[Struct] = Struct(">qi")

    # Room is kept for the entry that is made when the segment is closed.
    KEPT_FREE: ClassVar[int] = 1

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if the timestamp is later than all before; else it would say nothing."""
        newest_ms = self._newest
        if newest_ms is None:
            newest_ms = self._newest = self.last_entry().timestamp_ms
        if timestamp_ms > newest_ms:
            self._append(timestamp_ms, offset - self.base_offset)
            self._newest = timestamp_ms

    def lookup(self, target_timestamp_ms: int) -> TimestampOffset:
        """The last entry at or before a time; (-1, base offset) if there is none."""
        return self._before(bisect_right(range(len(self)), target_timestamp_ms, key=self._time))

    def entries(self) -> Iterator[TimestampOffset]:
        """Every entry, in order."""
        for timestamp_ms, relative_offset in self.ENTRY.iter_unpack(self.raw_entries()):
            yield TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        return self._before(len(self))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or behind an offset."""
        self.truncate_entries(bisect_right(range(len(self)), offset - 1, key=self._offset))

    def check_order(self) -> Work[None]:
        """CorruptIndexError unless timestamps grow and offsets do not fall.

        Entries are looked at once while they are in memory, in slices: a segment of 1 GiB has a
        quarter of a million.
        """
        while (start := self._ordered_count) < self._count:
            end = min(start + ENTRIES_IN_A_SLICE, self._count)
            size = self.ENTRY.size
            raw = self.raw_entries()[max(0, start - 1) * size : end * size]
            for (timestamp, offset), (next_timestamp, next_offset) in pairwise(
                self.ENTRY.iter_unpack(raw)
            ):
                if timestamp >= next_timestamp or offset > next_offset:
                    raise CorruptIndexError(f"{self.path}: its entries are not in order")
            self._ordered_count = end
            if end < self._count:
                yield

    def release(self) -> None:
        """Free the memory; the file is not trusted more for what was read from it before."""
        super().release()
        self._ordered_count = 0

    def _set_count(self, count: int) -> None:
        super()._set_count(count)
        self._ordered_count = 0

    def _before(self, index: int) -> TimestampOffset:
        if index == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp_ms, relative_offset = self.entry(index - 1)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def _time(self, index: int) -> int:
        return self.entry(index)[0]

    def _offset(self, index: int) -> int:
        return self.base_offset + self.entry(index)[1]


# The transaction index of a segment: the aborted transactions that end in it.
#
# An entry is 34 bytes: version (int16, 0), producer id, first offset, last offset (of the abort
# marker) and the last stable offset when the marker was written. The file exists only where there
# is such a transaction. Invariant: entries are in the order of their last offsets.


ENTRY: Final = Struct(">hqqqq")
TRANSACTION_INDEX_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction: what a reader of committed records has to leave out."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, read from the file when first asked for."""

    __slots__ = ("_disk", "_entries", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTxn] | None = None

    def append(self, aborted: AbortedTxn) -> None:
        """Add a transaction that ends behind all others here."""
        file = self._disk.open(self.path, create=True)
        try:
            file.pwrite(ENTRY.pack(TRANSACTION_INDEX_VERSION, *aborted), file.size())
        finally:
            file.close()
        if self._entries is not None:
            self._entries.append(aborted)

    def entries(self) -> list[AbortedTxn]:
        """Every aborted transaction; CorruptIndexError if the file cannot be what it should."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def entries_from(self, offset: int) -> list[AbortedTxn]:
        """The transactions that end at or behind an offset."""
        entries = self.entries()
        return entries[bisect_left(entries, offset, key=attrgetter("last_offset")) :]

    def written_bytes(self) -> int:
        """How large the file is."""
        try:
            return self._disk.file_size(self.path)
        except FileNotFoundError:
            return 0

    def release(self) -> None:
        """Free the memory of what can be read again."""
        self._entries = None

    def _read(self) -> list[AbortedTxn]:
        if not self._disk.exists(self.path):
            return []
        raw = self._disk.read_bytes(self.path)
        if len(raw) % ENTRY.size:
            raise CorruptIndexError(
                f"{self.path} has {len(raw)} bytes, which are no whole entries of {ENTRY.size}"
            )
        found: list[AbortedTxn] = []
        for version, *numbers in ENTRY.iter_unpack(raw):
            aborted = AbortedTxn(*numbers)
            if version != TRANSACTION_INDEX_VERSION or aborted.last_offset < self.base_offset:
                raise CorruptIndexError(
                    f"{self.path}: version {version} of {aborted} is not one that belongs "
                    f"to the segment at offset {self.base_offset}"
                )
            found.append(aborted)
        return found

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that end at or behind an offset."""
        if not self._disk.exists(self.path):
            return
        count = sum(aborted.last_offset < offset for aborted in self.entries())
        file = self._disk.open(self.path)
        try:
            file.truncate(count * ENTRY.size)
        finally:
            file.close()
            self._entries = None

    def reset(self) -> None:
        """Forget all entries, because the segment is about to be scanned for them."""
        self._entries = None
        if self._disk.exists(self.path):
            self._disk.unlink(self.path)
