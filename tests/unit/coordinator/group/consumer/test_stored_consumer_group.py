"""A consumer group as the last record of each of its keys describes it."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS
from ottla.coordinator.group.consumer.stored_consumer_group import StoredConsumerGroup
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    StoredOwnedPartitions,
    StoredTopic,
    StoredTopicPartitions,
)
from ottla.runtime.scheduler import at_once

T = UUID(int=5)
EPOCH = ConsumerGroupMetadataKey(group="g")
TOPICS = ConsumerGroupPartitionMetadataKey(group="g")
TARGET_EPOCH = ConsumerGroupTargetAssignmentMetadataKey(group="g")
REGEX = ConsumerGroupRegularExpressionKey(group="g", regular_expression="t.*")


def member_key(member_id="a"):
    return ConsumerGroupMemberMetadataKey(group="g", member_id=member_id)


def target_key(member_id="a"):
    return ConsumerGroupTargetAssignmentMemberKey(group="g", member_id=member_id)


def current_key(member_id="a"):
    return ConsumerGroupCurrentMemberAssignmentKey(group="g", member_id=member_id)


def member(instance=None, topics=("t",), regex=None):
    return ConsumerGroupMemberMetadataValue(
        instance_id=instance,
        client_id="app",
        client_host="/10.0.0.1",
        subscribed_topic_names=list(topics),
        subscribed_topic_regex=regex,
    )


def current(*partitions):
    owned = [StoredOwnedPartitions(topic_id=T, partitions=list(partitions))]
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3, previous_member_epoch=2, assigned_partitions=owned if partitions else []
    )


def target(*partitions):
    given = StoredTopicPartitions(topic_id=T, partitions=list(partitions))
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=[given])


RECORDS = (
    (EPOCH, ConsumerGroupMetadataValue(epoch=4)),
    (
        TOPICS,
        ConsumerGroupPartitionMetadataValue(
            topics=[StoredTopic(topic_id=T, topic_name="t", partition_count=2)]
        ),
    ),
    (REGEX, ConsumerGroupRegularExpressionValue(topics=["t", "tt"])),
    (member_key(), member(topics=(), regex="t.*")),
    (TARGET_EPOCH, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3)),
    (target_key(), target(0, 1)),
    (current_key(), current(0)),
)


@pytest.fixture
def stored():
    """A group with one member."""
    return apply(StoredConsumerGroup(), *RECORDS)


def apply(stored, *records):
    for key, value in records:
        at_once(stored.apply(key, None if value is None else encode_versioned(value, 0)))
    return stored


def test_records_describe_the_whole_group(stored):
    """As the coordinator had it that wrote them."""
    assert stored.exists
    group = at_once(stored.restore("g"))
    (known,) = group.members.values()

    assert (group.group_id, group.group_epoch, group.assignment_epoch) == ("g", 4, 3)
    assert (group.topics["t"].topic_id, group.regexes) == (T, {"t.*": {"t", "tt"}})
    assert group.subscribed_topics == {"t", "tt"}
    assert (known.member_id, known.details.topic_regex) == ("a", "t.*")
    assert group.target["a"].topics == {T: {0, 1}}
    assert known.current.assigned.topics == {T: {0}}
    assert (known.current.member_epoch, known.current.previous_member_epoch) == (3, 2)
    assert not group.are_free_for(known.current.assigned, "b")


def test_last_record_of_a_key_counts(stored):
    """The others are what was before."""
    again = (
        (EPOCH, ConsumerGroupMetadataValue(epoch=9)),
        (member_key(), member(instance="i")),
        (target_key(), target(1)),
        (current_key(), current(1)),
    )
    group = at_once(apply(stored, *again).restore("g"))

    assert group.group_epoch == 9
    assert group.members["a"].details.instance_id == "i"
    assert group.target["a"].topics == {T: {1}}
    assert group.members["a"].current.assigned.topics == {T: {1}}
    assert group.subscribed_topics == {"t"}


def test_tombstone_takes_what_its_key_said(stored):
    """One after the other; the group exists for as long as it has an epoch."""
    group = at_once(apply(stored, (current_key(), None)).restore("g"))
    assert group.members["a"].current.assigned == NO_PARTITIONS
    assert group.members["a"].current.member_epoch == 0
    group = at_once(apply(stored, (target_key(), None)).restore("g"))
    assert group.target["a"] == NO_PARTITIONS
    assert at_once(apply(stored, (TARGET_EPOCH, None)).restore("g")).assignment_epoch == 0
    group = at_once(apply(stored, (REGEX, None)).restore("g"))
    assert group.regexes == {}
    group = at_once(apply(stored, (member_key(), None)).restore("g"))
    assert group.members == {}
    assert group.subscribed_topics == frozenset()
    assert at_once(apply(stored, (TOPICS, None)).restore("g")).topics == {}
    assert stored.exists

    assert not apply(stored, (EPOCH, None)).exists


def test_tombstone_of_what_is_not_there_is_passed_over():
    """Compaction may have left it alone."""
    stored = apply(StoredConsumerGroup(), *((key, None) for key, _ in RECORDS))

    assert not stored.exists
    assert at_once(apply(stored, *RECORDS[:1]).restore("g")).members == {}
    fresh = at_once(apply(StoredConsumerGroup(), *RECORDS[:1]).restore("g"))
    assert (fresh.assignment_epoch, fresh.topics, fresh.regexes) == (0, {}, {})


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (
            [(member_key(), member("i")), (member_key("b"), member("i"))],
            "instance i is there twice",
        ),
        (
            [(member_key("b"), member()), (current_key("b"), current(0))],
            "member b owns what another one owns",
        ),
    ],
)
def test_records_that_contradict_each_other_are_refused(stored, records, reason):
    """No coordinator writes them; a group made of them would fail later."""
    with pytest.raises(KafkaError, match=reason) as caught:
        at_once(apply(stored, *records).restore("g"))

    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


def test_members_without_an_instance_are_no_contradiction(stored):
    """Members without an instance, or with other partitions, contradict nobody."""
    more = [
        (member_key("b"), member()),
        (current_key("b"), current(1)),
        (member_key("c"), member()),
    ]

    assert set(at_once(apply(stored, *more).restore("g")).members) == {"a", "b", "c"}
