"""How the offsets of a batch are shared out to tasks."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from ottla.spark.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Sequence

# Records that a task reads in a few milliseconds: fewer are not worth a task of their own.
SMALL_TASK = 4096

Task: TypeAlias = tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """How many tasks there are at least and at most, and how many records one of them may have."""

    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records: int | None = None

    def share_out(self, ranges: Sequence[OffsetRange]) -> list[Task]:
        """The ranges of each task; ranges without records have none."""
        pieces = split(ranges, self.min_partitions, self.max_records)
        if self.max_partitions is not None and len(pieces) > self.max_partitions:
            return _packed(pieces, self.max_partitions)
        if self.min_partitions is not None:
            return [(piece,) for piece in pieces]
        return _small_together(pieces, min(SMALL_TASK, self.max_records or SMALL_TASK))


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[OffsetRange]:
    """The ranges that have records, cut so that there are at least `min_partitions` of them.

    None has more than `max_records`. Larger ranges are cut into more pieces.
    """
    wanted = sorted(
        (piece for piece in ranges if piece.size), key=lambda piece: piece.topic_partition
    )
    if max_records is not None:
        wanted = [part for piece in wanted for part in _cut(piece, -(-piece.size // max_records))]
    if min_partitions is None or len(wanted) >= min_partitions:
        return wanted
    pieces = _shares([piece.size for piece in wanted], min_partitions)
    return [
        part
        for piece, count in zip(wanted, pieces, strict=True)
        for part in _cut(piece, min(count, piece.size))
    ]


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many of `count` pieces each size gets, at least one, in proportion."""
    total = sum(sizes)
    return [max(1, -(-size * count // total)) for size in sizes]


def _cut(piece: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [piece.start + piece.size * number // count for number in range(count + 1)]
    return [OffsetRange(piece.topic_partition, start, end) for start, end in pairwise(edges)]


def _small_together(pieces: Sequence[OffsetRange], limit: int) -> list[Task]:
    """Neighbours share a task while they have no more than `limit` records together."""
    tasks: list[list[OffsetRange]] = []
    size = 0
    for piece in pieces:
        if tasks and size + piece.size <= limit:
            tasks[-1].append(piece)
            size += piece.size
        else:
            tasks.append([piece])
            size = piece.size
    return [tuple(task) for task in tasks]


def _packed(pieces: Sequence[OffsetRange], count: int) -> list[Task]:
    """`count` tasks of about equal size: the largest piece first, to the task that has least."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    least = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        size, number = least[0]
        tasks[number].append(piece)
        heapq.heapreplace(least, (size + piece.size, number))
    return [
        tuple(sorted(task, key=lambda piece: (piece.topic_partition, piece.start)))
        for task in tasks
    ]
