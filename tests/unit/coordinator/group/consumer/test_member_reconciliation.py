"""One member's next step, by the state that it is in and what it says that it owns."""

from __future__ import annotations

from uuid import UUID

from ottla.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    CurrentAssignment,
    MemberState,
    TopicIdPartition,
)
from ottla.coordinator.group.consumer.member_reconciliation import next_assignment

P0, P1, P2 = (TopicIdPartition(UUID(int=1), number) for number in range(3))
STABLE, UNREVOKED, UNRELEASED = MemberState
SINCE = {P0: 2, P1: 5}
HAS_TWO = CurrentAssignment(5, 4, STABLE, frozenset({P0, P1}), NO_PARTITIONS, SINCE)
REVOKES = CurrentAssignment(5, 5, UNREVOKED, frozenset({P0}), frozenset({P1}), SINCE)


def step(current, target, owned, free=(P0, P1, P2), epoch=6):
    return next_assignment(current, frozenset(target), epoch, frozenset(free).intersection, owned)


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
    assert step(REVOKES, {P0, P2}, frozenset({P0, P1})) is REVOKES


def test_member_that_has_revoked_goes_on():
    """With all that is free."""
    assert step(REVOKES, {P0, P2}, frozenset({P0})) == CurrentAssignment(
        6, 5, STABLE, frozenset({P0, P2}), NO_PARTITIONS, {P0: 2, P2: 6}
    )


def test_member_that_owns_nothing_need_not_revoke():
    """It has just joined again."""
    following = step(HAS_TWO, {P2}, NO_PARTITIONS)

    assert following == CurrentAssignment(6, 5, STABLE, frozenset({P2}), NO_PARTITIONS, {P2: 6})


def test_member_waits_for_what_another_owns():
    """In its new epoch, and is written once."""
    following = step(HAS_TWO, {P0, P1, P2}, None, free=())

    assert following.state is UNRELEASED
    assert following.assigned == {P0, P1}
    assert step(following, {P0, P1, P2}, None, free=()) is following
    assert step(following, {P0, P1, P2}, None).state is STABLE


def test_target_may_change_while_a_member_revokes():
    """What it keeps may have to go as well."""
    following = step(REVOKES, {P2}, frozenset({P0}))

    assert following == CurrentAssignment(5, 5, UNREVOKED, NO_PARTITIONS, frozenset({P0}), {P0: 2})


def test_partition_that_is_back_counts_from_its_new_epoch():
    """As does what a member has that began anew: its old epochs are nobody's any more."""
    gone = step(HAS_TWO, {P0}, frozenset({P0}))
    back = step(gone, {P0, P1}, None, epoch=7)
    anew = step(CurrentAssignment(assigned=frozenset({P0})), {P0}, NO_PARTITIONS, epoch=8)

    assert back.assignment_epochs == {P0: 2, P1: 7}
    assert anew.assignment_epochs == {P0: 8}


def test_partition_was_a_members_from_its_epoch_to_the_present_one():
    """Where the epoch is not known, only in the present one (KIP-1251)."""
    assert [HAS_TWO.has_had(P0, epoch) for epoch in (1, 2, 5, 6)] == [False, True, True, False]
    assert [HAS_TWO.has_had(P2, epoch) for epoch in (4, 5)] == [False, True]
