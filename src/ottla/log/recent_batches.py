"""The newest batches of a segment begin here: kept in memory for the readers near its end."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from ottla.log.offset_index import MAX_OFFSET

CAPACITY: Final = 512
NOTHING_KNOWN: Final = MAX_OFFSET


class RecentBatches:
    """Last offsets and positions of the newest batches, without a gap up to the segment's end.

    Every offset from `start_offset` on is known. Consumers mostly read the newest records: with
    this, finding their offset and the border of a batch for the end of the answer takes two
    searches in memory and no read of the file.
    """

    __slots__ = ("last_offsets", "positions", "start_offset")

    def __init__(self) -> None:
        self.last_offsets = array("q")
        self.positions = array("q")
        self.start_offset = NOTHING_KNOWN

    def append(self, base_offset: int, last_offset: int, position: int) -> None:
        """Note a batch behind all others."""
        if not self.positions:
            self.start_offset = base_offset
        self.last_offsets.append(last_offset)
        self.positions.append(position)
        if len(self.positions) > CAPACITY:
            self.start_offset = self.last_offsets[CAPACITY // 2 - 1] + 1
            del self.last_offsets[: CAPACITY // 2]
            del self.positions[: CAPACITY // 2]

    def position_of(self, offset: int) -> int | None:
        """Where the batch that holds a known offset, or the next one, begins; None at the end."""
        index = bisect_left(self.last_offsets, offset)
        return self.positions[index] if index < len(self.positions) else None

    def border_before(self, position: int) -> int | None:
        """The last position at or before this one where a batch begins; None if too long ago."""
        index = bisect_right(self.positions, position)
        return self.positions[index - 1] if index else None

    def border_after(self, position: int) -> int | None:
        """Where the batch behind the one at `position` begins; None if that is not known."""
        index = bisect_right(self.positions, position)
        return self.positions[index] if 0 < index < len(self.positions) else None

    def truncate(self, position: int) -> None:
        """Forget the batches that begin at or behind a position."""
        index = bisect_left(self.positions, position)
        del self.last_offsets[index:]
        del self.positions[index:]
        if not index:
            self.start_offset = NOTHING_KNOWN
