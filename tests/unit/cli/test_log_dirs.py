"""`ottla log-dirs`: what it refuses before it asks a broker, and its table."""

import json

import pytest

from ottla.clients.admin.log_dirs import LogDirDescription, ReplicaInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import Node, TopicPartition


def test_broker_that_is_not_there_is_one_line_at_once(tool, admin):
    """It would be waited for until the request times out."""
    outcome = tool("log-dirs", "--describe", "--broker-list", "0,8,9")

    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "ottla log-dirs: there are no brokers 8, 9\n"


def test_word_for_a_broker_is_refused(tool):
    """The message has the option and what was given; nobody is asked for anything."""
    outcome = tool("log-dirs", "--describe", "--broker-list", "0,one")

    assert outcome.out == ""
    assert "--broker-list takes numbers separated by commas, not '0,one'" in outcome.err


def test_topics_are_shown_with_their_share_of_the_disk(tool, admin):
    """--format: a row for each topic in a directory, the largest first."""
    sizes = {("small", 0): 1, ("large", 0): 600, ("large", 1): 400}
    replicas = {
        TopicPartition(*partition): ReplicaInfo(size, 0, False) for partition, size in sizes.items()
    }
    admin.log_dirs[0] = {"/data": LogDirDescription(ErrorCode.NONE, replicas, total_bytes=10_000)}

    outcome = tool("log-dirs", "--describe", "--format", "table")

    header, *rows = outcome.lines
    assert header.split("  ")[-1] == "ERROR"
    assert [line.split() for line in rows] == [
        ["0", "/data", "large", "2", "1,000", "10.00%", "0", "no", "-"],
        ["0", "/data", "small", "1", "1", "0.01%", "0", "no", "-"],
    ]


def test_failed_directory_is_a_row_without_a_topic(tool, admin):
    """Without one a program that reads the rows would not learn that a disk is broken."""
    here = {TopicPartition("t", 0): ReplicaInfo(7, 0, False)}
    admin.log_dirs[0] = {
        "/good": LogDirDescription(ErrorCode.NONE, here),
        "/bad": LogDirDescription(ErrorCode.KAFKA_STORAGE_ERROR, {}),
    }

    outcome = tool("log-dirs", "--describe", "--format", "json", "--topic-list", "t")

    rows = json.loads(outcome.out)
    assert [(row["log_dir"], row["topic"], row["error"]) for row in rows] == [
        ("/good", "t", None),
        ("/bad", None, "KAFKA_STORAGE_ERROR"),
    ]
    assert rows[0].keys() == rows[1].keys()


@pytest.mark.parametrize("format", ["text", "json"])
def test_brokers_that_answer_are_shown_beside_one_that_hangs(tool, admin, format):
    """The other one has a line of its own, and the status says that something is missing."""
    here = {TopicPartition("t", 0): ReplicaInfo(7, 0, False)}
    admin.log_dirs[0] = {"/data": LogDirDescription(ErrorCode.NONE, here)}
    admin.log_dirs[1] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it hangs")
    admin.nodes = [Node(0, "one", 9092), Node(1, "other", 9092)]

    outcome = tool("log-dirs", "--describe", "--format", format)

    assert outcome.status == 1
    assert outcome.err == "Error: no log directories of broker 1: REQUEST_TIMED_OUT: it hangs\n"
    assert "/data" in outcome.out
    assert "from brokers 0\n" in outcome.out or format == "json"


def test_error_of_every_broker_is_the_error_of_the_command(tool, admin):
    """As where the user may not ask for directories."""
    admin.log_dirs[0] = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")

    outcome = tool("log-dirs", "--describe")

    assert (outcome.status, outcome.out) == (1, "")
    assert "not for you" in outcome.err
