"""`ottla get-offsets`."""

import json

import pytest

from ottla.clients.admin.descriptions import TopicPartitionInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition


@pytest.fixture
def cluster(admin):
    """Topic a has three partitions, topic b one, and there is an internal topic."""
    admin.add_topic("a", *(TopicPartitionInfo(number, 0) for number in range(3)))
    admin.add_topic("b")
    admin.add_topic("__consumer_offsets")
    for topic in admin.topics.values():
        for each in topic.partitions:
            admin.add_log(TopicPartition(topic.name, each.partition), each.partition, 10)
    return admin


def test_latest_offsets_are_the_default(tool, cluster):
    """A line has the form `topic:partition:offset`, with either spelling of the servers."""
    assert tool("get-offsets", "--topic", "a").lines == ["a:0:10", "a:1:10", "a:2:10"]


def test_broker_list_is_known(ottla, cluster):
    """GetOffsetShell of 2.3 calls the servers so."""
    outcome = ottla("get-offsets", "--broker-list", "localhost:9092", "--topic", "b")

    assert outcome.lines == ["b:0:10"]


@pytest.mark.parametrize("time", ["-2", "earliest"])
def test_earliest_offsets_have_a_number_and_a_name(tool, cluster, time):
    """-2 is what older scripts write."""
    assert tool("get-offsets", "--topic", "a", "--time", time).lines == ["a:0:0", "a:1:1", "a:2:2"]


def test_time_without_a_record_shows_no_offset(tool, cluster):
    """The line ends with the colon."""
    cluster.offsets[TopicPartition("b", 0), 5000] = -1

    assert tool("get-offsets", "--topic", "b", "--time", "5000").lines == ["b:0:"]


def test_partitions_can_be_chosen(tool, cluster):
    """Partitions are chosen by their numbers."""
    assert tool("get-offsets", "--topic", "a", "--partitions", "0,2").lines == ["a:0:10", "a:2:10"]


def test_every_topic_is_shown_where_none_is_named(tool, cluster):
    """Internal ones too, unless they are to be left out."""
    everything = tool("get-offsets").lines

    assert everything[0] == "__consumer_offsets:0:10"
    assert tool("get-offsets", "--exclude-internal-topics").lines == everything[1:]


@pytest.mark.parametrize(
    ("rules", "partitions"),
    [
        ("a", ["a:0", "a:1", "a:2"]),
        ("a:1", ["a:1"]),
        ("a:0-2", ["a:0", "a:1"]),
        ("a:1-", ["a:1", "a:2"]),
        ("a:-1", ["a:0"]),
        (":0", ["__consumer_offsets:0", "a:0", "b:0"]),
        ("a:2,b", ["a:2", "b:0"]),
        ("[ab]:0", ["a:0", "b:0"]),
    ],
)
def test_rules_name_topics_and_partitions(tool, cluster, rules, partitions):
    """A lower bound is included, an upper one is not."""
    lines = tool("get-offsets", "--topic-partitions", rules).lines

    assert [line.rpartition(":")[0] for line in lines] == partitions


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--topic", "none"), "topic 'none' does not exist"),
        (("--topic", "a", "--partitions", "9"), "no partition matches"),
        (("--topic", "a", "--partitions", "x"), "--partitions takes numbers"),
        (("--topic-partitions", "a:x"), "rules like topic:0-3"),
        (("--topic-partitions", "a", "--topic", "a"), "cannot be used with"),
        (("--time", "noon"), "not 'noon'"),
        (("--time", "-7"), "not '-7'"),
        (("--time", "1_000"), "not '1_000'"),
        (("--time", "9" * 20), f"not '{'9' * 20}'"),
        (("--time", "9" * 5000), f"not '{'9' * 5000}'"),
        (("--topic-partitions", f"a:{'9' * 5000}"), "rules like topic:0-3"),
        (("--topic-partitions", f"a:1-{'9' * 20}"), "rules like topic:0-3"),
        (("--topic", "a", "--partitions", "1_0"), "--partitions takes numbers"),
    ],
)
def test_mistakes_are_one_line(tool, cluster, words, line):
    """The line names the mistake."""
    outcome = tool("get-offsets", *words)

    assert outcome.status == 1
    assert line in outcome.err
    assert outcome.err.count("\n") == 1


def test_partition_without_leader_is_skipped(tool, cluster):
    """The others are shown, and the status tells that they are not all."""
    cluster.add_topic("b", TopicPartitionInfo(0, -1), TopicPartitionInfo(1, 0))
    cluster.add_log(TopicPartition("b", 1), 0, 4)

    outcome = tool("get-offsets", "--topic", "b")

    assert (outcome.status, outcome.lines) == (1, ["b:1:4"])
    assert "partition b-0 does not have a leader" in outcome.err


def test_partition_that_fails_does_not_hide_the_others(tool, cluster):
    """It is named on stderr, and the status tells."""
    cluster.failures[TopicPartition("a", 1)] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    outcome = tool("get-offsets", "--topic", "a")

    assert outcome.status == 1
    assert outcome.lines == ["a:0:10", "a:2:10"]
    assert "no offset of partition a-1: NOT_LEADER_OR_FOLLOWER" in outcome.err


@pytest.mark.parametrize(
    ("time", "timestamp"), [("1970-01-02", 86_400_000), ("1970-01-01T00:00:05Z", 5000)]
)
def test_time_may_be_a_date(tool, cluster, time, timestamp):
    """In UTC where no zone is named."""
    cluster.offsets[TopicPartition("b", 0), timestamp] = 7

    assert tool("get-offsets", "--topic", "b", "--time", time).lines == ["b:0:7"]


def test_year_is_told_from_milliseconds(tool, cluster):
    """A number is taken as Kafka takes it, and what it means is said."""
    cluster.offsets[TopicPartition("b", 0), 1999] = 0

    outcome = tool("get-offsets", "--topic", "b", "--time", "1999")

    assert outcome.lines == ["b:0:0"]
    assert outcome.err == "--time 1999 is 1970-01-01T00:00:01.999Z, in milliseconds since 1970\n"


def test_offsets_can_be_printed_as_json(tool, cluster):
    """The offset is null where there is no record since the time."""
    cluster.offsets[TopicPartition("b", 0), 200_000_000_000] = -1
    words = ("--topic", "b", "--time", "200000000000", "--format", "json")

    assert json.loads(tool("get-offsets", *words).out) == [
        {"topic": "b", "partition": 0, "offset": None}
    ]
