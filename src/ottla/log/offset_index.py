"""The offset index of a segment: which batch to begin at when looking for an offset.

An entry is 8 bytes, the offset relative to the segment's base offset and a position in its file,
both int32. Sparse: about one entry for every `index.interval.bytes` of log. As in Kafka, the
offset is the last one of the batch at the position, so

    entries (base 100)        file
    (+4,  4200)               position 4200: batch 103-104
    (+11, 8500)               position 8500: batch 108-111

looking for 110 begins at 4200 and walks over batch headers; looking for 111 begins at 8500.
Invariant: offsets and positions both grow, and position 0 has no entry.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import ClassVar

from ottla.log.index_file import CorruptIndexError, IndexFile
from ottla.structs import NamedTuple

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
