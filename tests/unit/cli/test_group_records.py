"""Records of __consumer_offsets as text."""

from uuid import UUID

from ottla.cli.group_records import group_line, key_and_payload, offset_line, topics_of
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolTopicPartition,
)
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
    StoredOwnedPartitions,
    StoredTopic,
)

COMMIT_KEY = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=2), 1)
GROUP_KEY = encode_versioned(GroupMetadataKey(group="g"), 2)


def commit(metadata: str = "", leader_epoch: int = 3) -> bytes:
    value = OffsetCommitValue(
        offset=5, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=1000
    )
    return encode_versioned(value, 3)


def group(protocol_type: str = "consumer") -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolTopicPartition(topic="t", partitions=[0, 1])]
    )
    member = StoredMember(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        assignment=encode_versioned(assignment, 0),
    )
    value = GroupMetadataValue(
        protocol_type=protocol_type, generation=4, protocol="range", leader="m-1", members=[member]
    )
    return encode_versioned(value, 3)


def test_commit_is_a_line_of_its_group_and_partition():
    """The line is what Kafka's formatter of offsets writes."""
    assert offset_line(COMMIT_KEY, commit("x")) == (
        "[g,t,2]::OffsetAndMetadata(offset=5, leaderEpoch=Optional[3], metadata=x, "
        "commitTimestamp=1000, expireTimestamp=None)"
    )


def test_commit_without_epoch_says_that_it_is_empty():
    """Old clients commit without a leader epoch."""
    assert "leaderEpoch=Optional.empty" in str(offset_line(COMMIT_KEY, commit(leader_epoch=-1)))


def test_deleted_commit_is_null():
    """A tombstone has a key only."""
    assert offset_line(COMMIT_KEY, None) == "[g,t,2]::NULL"


def test_each_formatter_leaves_out_the_other_kind():
    """Commits are no groups, groups are no commits, and keys of newer kinds are neither."""
    assert offset_line(GROUP_KEY, group()) is None
    assert group_line(COMMIT_KEY, commit()) is None
    assert offset_line(b"\x00\x63", b"") is None
    assert group_line(None, None) is None


def test_group_line_names_its_members():
    """Generation, protocol and members can be read."""
    line = str(group_line(GROUP_KEY, group()))

    assert line.startswith("g::GroupMetadata(groupId=g, generation=4, protocolType=consumer")
    assert "m-1 -> MemberMetadata(memberId=m-1" in line
    assert group_line(GROUP_KEY, None) == "g::NULL"


def test_dump_of_a_commit_shows_offset_and_metadata():
    """The metadata stands behind the offset where there is any."""
    assert key_and_payload(COMMIT_KEY, commit()) == ("offset::g:t:2", "5")
    assert key_and_payload(COMMIT_KEY, commit("x")) == ("offset::g:t:2", "5:x")
    assert key_and_payload(COMMIT_KEY, None) == ("offset::g:t:2", None)


def test_dump_of_a_group_is_json():
    """The assignment of a consumer is written as its partitions."""
    assert key_and_payload(GROUP_KEY, group()) == (
        '{"metadata":"g"}',
        '{"protocolType":"consumer","protocol":"range","generationId":4,'
        '"assignment":"{m-1=[t-0, t-1]}"}',
    )
    assert key_and_payload(GROUP_KEY, None) == ('{"metadata":"g"}', None)


def test_dump_of_another_protocol_shows_its_bytes():
    """What a Connect worker was assigned is not known here."""
    _, payload = key_and_payload(GROUP_KEY, group("connect"))

    assert '"assignment":"{m-1=0000' in str(payload)


def test_records_of_consumer_groups_are_json_with_kafkas_names():
    """Ids of topics are in base 64; a tombstone has no payload."""
    key = encode_versioned(ConsumerGroupCurrentMemberAssignmentKey(group="g", member_id="m"), 8)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3,
        previous_member_epoch=2,
        state=1,
        assigned_partitions=[
            StoredOwnedPartitions(topic_id=UUID(int=1), partitions=[0, 2], assignment_epochs=[3, 1])
        ],
        partitions_pending_revocation=[StoredOwnedPartitions(topic_id=UUID(int=1), partitions=[1])],
    )

    assert key_and_payload(key, encode_versioned(value, 0)) == (
        '{"type":"8","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"memberEpoch":3,"previousMemberEpoch":2,"state":1,'
        '"assignedPartitions":[{"topicId":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":[0,2],'
        '"assignmentEpochs":[3,1]}],"partitionsPendingRevocation":'
        '[{"topicId":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":[1]}]}}',
    )
    assert key_and_payload(key, None)[1] is None


def test_partition_counts_have_kafkas_name():
    """The count of partitions is called numPartitions."""
    key = encode_versioned(ConsumerGroupPartitionMetadataKey(group="g"), 4)
    topic = StoredTopic(topic_id=UUID(int=0), topic_name="t", partition_count=2)
    value = encode_versioned(ConsumerGroupPartitionMetadataValue(topics=[topic]), 0)

    payload = key_and_payload(key, value)[1]

    assert payload is not None
    assert '"topicName":"t","numPartitions":2' in payload


def test_records_name_the_topics_of_their_group():
    """Commits and members of either protocol do; records of other groups, and of none, do not."""
    key = ConsumerGroupMemberMetadataKey(group="g", member_id="m")
    value = ConsumerGroupMemberMetadataValue(
        client_id="c", client_host="/h", subscribed_topic_names=["a", "b"]
    )
    pair = encode_versioned(key, 5), encode_versioned(value, 0)

    assert topics_of("g", COMMIT_KEY, None) == {"t"}
    assert topics_of("g", *pair) == {"a", "b"}
    assert topics_of("g", GROUP_KEY, group("connect")) == set()
    assert topics_of("other", *pair) == topics_of("g", None, None) == set()
