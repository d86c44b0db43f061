"""`ottla delete-records`."""

import json

import pytest

from ottla.clients.admin.descriptions import TopicPartitionInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition


@pytest.fixture
def offsets(tmp_path):
    """Writes a file of offsets and returns its path."""

    def write(document: object) -> str:
        path = tmp_path / "offsets.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


def row(partition: int, offset: int) -> dict[str, object]:
    return {"topic": "t", "partition": partition, "offset": offset}


def test_low_watermarks_are_shown(tool, admin, offsets):
    """A line per partition, as Kafka prints it."""
    path = offsets({"partitions": [row(1, 7), row(0, 5)], "version": 1})

    assert tool("delete-records", "--offset-json-file", path).lines == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: t-0\tlow_watermark: 5",
        "partition: t-1\tlow_watermark: 7",
    ]


def test_partition_that_fails_is_shown_beside_the_others(tool, admin, offsets):
    """The failed partition has its error in its row, and the command fails."""
    admin.failures[TopicPartition("t", 1)] = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "7 > 5")

    outcome = tool(
        "delete-records", "--offset-json-file", offsets({"partitions": [row(0, 5), row(1, 7)]})
    )

    assert outcome.status == 1
    assert outcome.lines[2:] == [
        "partition: t-0\tlow_watermark: 5",
        "partition: t-1\terror: OFFSET_OUT_OF_RANGE: 7 > 5",
    ]


def test_partition_without_a_leader_is_an_error_at_once(tool, admin, offsets):
    """It is not asked about; the other partitions are."""
    admin.add_topic("t", TopicPartitionInfo(0, 0), TopicPartitionInfo(1, -1))
    path = offsets({"partitions": [row(0, 5), row(1, 7)]})
    outcome = tool("delete-records", "--offset-json-file", path)

    assert outcome.status == 1
    assert outcome.lines[2:] == [
        "partition: t-0\tlow_watermark: 5",
        "partition: t-1\terror: LEADER_NOT_AVAILABLE: it does not have a leader",
    ]


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ("", "is empty; it must be JSON"),
        ("{", "is not JSON: Expecting property name"),
        ("[]", 'must be an object with a list: {"partitions": [...]}'),
        ({}, 'must be an object with a list: {"partitions": [...]}'),
        ({"partitions": [{"topic": "t"}]}, "entry 1 of partitions must have a topic, a partition"),
        ({"version": 2, "partitions": []}, "version 2 is not known, only 1"),
        ({"partitions": [row(0, 1), row(0, 2)]}, "t-0 is named twice"),
        ({"partitions": [row(0, 9.9)]}, "offset, which are whole numbers"),
        ({"partitions": [row(0, "9")]}, "offset, which are whole numbers"),
        ({"partitions": [row(0, True)]}, "offset, which are whole numbers"),
        ({"partitions": [row(0.5, 9)]}, "offset, which are whole numbers"),
        ({"partitions": [{**row(0, 9), "topic": None}]}, "entry 1 of partitions must have a topic"),
    ],
)
def test_file_of_another_form_is_one_line(tool, admin, offsets, document, rule):
    """The file, what is wrong in it, and the rule; nothing is deleted."""
    outcome = tool("delete-records", "--offset-json-file", offsets(document))

    assert outcome.status == 1
    assert "offsets.json" in outcome.err
    assert rule in outcome.err
    assert "Error" not in outcome.err
    assert outcome.out == ""


def test_missing_file_is_one_line(tool, admin):
    """The line has the reason."""
    outcome = tool("delete-records", "--offset-json-file", "/none")

    assert outcome.err == "ottla delete-records: cannot read /none: No such file or directory\n"


def test_file_is_required(tool, admin):
    """There is nothing to do otherwise."""
    assert "missing required option --offset-json-file" in tool("delete-records").err
