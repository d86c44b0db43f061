"""The range assignor: neighbours, and the same numbers of every topic."""

from __future__ import annotations

from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS, AssignedPartitions
from ottla.coordinator.group.consumer.assignors import GroupSpec, MemberSpec, assign_range
from ottla.runtime.scheduler import at_once

A, B = UUID(int=1), UUID(int=2)
BOTH = MemberSpec(frozenset({A, B}), NO_PARTITIONS)


def numbers(target, topic_id):
    return sorted(number for topic, number in target if topic == topic_id)


def test_first_members_get_one_more():
    """Five partitions for two members, of both topics the same."""
    targets = at_once(assign_range(GroupSpec({"y": BOTH, "x": BOTH}, {A: 5, B: 5})))

    for topic_id in (A, B):
        assert numbers(targets["x"], topic_id) == [0, 1, 2]
        assert numbers(targets["y"], topic_id) == [3, 4]


def test_members_without_a_partition_get_none():
    """There are more members than partitions, and topics that are not there."""
    targets = at_once(assign_range(GroupSpec({"x": BOTH, "y": BOTH}, {A: 1})))

    assert [len(targets["x"]), len(targets["y"])] == [1, 0]


def test_static_member_keeps_its_place_under_another_member_id():
    """The order is that of the instance ids where there are some."""
    members = {"z": BOTH._replace(instance_id="a"), "y": BOTH._replace(instance_id="b")}
    targets = at_once(assign_range(GroupSpec(members, {A: 2})))

    assert numbers(targets["z"], A) == [0]


def test_topic_that_nobody_reads_stays_out():
    """Its partitions are nobody's."""
    only_a = MemberSpec(frozenset({A}), NO_PARTITIONS)

    assert at_once(assign_range(GroupSpec({"x": only_a}, {A: 1, B: 4}))) == {
        "x": AssignedPartitions.of([(A, [0])])
    }
