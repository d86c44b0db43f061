"""The time index of a segment: from which offset on records can be as new as a timestamp.

An entry is 12 bytes: a timestamp in ms (int64) and an offset relative to the segment's base
offset (int32). (T, o) says that T is the largest timestamp up to here, and that every record with
a later one lies behind o, which is the last offset of the batch that T came with. The last entry
of a closed segment holds its largest timestamp. Invariant: timestamps grow from entry to entry,
offsets never fall.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import ClassVar

from ottla.log.index_file import CorruptIndexError, IndexFile
from ottla.runtime.scheduler import Work
from ottla.structs import NO_TIMESTAMP, NamedTuple

ENTRIES_IN_A_SLICE = 10_000


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
        """Free the memory; earlier reads are no reason to trust the file more."""
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
