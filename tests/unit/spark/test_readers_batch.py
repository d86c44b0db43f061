"""The batch reader: ranges between two bounds, and what of them is not there."""

from __future__ import annotations

from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition

from ottla.spark.data_loss import DataLossError
from ottla.spark.options import SourceOptions
from ottla.spark.readers import OttlaBatchReader


def reader(**options):
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "a"}
    return OttlaBatchReader(SourceOptions.for_batch(given | options))


def ranges(partitions):
    return [
        (piece.topic_partition.partition, piece.start, piece.end)
        for task in partitions
        for piece in task.ranges
    ]


def test_all_of_a_topic_is_read(admin):
    """Partitions without records are in no task; those with few share one."""
    admin.log("a", (3, 10), (4, 4), (0, 2))

    assert len(reader().partitions()) == 1
    assert ranges(reader().partitions()) == [(0, 3, 10), (2, 0, 2)]
    assert ranges(reader(minPartitions="9").partitions()) == [
        *((0, offset, offset + 1) for offset in range(3, 10)),
        (2, 0, 1),
        (2, 1, 2),
    ]


@pytest.mark.parametrize(
    ("options", "said", "kept"),
    [
        (
            {"startingOffsets": '{"a":{"0":1}}'},
            "offsets 1 to 2 of a-0 .* begins at 3",
            [(0, 3, 10)],
        ),
        (
            {"endingOffsets": '{"a":{"0":12}}'},
            "offsets 10 to 11 of a-0 .* ends at 10",
            [(0, 3, 10)],
        ),
        (
            {"startingOffsets": '{"a":{"0":0}}', "endingOffsets": '{"a":{"0":2}}'},
            "offsets 0 to 1 of a-0 .* begins at 3",
            [],
        ),
        (
            {"startingOffsets": '{"a":{"0":20}}', "endingOffsets": '{"a":{"0":22}}'},
            "offsets 20 to 21 of a-0 .* ends at 10",
            [],
        ),
    ],
)
def test_offsets_outside_the_log_are_lost_data(admin, options, said, kept):
    """They are named; with failOnDataLoss=false what is there is read."""
    admin.log("a", (3, 10))

    with pytest.raises(DataLossError, match=said):
        reader(**options).partitions()

    assert ranges(reader(**options, failOnDataLoss="false").partitions()) == kept


def test_no_range_is_no_rows(admin):
    """Spark starts a task with an empty partition where there is nothing to read."""
    admin.log("a", (0, 0))

    assert list(reader().read(InputPartition(None))) == []


def test_offsets_with_epochs_are_compared_with_the_log(admin):
    """Those of a stream's progress can be read again, or it is said that they cannot."""
    admin.log("a", (0, 9))
    admin.elect("a", 7, cut=3)
    given = {"startingOffsets": '{"a":{"0":5},"leader epochs":{"a":{"0":6}}}'}

    with pytest.raises(DataLossError, match="a-0 is no longer the log"):
        reader(**given).partitions()
    assert ranges(reader(**given, failOnDataLoss="false").partitions()) == [(0, 3, 9)]


def test_offsets_of_a_topic_that_was_created_again_are_no_bounds(admin):
    """Those of a stream's progress name its topic: another one is not read for it, or is whole."""
    admin.log("a", (1, 9))
    admin.ids["a"] = UUID(int=2)
    given = {
        side: f'{{"a":{{"0":{offset}}},"topic ids":{{"a":"{UUID(int=1)}"}}}}'
        for side, offset in (("startingOffsets", 5), ("endingOffsets", 7))
    }

    with pytest.raises(DataLossError, match="a: was deleted and created again"):
        reader(**given).partitions()
    assert ranges(reader(**given, failOnDataLoss="false").partitions()) == [(0, 1, 9)]
