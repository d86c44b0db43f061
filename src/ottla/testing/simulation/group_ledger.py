"""What a group was given and has committed, as its members tell it, and what cannot be so."""

from __future__ import annotations

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
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.ends: dict[TopicPartition, int] = {}
        self._owners: dict[tuple[TopicPartition, int], str] = {}
        self._latest: dict[TopicPartition, Ownership] = {}

    def note_given(
        self, partition: TopicPartition, offset: int, membership: GroupMembership
    ) -> None:
        """A member was given a record of a partition that has no transactions in it."""
        generation, member_id = membership.generation, membership.member_id
        owner = self._owners.setdefault((partition, generation), member_id)
        if owner != member_id:
            self._complain(
                f"{partition} was given to {owner} and to {member_id} in generation {generation}"
            )
        end = self.ends.get(partition, 0)
        if offset > end:
            self._complain(
                f"{partition}: {member_id} was given offset {offset}; nobody had {end} before"
            )
        self.ends[partition] = max(end, offset + 1)
        if generation > self.owner_of(partition).generation:
            self._latest[partition] = Ownership(generation, member_id)

    def owner_of(self, partition: TopicPartition) -> Ownership:
        """Who was given records of the partition in the newest generation so far."""
        return self._latest.get(partition, NOBODY)

    def note_committed(
        self, partition: TopicPartition, owner: Ownership, membership: GroupMembership
    ) -> None:
        """A commit was taken from a member; `owner` had the partition when it was sent."""
        if owner.member_id != membership.member_id and owner.generation > membership.generation:
            self._complain(
                f"{partition}: a commit of {membership} was taken; {owner} had the partition"
            )

    def _complain(self, text: str) -> None:
        self.history.violations.append(text)
