"""The segments of a log, oldest first: a value that is replaced as a whole and never changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from ottla.log.log_segment import LogSegment
from ottla.log.transaction_index import AbortedTxn
from ottla.runtime import FileRegion


class Segments:
    """The segments in the order of their base offsets. Invariant: there is at least one.

    A read keeps the value that it began with; deleting and rolling make a new one.
    """

    __slots__ = ("active", "base_offsets", "items")

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        assert segments, "a log has at least one segment"
        self.items = tuple(segments)
        self.base_offsets = tuple(segment.base_offset for segment in segments)
        self.active = self.items[-1]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def first(self) -> LogSegment:
        return self.items[0]

    def index_of(self, offset: int) -> int:
        """The index of the segment that an offset belongs to; 0 for an offset before all."""
        return max(0, bisect_right(self.base_offsets, offset) - 1)

    def end_offset(self, index: int, log_end_offset: int) -> int:
        """The first offset behind the segment at an index."""
        following = index + 1
        return self.base_offsets[following] if following < len(self.items) else log_end_offset

    def since(self, offset: int) -> tuple[LogSegment, ...]:
        """The segment that an offset belongs to, and those behind it."""
        return self.items[self.index_of(offset) :]

    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self.items)

    def aborted_transactions(
        self, start_offset: int, records: FileRegion | None, max_offset: int
    ) -> list[AbortedTxn]:
        """The aborted transactions with records between an offset and the end of a read.

        Their markers may be in any later segment. The search stops at an entry that was made when
        everything before that end was stable: no later transaction can have records there.
        """
        if records is None:
            return []
        found: list[AbortedTxn] = []
        end_offset = max_offset
        for index in range(self.index_of(start_offset), len(self.items)):
            segment = self.items[index]
            if segment.holds(records):
                end_offset = min(
                    self.end_offset(index, end_offset), segment.offset_behind(records), end_offset
                )
            for aborted in segment.txn_index.entries_from(start_offset):
                if aborted.first_offset < end_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= end_offset:
                    return found
        return found

    def split(
        self, is_wanted: Callable[[LogSegment], bool]
    ) -> tuple[list[LogSegment], list[LogSegment]]:
        """The segments that are wanted, and the others."""
        kept: list[LogSegment] = []
        gone: list[LogSegment] = []
        for segment in self.items:
            (kept if is_wanted(segment) else gone).append(segment)
        return kept, gone
