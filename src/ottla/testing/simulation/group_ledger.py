"""What a group was given and has committed, as its members tell it, and what cannot be so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.clients.committed_offsets import GroupMembership
from ottla.structs import TopicPartition
from ottla.testing.simulation.workload import History


class Ownership(NamedTuple):
    """Who was given records of a partition, in which generation or member epoch."""

    generation: int
    member_id: str


NOBODY = Ownership(-1, "")


class GroupLedger:
    """The book of one group, in which all of its members write.

    - No partition is given to two members in one generation.
    - No record is left out: a partition goes on, whoever reads it, from where it was or earlier.
    - No commit of a member is taken while somebody newer has the partition already.

    A group that all members have left, and that has no offsets, is removed; generations of the next
    one with its name begin anew. `removals` tells how often that has happened.
    """

    def __init__(self, history: History, removals: Callable[[], int] = lambda: 0) -> None:
        self.history = history
        self._removals = removals
        self._known_removals = 0
        self._former_members: set[str] = set()
        self.ends: dict[TopicPartition, int] = {}
        self._owners: dict[tuple[TopicPartition, int], str] = {}
        self._latest: dict[TopicPartition, Ownership] = {}

    def note_given(
        self, partition: TopicPartition, offset: int, membership: GroupMembership
    ) -> None:
        """A member was given a record of a partition that has no transactions in it."""
        end = self.ends.get(partition, 0)
        if offset > end:
            self._complain(
                f"{partition}: {membership.member_id} was given offset {offset}; nobody had {end}"
            )
        self.ends[partition] = max(end, offset + 1)
        if membership.member_id not in self._former_members:
            self._note_owner(partition, membership)

    def _note_owner(self, partition: TopicPartition, membership: GroupMembership) -> None:
        generation, member_id = membership.generation, membership.member_id
        owner = self._owners.setdefault((partition, generation), member_id)
        if owner != member_id:
            if self._has_begun_anew():
                self._owners[partition, generation] = member_id
            else:
                self._complain(
                    f"{partition} was given to {owner} and to {member_id} in generation "
                    f"{generation}"
                )
        if generation > self.owner_of(partition).generation:
            self._latest[partition] = Ownership(generation, member_id)

    def _has_begun_anew(self) -> bool:
        """Whether the group was removed since this was asked last: what was noted is of another."""
        count = self._removals()
        if count == self._known_removals:
            return False
        self._known_removals = count
        self._former_members.update(self._owners.values())
        self._owners.clear()
        self._latest.clear()
        return True

    def owner_of(self, partition: TopicPartition) -> Ownership:
        """Who was given records of the partition in the newest generation so far."""
        return self._latest.get(partition, NOBODY)

    def note_committed(
        self, partition: TopicPartition, owner: Ownership, membership: GroupMembership
    ) -> None:
        """A commit was taken from a member; `owner` had the partition when it was sent."""
        is_stale = owner.generation > membership.generation
        if owner.member_id != membership.member_id and is_stale and not self._has_begun_anew():
            self._complain(
                f"{partition}: a commit of {membership} was taken; {owner} had the partition"
            )

    def _complain(self, text: str) -> None:
        self.history.violations.append(text)
