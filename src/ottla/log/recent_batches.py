"""Where the newest batches of a segment begin, kept in memory for the readers near its end."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

CAPACITY: Final = 512


class RecentBatches:
    """Base offsets and positions of the last batches, without a gap up to the segment's end.

    Consumers mostly read what was just written. With this, finding their offset and the border of
    a batch for the end of the answer takes two searches in memory and no read of the file.
    """

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def append(self, base_offset: int, position: int) -> None:
        """Note a batch behind all others."""
        self.offsets.append(base_offset)
        self.positions.append(position)
        if len(self.offsets) > CAPACITY:
            del self.offsets[: CAPACITY // 2]
            del self.positions[: CAPACITY // 2]

    def position_of(self, offset: int) -> int | None:
        """Where the batch that holds an offset begins; None if that is too long ago."""
        index = bisect_right(self.offsets, offset)
        return self.positions[index - 1] if index else None

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
        del self.offsets[index:]
        del self.positions[index:]
