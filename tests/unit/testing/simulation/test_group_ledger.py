"""What the book of a simulated group takes for a broken promise, and what not."""

from __future__ import annotations

import pytest

from ottla.clients.committed_offsets import GroupMembership
from ottla.structs import TopicPartition
from ottla.testing.simulation.group_ledger import GroupLedger
from ottla.testing.simulation.invariants import History

PARTITION = TopicPartition("t", 0)


class Group:
    """A group that can be removed, and its ledger."""

    def __init__(self) -> None:
        self.removals = 0
        self.ledger = GroupLedger(History(), lambda: self.removals)

    def give(self, generation: int, member_id: str, offset: int = 0) -> None:
        self.ledger.note_given(PARTITION, offset, GroupMembership(generation, member_id))

    @property
    def violations(self) -> list[str]:
        return self.ledger.history.violations


@pytest.fixture
def group() -> Group:
    return Group()


def test_two_owners_in_one_generation_are_noticed(group):
    """Whatever became of the group before."""
    group.give(1, "a")
    group.removals += 1
    group.give(1, "b")
    assert group.violations == []

    group.give(1, "c")
    assert len(group.violations) == 1


def test_member_of_a_removed_group_works_on_what_it_has(group):
    """It was paused; the generations of its group are not those of the next one."""
    group.give(1, "a")
    group.removals += 1
    group.give(1, "b")

    group.give(1, "a")

    assert group.violations == []


def test_offset_that_nobody_had_before_is_noticed(group):
    """Somebody has committed what was not read."""
    group.give(1, "a", offset=0)
    group.give(1, "a", offset=2)
    assert len(group.violations) == 1


def test_commit_behind_the_back_of_a_newer_owner_is_noticed(group):
    """Not one in a group that was removed, and has begun its generations anew."""
    group.give(5, "a")
    old = group.ledger.owner_of(PARTITION)
    group.ledger.note_committed(PARTITION, old, GroupMembership(4, "b"))
    assert len(group.violations) == 1

    group.removals += 1
    group.ledger.note_committed(PARTITION, old, GroupMembership(1, "c"))
    assert len(group.violations) == 1
