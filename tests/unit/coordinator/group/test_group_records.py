"""Records of `__consumer_offsets`, against bytes put together by hand from Kafka's schemas."""

import struct
from uuid import UUID

import pytest

from ottla.coordinator.group.classic_group import ClassicGroup, GroupState, group_key
from ottla.coordinator.group.group_records import (
    group_batch,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_offset_value,
)
from ottla.coordinator.group.member_metadata import MemberMetadata, SupportedProtocol
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import KafkaError
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition


def string(text):
    """A string with its int16 length; None has length -1."""
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def data(content):
    """Bytes with their int32 length."""
    return struct.pack(">i", len(content)) + content


def stable_group():
    """A group of a dynamic leader and a static member."""
    group = ClassicGroup("grüße", now_ms=1_700_000_000_000)
    for member_id, instance in (("app-1", None), ("i-2", "i")):
        group.add(
            MemberMetadata(
                member_id=member_id,
                group_instance_id=instance,
                client_id="app",
                client_host="/10.0.0.1",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[SupportedProtocol("range", b"sub")],
            )
        )
    group.generation_id = 7
    group.protocol_name = "range"
    return group


def stored_member(member_id, instance, assignment):
    """A member in version 3 of the value."""
    return b"".join(
        [
            string(member_id),
            string(instance),
            string("app"),
            string("/10.0.0.1"),
            struct.pack(">ii", 60_000, 10_000),
            data(b"sub"),
            data(assignment),
        ]
    )


STORED_GROUP = b"".join(
    [
        struct.pack(">h", 3),
        string("consumer"),
        struct.pack(">i", 7),
        string("range"),
        string("app-1"),
        struct.pack(">q", 1_700_000_000_000),
        struct.pack(">i", 2),
        stored_member("app-1", None, b"A"),
        stored_member("i-2", "i", b""),
    ]
)


def test_offset_key_has_kafkas_bytes():
    """Key version 1: group, topic, partition."""
    expected = struct.pack(">h", 1) + string("grüße") + string("t") + struct.pack(">i", 3)

    assert offset_key("grüße", TopicPartition("t", 3)) == expected


def test_offset_value_has_kafkas_bytes():
    """Value version 3: offset, leader epoch, metadata, commit time; the topic's id is not known."""
    value = CommittedOffset(42, leader_epoch=5, metadata="note", commit_timestamp_ms=1_000)
    expected = struct.pack(">hqi", 3, 42, 5) + string("note") + struct.pack(">q", 1_000)

    assert offset_value(value) == expected
    assert read_offset_value(expected) == value


def test_offset_value_with_a_topic_id_has_kafkas_bytes():
    """Value version 4: offset, leader epoch, metadata, commit time; one tagged field, the id."""
    value = CommittedOffset(42, 5, "note", commit_timestamp_ms=1_000, topic_id=UUID(int=9))
    expected = struct.pack(">hqi", 4, 42, 5) + b"\x05note" + struct.pack(">q", 1_000)
    expected += b"\x01\x00\x10" + UUID(int=9).bytes

    assert offset_value(value) == expected
    assert read_offset_value(expected) == value


def test_offset_value_with_expiry_has_kafkas_bytes():
    """Value version 1: offset, metadata, commit time, expiry time; neither leader epoch nor id."""
    value = CommittedOffset(
        42, 5, "", commit_timestamp_ms=1_000, expire_timestamp_ms=2_000, topic_id=UUID(int=9)
    )
    expected = struct.pack(">hq", 1, 42) + string("") + struct.pack(">qq", 1_000, 2_000)

    assert offset_value(value) == expected
    assert read_offset_value(expected) == value._replace(leader_epoch=-1, topic_id=UUID(int=0))


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (
            struct.pack(">hq", 0, 42) + string("m") + struct.pack(">q", 9),
            CommittedOffset(42, -1, "m", 9),
        ),
        (
            struct.pack(">hq", 2, 42) + string("m") + struct.pack(">q", 9),
            CommittedOffset(42, -1, "m", 9),
        ),
        (
            struct.pack(">hqi", 4, 42, 5) + b"\x02m" + struct.pack(">q", 9) + b"\x00",
            CommittedOffset(42, 5, "m", 9),
        ),
    ],
)
def test_offset_values_of_other_versions_are_read(stored, value):
    """A topic that older and newer brokers wrote can be taken over."""
    assert read_offset_value(stored) == value


def test_group_key_has_kafkas_bytes():
    """Key version 2: group."""
    assert group_key("grüße") == struct.pack(">h", 2) + string("grüße")


def test_group_value_has_kafkas_bytes():
    """Value version 3, with the assignment that is about to be given."""
    assert at_once(group_value(stable_group(), {"app-1": b"A"})) == STORED_GROUP


def test_group_value_of_an_empty_group_has_nulls():
    """Without members there is neither protocol nor leader."""
    group = ClassicGroup("g", now_ms=9)
    group.protocol_type = "consumer"
    group.generation_id = 8
    expected = b"".join(
        [
            struct.pack(">h", 3),
            string("consumer"),
            struct.pack(">i", 8),
            string(None),
            string(None),
            struct.pack(">qi", 9, 0),
        ]
    )

    assert at_once(group_value(group, {})) == expected
    assert at_once(read_group_value("g", expected, now_ms=10)).state is GroupState.EMPTY


def test_group_is_read_back_as_it_was():
    """A group with members is Stable in its last generation."""
    group = at_once(read_group_value("grüße", STORED_GROUP, now_ms=10))

    assert (group.state, group.generation_id, group.leader_id) == (GroupState.STABLE, 7, "app-1")
    assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
    assert group.static_members == {"i": "i-2"}
    assert group.state_timestamp_ms == 1_700_000_000_000
    assert group.members["app-1"].assignment == b"A"
    assert at_once(group_value(group, {"app-1": b"A"})) == STORED_GROUP


@pytest.mark.parametrize(("metadata_bytes", "pauses"), [(1_000_000, 0), (1_000_001, 2)])
def test_record_of_few_members_with_much_metadata_is_made_with_pauses(metadata_bytes, pauses):
    """A hundred of a megabyte held all other clients up for two seconds."""
    group = at_once(read_group_value("g", STORED_GROUP, now_ms=10))
    group.metadata_bytes = metadata_bytes

    assert len(list(group_batch(group, {}, now_ms=10))) == pauses


def test_group_of_version_0_has_the_session_timeout_for_rebalances():
    """Old values know neither rebalance timeout, instance nor state time."""
    member = string("m") + string("app") + string("/h") + struct.pack(">i", 6_000)
    stored = b"".join(
        [
            struct.pack(">h", 0) + string("consumer") + struct.pack(">i", 1),
            string("range") + string("m") + struct.pack(">i", 1),
            member + data(b"s") + data(b"a"),
        ]
    )
    group = at_once(read_group_value("g", stored, now_ms=10))

    assert group.members["m"].rebalance_timeout_ms == 6_000
    assert group.state_timestamp_ms is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda stored: stored[:-1],
        lambda stored: struct.pack(">h", 99) + stored[2:],
        lambda stored: stored.replace(string("i-2"), string("app-1")),
        lambda stored: stored.replace(string("range"), string(None)),
        lambda stored: b"",
    ],
)
def test_damaged_group_is_refused(damage):
    """What no coordinator writes is an error that names the rule, not a broken group."""
    with pytest.raises(KafkaError):
        at_once(read_group_value("g", damage(STORED_GROUP), now_ms=10))


def read_back(group, assignment=None):
    return at_once(
        read_group_value(group.group_id, at_once(group_value(group, assignment or {})), now_ms=9)
    )


def test_zero_is_a_time_like_others():
    """An expiry, a time for rebalances, and the time of a state; -1 stands for none."""
    value = CommittedOffset(5, commit_timestamp_ms=1, expire_timestamp_ms=0)
    assert read_offset_value(offset_value(value)).expire_timestamp_ms == 0
    group = stable_group()
    for member in group.members.values():
        member.rebalance_timeout_ms = 0
    for timestamp_ms in (0, 7, None):
        group.state_timestamp_ms = timestamp_ms
        found = read_back(group)
        assert found.state_timestamp_ms == timestamp_ms
        assert [member.rebalance_timeout_ms for member in found.members.values()] == [0, 0]


@pytest.mark.parametrize(("leader", "found"), [("i-2", "i-2"), ("app-1", "app-1"), ("x", "app-1")])
def test_leader_that_is_no_member_is_succeeded_by_the_first(leader, found):
    """Another leader stays what it was."""
    group = stable_group()
    group.leader_id = leader

    assert read_back(group).leader_id == found


@pytest.mark.parametrize("protocol_type", ["consumer", "connect", None])
def test_empty_group_keeps_the_type_of_its_members(protocol_type):
    """Its offsets expire by it."""
    group = ClassicGroup("g", 1)
    group.protocol_type, group.generation_id = protocol_type, 3

    assert read_back(group).protocol_type == protocol_type
