"""A consumer group by itself: who owns what, what is written of each change, what is deleted."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from consumer_group_world import ConsumerWorld

from ottla.coordinator.group.consumer.assigned_partitions import (
    AssignedPartitions,
    TopicIdPartition,
)
from ottla.coordinator.group.consumer.cluster_topics import SubscribedTopic
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    MemberState,
)
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.pending_writes import OnStored, PendingWrites
from ottla.coordinator.group.consumer.stored_consumer_group import StoredConsumerGroup
from ottla.coordinator.group.group import differences
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.protocol.offsets_topic import decode_key
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition

T = UUID(int=5)
P0, P1, P2 = (TopicIdPartition(T, number) for number in range(3))
FAILED = ErrorCode.NOT_ENOUGH_REPLICAS
TOPICS = {"t": SubscribedTopic(T, 3)}


def member(name: str, *owned: TopicIdPartition, **details: object) -> ConsumerMember:
    says = MemberDetails("app", "/10.0.0.1", topic_names=("t",))._replace(**details)
    return ConsumerMember(name, says, CurrentAssignment(3, 2, assigned=AssignedPartitions(owned)))


def changed_group() -> GroupChanges:
    """Two members, one of them an instance, in epoch 4."""
    changes = GroupChanges(ConsumerGroup("g"))
    at_once(changes.adopt_member(member("a", P0, P1)))
    at_once(changes.adopt_member(member("b", P2, instance_id="i")))
    changes.set_topics(TOPICS)
    changes.set_regex("t.*", frozenset({"t"}), 1, 2)
    changes.set_assignment_epoch(3)
    changes.set_epoch(4)
    return changes


def reread(
    changes: GroupChanges, records: dict[bytes, bytes | None] | None = None
) -> ConsumerGroup:
    """The group that the records describe."""
    stored = StoredConsumerGroup()
    for key, value in (changes.records if records is None else records).items():
        at_once(stored.apply(decode_key(key), value))
    return at_once(stored.restore("g"))


def test_records_of_changes_describe_the_group():
    """Each change is written, and the last one of a key counts."""
    changes = changed_group()
    assert list(differences(changes.group, reread(changes))) == []
    a, b = changes.group.members.values()
    changes.set_current(a, CurrentAssignment(4, 3, MemberState.STABLE, AssignedPartitions({P0})))
    changes.set_target("a", AssignedPartitions({P0, P1}))
    changes.replace_member(b, member("c", P1, instance_id="i"))
    changes.drop_regex("t.*")
    changes.update_details(a, a.details._replace(client_host="/elsewhere"))
    assert not changes.needs_assignment
    changes.update_details(a, a.details._replace(topic_names=("u",)))

    assert changes.needs_assignment
    assert list(differences(changes.group, reread(changes))) == []
    assert changes.group.target == {
        "a": AssignedPartitions({P0, P1}),
        "c": AssignedPartitions({P2}),
    }
    before = dict(changes.records)
    changes.update_details(a, a.details)
    assert changes.records == before
    changes.remove_member(a)
    assert list(differences(changes.group, reread(changes))) == []
    assert list(changes.group.members) == list(changes.group.target) == ["c"]


def test_partition_is_free_when_its_owner_has_given_it_up():
    """By its next assignment, or because it is gone."""
    group = changed_group().group
    a, b = group.members.values()
    assert group.free_for(AssignedPartitions({P0, P1, P2}), "a") == AssignedPartitions({P0, P1})
    group.set_current(a, CurrentAssignment(4, 3, assigned=AssignedPartitions({P0})))
    assert group.free_for(AssignedPartitions({P0, P1, P2}), "b") == AssignedPartitions({P1, P2})
    cancelled: list[str] = []
    b.session_timer = SimpleNamespace(cancel=lambda: cancelled.append("session"))
    b.rebalance_timer = SimpleNamespace(cancel=lambda: cancelled.append("rebalance"))
    group.remove(b)
    assert sorted(cancelled) == ["rebalance", "session"]
    assert group.free_for(AssignedPartitions({P0, P1, P2}), "x") == AssignedPartitions({P1, P2})
    assert (group.static_member("i"), group.static_members) == (None, {})


@pytest.mark.parametrize(
    ("group_epoch", "assignment_epoch", "member_epoch", "state"),
    [(4, 3, 3, "Assigning"), (3, 3, 3, "Stable"), (4, 4, 3, "Reconciling"), (4, 4, 4, "Stable")],
)
def test_state_follows_from_the_epochs(group_epoch, assignment_epoch, member_epoch, state):
    """The state follows from the epochs, and from whether there is a member."""
    group = ConsumerGroup("g")
    assert (group.state_name, group.is_empty, group.is_unused) == ("Empty", True, True)
    group.group_epoch, group.assignment_epoch = group_epoch, assignment_epoch
    assert (group.state_name, group.is_unused) == ("Empty", False)
    group.add(ConsumerMember("a", MemberDetails("app", "/"), CurrentAssignment(member_epoch)))

    assert (group.state_name, group.is_empty) == (state, False)
    group.die(5)
    assert group.state_name == "Dead"


def test_group_that_is_deleted_leaves_no_key_behind():
    """No key is left, not even of a failed write; the epoch goes last: it shows the group."""
    changes = changed_group()
    group = changes.group
    group.writes.unsaved = {b"lost": b"1"}
    keys = group.tombstone_keys()

    assert set(keys) == {*changes.records, b"lost"}
    assert len(keys) == len(set(keys))
    assert type(decode_key(keys[-1])).__name__ == "ConsumerGroupMetadataKey"
    stored = {key: None for key in keys if key != b"lost"}
    assert reread(changes, {**changes.records, **stored}).members == {}


def test_offsets_of_topics_that_members_read_do_not_expire():
    """The others do, by their commits."""
    group = ConsumerGroup("g")
    group.add(ConsumerMember("a", MemberDetails("app", "/")))
    for place, topic in enumerate(("t", "u")):
        value = CommittedOffset(5, commit_timestamp_ms=50)
        group.offsets.put(place, TopicPartition(topic, 0), value)
    assert group.expired_offsets(149, 100, group.offsets.known()) == []
    assert len(group.expired_offsets(150, 100, group.offsets.known())) == 2
    group.subscribed_topics = frozenset({"t"})

    assert group.expired_offsets(150, 100, group.offsets.known()) == [TopicPartition("u", 0)]


def test_member_has_had_a_partition_of_a_topic_that_the_group_knows():
    """Since the epoch that its assignment names."""
    group = changed_group().group
    a = group.members["a"]
    a.current = a.current._replace(assignment_epochs={T: {0: 2}})
    found = [group.has_had(a, TopicPartition("t", 0), epoch) for epoch in (1, 2, 3, 4)]

    assert found == [False, True, True, False]
    assert not group.has_had(a, TopicPartition("u", 0), 3)


def test_members_choose_their_assignor_by_votes():
    """Of those who have a wish."""
    group = ConsumerGroup("g")
    assert group.preferred_assignor("uniform") == "uniform"
    for name, wish in (("a", None), ("b", "range"), ("c", None), ("d", "range"), ("e", "uniform")):
        group.add(ConsumerMember(name, MemberDetails("app", "/", assignor=wish)))

    assert group.preferred_assignor("uniform") == "range"


def test_later_write_of_a_key_is_the_one_that_is_made_up_for():
    """Whichever of the two has failed, and in whatever order that is known."""
    for answers, left in (
        ([(0, FAILED), (1, FAILED)], {b"k": b"2"}),
        ([(1, FAILED), (0, FAILED)], {b"k": b"2"}),
        ([(0, FAILED), (1, ErrorCode.NONE)], {}),
    ):
        callbacks: list[OnStored] = []

        def append(_: object, on_done: OnStored, callbacks: list[OnStored] = callbacks) -> None:
            callbacks.append(on_done)

        writes = PendingWrites()
        for value in (b"1", b"2"):
            writes.write({b"k": value}, append, lambda _: None)
        assert writes.keys == {b"k": None}
        for number, error in answers:
            callbacks[number](error)
        assert (writes.unsaved, writes.is_idle) == (left, not left)
        assert writes.keys == dict.fromkeys(left)


def test_timers_of_a_group_end_with_it():
    """Nobody is put out of a group that this broker no longer coordinates."""
    world = ConsumerWorld({"t": 2})
    world.members("a", "b")
    group = world.consumers
    world.coordinator.consumer_rebalancer.expect(group, group.members["a"], "answer")
    group.die(0)
    records = len(world.log.records())
    world.advance(10_000_000)

    assert list(group.members) == ["a", "b"]
    assert len(world.log.records()) == records
    assert all(
        m.session_timer is None and m.rebalance_timer is None for m in group.members.values()
    )
