"""How offsets are shared out to tasks."""

from __future__ import annotations

import pytest

from ottla.spark.offsets import OffsetRange
from ottla.spark.task_sizes import SMALL_TASK, TaskSizes, split
from ottla.structs import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_ranges_without_records_make_no_tasks():
    """A task costs some 30 ms, also for nothing."""
    ranges = [OffsetRange(B0, 3, 9), OffsetRange(A0, 4, 4), OffsetRange(A1, 7, 5)]

    assert split(ranges, None) == [OffsetRange(B0, 3, 9)]
    assert split([], 4) == []


@pytest.mark.parametrize("wanted", [1, 2, 3, 7, 50])
def test_split_keeps_every_offset_once(wanted):
    """However many pieces: together they are the ranges, and none is empty."""
    ranges = [OffsetRange(A0, 10, 30), OffsetRange(A1, 0, 3), OffsetRange(B0, 5, 6)]

    pieces = split(ranges, wanted)

    assert len(pieces) >= min(wanted, 24)
    assert all(piece.size for piece in pieces)
    offsets = [(p.topic_partition, o) for p in pieces for o in range(p.start, p.end)]
    assert offsets == [(r.topic_partition, o) for r in ranges for o in range(r.start, r.end)]


def test_split_keeps_tasks_small_and_many():
    """Both wishes hold together."""
    ranges = [OffsetRange(A0, 0, 9), OffsetRange(A1, 0, 2)]

    assert [piece.size for piece in split(ranges, None, 4)] == [3, 3, 3, 2]
    assert len(split(ranges, 8, 4)) >= 8


def test_larger_ranges_get_more_pieces():
    """Pieces are about equally large."""
    pieces = split([OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 100)], 10)

    assert [piece.size for piece in pieces] == [100] * 10


def sizes(tasks):
    return [[piece.size for piece in task] for task in tasks]


def test_partitions_with_few_records_share_a_task():
    """In order, up to what is worth a task; one that is large has its own."""
    ranges = [OffsetRange(A0, 5, 6), OffsetRange(A1, 0, SMALL_TASK - 1), OffsetRange(B0, 2, 4)]

    assert sizes(TaskSizes().share_out(ranges)) == [[1, SMALL_TASK - 1], [2]]
    assert sizes(TaskSizes(min_partitions=1).share_out(ranges)) == [[1], [SMALL_TASK - 1], [2]]
    small = [OffsetRange(TopicPartition("c", n), 0, 3) for n in range(5)]
    assert sizes(TaskSizes(max_records=7).share_out(small)) == [[3, 3], [3, 3], [3]]


def test_so_many_tasks_at_most_have_about_as_much():
    """Every offset is in one of them, and partitions stay in order."""
    ranges = [OffsetRange(TopicPartition("c", n), 0, 10_000 * (n + 1)) for n in range(7)]

    tasks = TaskSizes(max_partitions=3).share_out(ranges)

    assert sorted(piece for task in sizes(tasks) for piece in task) == [
        10_000 * (n + 1) for n in range(7)
    ]
    assert sorted(map(sum, sizes(tasks))) == [90_000, 90_000, 100_000]
    assert all(list(task) == sorted(task, key=lambda e: e.topic_partition) for task in tasks)
    assert len(TaskSizes(max_partitions=9).share_out(ranges)) == 7
