"""The input and output of assignors, and the assignors `range` and `uniform`.

Wing: attaches to `group_coordinator`, for the newer group protocol (KIP-848); the core works
without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordinator.group.consumer.consumer_group_records import Assignment, TopicIdPartition


class MemberSpec(NamedTuple):
    """A member: the topics it reads, and the target that it had before."""

    topic_ids: frozenset[UUID]
    target: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The members by id, and the partition count of each topic that exists."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Gives each partition of the topics that are read to exactly one member that reads its topic."""


# The range assignor: neighbouring partitions of each topic, the same numbers of every topic.
#
# Members that read the same topics get partitions of the same numbers, so that records with equal
# keys reach the same member. The first members get one more if the division leaves a remainder.


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    """Members are sorted by id; static ones by instance id, so they keep their place."""
    order = sorted(group.members, key=lambda member: group.members[member].instance_id or member)
    given: dict[str, list[TopicIdPartition]] = {member: [] for member in group.members}
    for topic_id, count in group.partition_counts.items():
        readers = [member for member in order if topic_id in group.members[member].topic_ids]
        if not readers:
            continue
        size, rest = divmod(count, len(readers))
        start = 0
        for place, member in enumerate(readers):
            end = start + size + (place < rest)
            given[member] += [TopicIdPartition(topic_id, number) for number in range(start, end)]
            start = end
    return {member: frozenset(partitions) for member, partitions in given.items()}


# The uniform assignor: as even as the subscriptions allow, with as few moves as possible.


Given = dict[str, set[TopicIdPartition]]


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    """Keep what members have, deal out the rest, then even out where it helps."""
    if not group.members:
        return {}
    given = _kept(group)
    if len({member.topic_ids for member in group.members.values()}) == 1:
        _assign_to_equals(group, given)
    else:
        _assign_to_unequals(group, given)
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _kept(group: GroupSpec) -> Given:
    """What members had that still exists and that they still read; each partition once."""
    taken: set[TopicIdPartition] = set()
    given: Given = {}
    for member, spec in group.members.items():
        kept = {
            partition
            for partition in spec.target
            if partition.topic_id in spec.topic_ids
            and partition.partition < group.partition_counts.get(partition.topic_id, 0)
            and partition not in taken
        }
        given[member] = kept
        taken |= kept
    return given


def _all_partitions(group: GroupSpec, topic_ids: Collection[UUID]) -> Iterator[TopicIdPartition]:
    for topic_id in sorted(topic_ids):
        for number in range(group.partition_counts.get(topic_id, 0)):
            yield TopicIdPartition(topic_id, number)


def _assign_to_equals(group: GroupSpec, given: Given) -> None:
    """All read the same topics: members' partition counts differ by at most one."""
    topic_ids = next(iter(group.members.values())).topic_ids
    partitions = list(_all_partitions(group, topic_ids))
    quota, rest = divmod(len(partitions), len(given))
    # Members that have most may keep one more, so that fewer partitions move.
    for member in sorted(given, key=lambda member: (-len(given[member]), member)):
        limit = quota + (rest > 0 and len(given[member]) > quota)
        rest -= limit > quota
        for partition in sorted(given[member])[limit:]:
            given[member].discard(partition)
    taken = set().union(*given.values())
    free = iter([partition for partition in partitions if partition not in taken])
    for member in sorted(given):
        limit = quota + (rest > 0 and len(given[member]) <= quota)
        rest -= limit > quota
        for _ in range(limit - len(given[member])):
            given[member].add(next(free))


def _assign_to_unequals(group: GroupSpec, given: Given) -> None:
    """Deal each partition to the reader with the fewest, topics with few readers first."""
    readers: dict[UUID, list[str]] = {}
    for member in sorted(group.members):
        for topic_id in group.members[member].topic_ids:
            readers.setdefault(topic_id, []).append(member)
    taken = set().union(*given.values())
    for topic_id in sorted(readers, key=lambda topic_id: (len(readers[topic_id]), topic_id)):
        free = [p for p in _all_partitions(group, [topic_id]) if p not in taken]
        _deal(free, readers[topic_id], given)
    _even_out(readers, given)


def _deal(free: list[TopicIdPartition], readers: list[str], given: Given) -> None:
    heap = [(len(given[member]), member) for member in readers]
    heapify(heap)
    for partition in free:
        count, member = heappop(heap)
        given[member].add(partition)
        heappush(heap, (count + 1, member))


def _even_out(readers: Mapping[UUID, list[str]], given: Given) -> None:
    """Move partitions to readers of their topic that have at least two fewer, until none has.

    Each move brings the counts of two members closer together, so it comes to an end.
    """
    has_moved = True
    while has_moved:
        has_moved = False
        for member in sorted(given, key=lambda member: (-len(given[member]), member)):
            for partition in sorted(given[member]):
                least = min(readers[partition.topic_id], key=lambda other: len(given[other]))
                if len(given[member]) - len(given[least]) > 1:
                    given[member].discard(partition)
                    given[least].add(partition)
                    has_moved = True


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that `group.consumer.assignors` and members use."""
