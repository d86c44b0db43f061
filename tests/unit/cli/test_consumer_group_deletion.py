"""`ottla consumer-groups --delete-offsets`."""

import pytest

from ottla.clients.admin.admin_client import checked
from ottla.clients.admin.descriptions import TopicPartitionInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def delete(tool, admin):
    """Run it for group g, of a cluster with a topic of two partitions."""
    admin.add_topic("t", TopicPartitionInfo(0, 0), TopicPartitionInfo(1, 0))

    def forget(group, partitions):
        admin.changes.append((group, partitions))
        checked({each: admin.failures.get(each) for each in partitions})

    admin.delete_group_offsets = forget
    words = ("--delete-offsets", "--group", "g")
    return lambda *more: tool("consumer-groups", *words, *more)


@pytest.mark.parametrize(
    ("words", "partitions"),
    [
        (("--topic", "t"), [T0, T1]),
        (("--topic", "t:1"), [T1]),
        (("--topic", "t:1", "--topic", "gone:0"), [T1, TopicPartition("gone", 0)]),
    ],
)
def test_offsets_of_the_named_partitions_are_deleted(delete, admin, words, partitions):
    """All of a topic, or some; a topic that was deleted can be named with its partitions."""
    outcome = delete(*words)

    assert outcome.status == 0
    assert admin.changes == [("g", partitions)]
    assert outcome.lines[0] == "Request succeeded for deleting offsets from group g."
    assert outcome.lines[2].split() == ["TOPIC", "PARTITION", "STATUS"]
    rows = sorted([each.topic, str(each.partition), "Successful"] for each in partitions)
    assert [line.split() for line in outcome.lines[3:]] == rows


def test_partition_whose_offset_stays_is_shown_with_the_reason(delete, admin):
    """Members that read the topic need their offsets."""
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    admin.failures[T1] = KafkaError(error, "t-1 is read")
    outcome = delete("--topic", "t")

    assert outcome.status == 1
    assert "its members have to go first" in outcome.err
    assert [line.split(maxsplit=2)[2].strip() for line in outcome.lines[2:]] == [
        "Successful",
        "Error: GROUP_SUBSCRIBED_TO_TOPIC",
    ]


def test_error_of_the_group_is_that_of_all_partitions(delete, admin):
    """It does not exist, for example."""

    def refuse(group, partitions):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")

    admin.delete_group_offsets = refuse
    outcome = delete("--topic", "t")

    assert "there is no group g" in outcome.err
    assert outcome.out.count("Error: GROUP_ID_NOT_FOUND") == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--delete-offsets --group g", "missing required option --topic"),
        ("--delete-offsets --topic t", "needs --group"),
        ("--describe --group g --topic t", "--topic is used only with --reset-offsets"),
    ],
)
def test_options_that_do_not_fit_are_refused(tool, words, complaint):
    """It needs a group and a topic."""
    outcome = tool("consumer-groups", *words.split())

    assert outcome.status == 1
    assert complaint in outcome.err
