"""One member's next step, by the state that it is in and what it says that it owns."""

from __future__ import annotations

from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    TopicIdPartition,
)
from ottla.coordinator.group.consumer.consumer_member import CurrentAssignment, MemberState
from ottla.coordinator.group.consumer.member_reconciliation import next_assignment

TOPIC = UUID(int=1)
P0, P1, P2 = (TopicIdPartition(TOPIC, number) for number in range(3))
STABLE, UNREVOKED, UNRELEASED = MemberState
SINCE = {TOPIC: {0: 2, 1: 5}}
HAS_TWO = CurrentAssignment(5, 4, STABLE, AssignedPartitions({P0, P1}), NO_PARTITIONS, SINCE)
REVOKES = CurrentAssignment(
    5, 5, UNREVOKED, AssignedPartitions({P0}), AssignedPartitions({P1}), SINCE
)


def step(current, target, owned, free=(P0, P1, P2), epoch=6):
    return next_assignment(
        current, AssignedPartitions(target), epoch, AssignedPartitions(free).__and__, owned
    )


def test_member_that_has_its_target_stays():
    """Nothing is written for it."""
    assert step(HAS_TWO, {P2}, None, epoch=5) is HAS_TWO


def test_member_goes_to_the_next_epoch_with_what_it_has():
    """Where nothing changes for it but the epoch."""
    assert step(HAS_TWO, {P0, P1}, None) == HAS_TWO._replace(
        member_epoch=6, previous_member_epoch=5
    )


def test_member_revokes_before_it_gets_anything():
    """It keeps its epoch."""
    assert step(HAS_TWO, {P0, P2}, None) == REVOKES


def test_member_that_says_nothing_has_not_revoked():
    """A silent member has not revoked a partition, and neither has one that still owns it."""
    assert step(REVOKES, {P0, P2}, None) is REVOKES
    assert step(REVOKES, {P0, P2}, AssignedPartitions({P0, P1})) is REVOKES


def test_member_that_has_revoked_goes_on():
    """With all that is free."""
    assert step(REVOKES, {P0, P2}, AssignedPartitions({P0})) == CurrentAssignment(
        6, 5, STABLE, AssignedPartitions({P0, P2}), NO_PARTITIONS, {TOPIC: {0: 2, 2: 6}}
    )


def test_member_that_owns_nothing_need_not_revoke():
    """It has just joined again."""
    following = step(HAS_TWO, {P2}, NO_PARTITIONS)

    assert following == CurrentAssignment(
        6, 5, STABLE, AssignedPartitions({P2}), NO_PARTITIONS, {TOPIC: {2: 6}}
    )


def test_member_waits_for_what_another_owns():
    """In its new epoch, and is written once."""
    following = step(HAS_TWO, {P0, P1, P2}, None, free=())

    assert following.state is UNRELEASED
    assert following.assigned == AssignedPartitions({P0, P1})
    assert step(following, {P0, P1, P2}, None, free=()) is following
    assert step(following, {P0, P1, P2}, None).state is STABLE


def test_target_may_change_while_a_member_revokes():
    """What it keeps may have to go as well."""
    following = step(REVOKES, {P2}, AssignedPartitions({P0}))

    assert following == CurrentAssignment(
        5, 5, UNREVOKED, NO_PARTITIONS, AssignedPartitions({P0}), {TOPIC: {0: 2}}
    )


def test_partition_that_is_back_counts_from_its_new_epoch():
    """As does what a member has that began anew: its old epochs are nobody's any more."""
    gone = step(HAS_TWO, {P0}, AssignedPartitions({P0}))
    back = step(gone, {P0, P1}, None, epoch=7)
    anew = step(CurrentAssignment(assigned=AssignedPartitions({P0})), {P0}, NO_PARTITIONS, epoch=8)

    assert back.assignment_epochs == {TOPIC: {0: 2, 1: 7}}
    assert anew.assignment_epochs == {TOPIC: {0: 8}}


def test_partition_was_a_members_from_its_epoch_to_the_present_one():
    """Where the epoch is not known, only in the present one (KIP-1251)."""
    assert [HAS_TWO.has_had(P0, epoch) for epoch in (1, 2, 5, 6)] == [False, True, True, False]
    assert [HAS_TWO.has_had(P2, epoch) for epoch in (4, 5)] == [False, True]
