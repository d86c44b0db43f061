"""The interface of assignors, their input for each member, and the two simple ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import ClassVar

from ottla.structs import NO_GENERATION, TopicPartition

Assignment = dict[str, list[TopicPartition]]


@dataclass(slots=True)
class MemberSubscription:
    """The topics and partitions of a member; `owned` is what it reported for `generation`."""

    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    user_data: bytes | None = None


class Assignor(ABC):
    """Divides partitions among members: every partition of a wanted topic has exactly one owner.

    A cooperative assignor may leave a partition out for one round, until its owner has released it.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """The user data that this member sends to the leader's assignor, besides its topics."""
        return None

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """The partitions of each member; topics without partitions do not exist (yet)."""


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order that decides who gets the remainder: static members first (KIP-345).

    Static members are ordered by instance id, so that a restart does not move their partitions.
    """

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    return sorted(members, key=order)


def wanted_partitions(
    partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> list[TopicPartition]:
    """All partitions of all topics that any member wants, topic by topic."""
    topics = {topic for member in members.values() for topic in member.topics}
    return [
        TopicPartition(topic, partition)
        for topic in sorted(topics)
        for partition in range(partition_counts.get(topic, 0))
    ]


# Contiguous ranges of each topic's partitions.


class RangeAssignor(Assignor):
    """Topic by topic, floor(partitions / members) to each; the first members take the remainder.

    Nine partitions, three members: 0-2, 3-5, 6-8. Topics with equal counts are divided alike, so
    that partition n of one and partition n of the other have the same owner.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        ordered = sorted_members(members)
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            wanting = [member_id for member_id in ordered if topic in members[member_id].topics]
            share, remainder = divmod(partition_counts.get(topic, 0), len(wanting))
            start = 0
            for index, member_id in enumerate(wanting):
                end = start + share + (index < remainder)
                assignment[member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return assignment


# Partitions dealt out one at a time.


class RoundRobinAssignor(Assignor):
    """All partitions in order, each to the next member that wants its topic.

    Nine partitions, three members: 0 3 6, 1 4 7, 2 5 8.
    """

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member_id: [] for member_id in members}
        turns = cycle(sorted_members(members))
        for partition in wanted_partitions(partition_counts, members):
            owner = next(turns)
            while partition.topic not in members[owner].topics:
                owner = next(turns)
            assignment[owner].append(partition)
        return assignment
