"""The time index of a segment: from which offset on records can be as new as a timestamp.

An entry is 12 bytes: a timestamp in ms (int64) and an offset relative to the segment's base offset
(int32). (T, o) says that T is the largest timestamp up to here, and that every record with a later
one lies behind o, which is the last offset of the batch that T came with. The last entry of a
closed segment holds its largest timestamp. Invariant: timestamps grow from entry to entry, offsets
never fall.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import ClassVar, NamedTuple

from ottla.log.indexes.index_file import CorruptIndexError, IndexFile

NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    """A timestamp and the offset of the batch that it came with."""

    timestamp_ms: int
    offset: int


class TimeIndex(IndexFile):
    """Timestamp to offset, for one segment."""

    __slots__ = ()

    ENTRY: ClassVar[Struct] = Struct(">qi")

    @property
    def is_full(self) -> bool:
        # One place is kept for the entry that is made when the segment is closed.
        return self._count >= self.max_entries - 1

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if the timestamp is later than all before; else it would say nothing."""
        if timestamp_ms > self.last_entry().timestamp_ms:
            self._append(timestamp_ms, offset - self.base_offset)

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

    def check_order(self) -> None:
        """CorruptIndexError unless timestamps grow and offsets do not fall."""
        entries = list(self.ENTRY.iter_unpack(self.raw_entries()))
        for (timestamp, offset), (next_timestamp, next_offset) in pairwise(entries):
            if timestamp >= next_timestamp or offset > next_offset:
                raise CorruptIndexError(f"{self.path}: its entries are not in order")

    def _before(self, index: int) -> TimestampOffset:
        if index == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp_ms, relative_offset = self.entry(index - 1)
        return TimestampOffset(timestamp_ms, self.base_offset + relative_offset)

    def _time(self, index: int) -> int:
        return self.entry(index)[0]

    def _offset(self, index: int) -> int:
        return self.base_offset + self.entry(index)[1]
