"""The assignors of consumer groups: `range` and `uniform` deal partitions to members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heapreplace
from typing import Final
from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import (
    AssignedPartitions,
    TopicIdPartition,
    id_number,
    in_order,
    joined,
)
from ottla.runtime.scheduler import Work
from ottla.structs import NamedTuple


class MemberSpec(NamedTuple):
    """A member: the topics it reads, and the target that it had before."""

    topic_ids: frozenset[UUID]
    target: AssignedPartitions
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The members by id, and the partition count of each topic that exists."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


Assignor = Callable[[GroupSpec], Work[dict[str, AssignedPartitions]]]
"""Gives each partition of the topics that are read to exactly one member that reads its topic.

It may pause: it looks at nothing but the specification, which does not change.
"""

SLICE_STEPS: Final = 2_000
"""A step is work with one partition, topic or member; so many take some 10 ms."""
COST_OF_A_TARGET: Final = 5
"""A target, or its record, takes so many times as long to make as a step."""


class SlicePace:
    """Counts the steps of work, up to the end of a slice."""

    def __init__(self) -> None:
        self._left = SLICE_STEPS

    def is_over(self, steps: int) -> bool:
        """Whether it is time to pause, so many steps after the last question."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = SLICE_STEPS
        return True


def _readers(group: GroupSpec, order: Iterable[str]) -> Work[dict[UUID, list[str]]]:
    """The members that read each topic, in the order given."""
    pace = SlicePace()
    rank: dict[str, int] = {}
    alike: dict[frozenset[UUID], list[str]] = {}
    for member in order:
        rank[member] = len(rank)
        alike.setdefault(group.members[member].topic_ids, []).append(member)
    readers: dict[UUID, list[str]] = {}
    for topic_ids, members in alike.items():
        for topic_id in topic_ids:
            readers.setdefault(topic_id, []).extend(members)
            if pace.is_over(1):
                yield
    if len(alike) > 1:
        for members in readers.values():
            members.sort(key=rank.__getitem__)
            if pace.is_over(len(members)):
                yield
    return readers


class Share:
    """The partitions that one member is given, by topic, and how many they are."""

    __slots__ = ("count", "topics")

    def __init__(self) -> None:
        self.topics: dict[UUID, set[int]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, partition: TopicIdPartition) -> None:
        """One more."""
        topic_id, number = partition
        self.topics.setdefault(topic_id, set()).add(number)
        self.count += 1

    def remove(self, partition: TopicIdPartition) -> None:
        """One of them is for another member."""
        topic_id, number = partition
        self.topics[topic_id].remove(number)
        self.count -= 1


Given = dict[str, Share]
Owners = dict[TopicIdPartition, str]


def _frozen(given: Given) -> Work[dict[str, AssignedPartitions]]:
    pace, frozen = SlicePace(), {}
    for member, share in given.items():
        frozen[member] = joined((each, frozenset(of)) for each, of in share.topics.items())
        if pace.is_over(COST_OF_A_TARGET + len(share.topics)):
            yield
    return frozen


def assign_range(group: GroupSpec) -> Work[dict[str, AssignedPartitions]]:
    """Members are sorted by id; static ones by instance id, so they keep their place.

    Members that read the same topics get partitions of the same numbers, so that records with equal
    keys reach the same member. The first members get one more if the division leaves a remainder.
    """
    order = sorted(group.members, key=lambda member: group.members[member].instance_id or member)
    readers = yield from _readers(group, order)
    given: Given = {member: Share() for member in group.members}
    pace = SlicePace()
    for topic_id, count in group.partition_counts.items():
        members = readers.get(topic_id, ())
        start = 0
        for place, member in enumerate(members):
            size = count // len(members) + (place < count % len(members))
            for number in range(start, start + size):
                given[member].add(TopicIdPartition(topic_id, number))
                if pace.is_over(1):
                    yield
            start += size
    return (yield from _frozen(given))


def assign_uniform(group: GroupSpec) -> Work[dict[str, AssignedPartitions]]:
    """Keep the partitions of members, deal out the rest, then even out where it helps."""
    if not group.members:
        return {}
    given: Given = {member: Share() for member in group.members}
    owners = yield from _keep(group, given)
    if len({member.topic_ids for member in group.members.values()}) == 1:
        yield from _assign_to_equals(group, given, owners)
    else:
        yield from _assign_to_unequals(group, given, owners)
    return (yield from _frozen(given))


def _keep(group: GroupSpec, given: Given) -> Work[Owners]:
    """Give members their former partitions that exist and that they still read, each once."""
    pace = SlicePace()
    owners: Owners = {}
    for member, spec in group.members.items():
        for partition in spec.target:
            if (
                partition not in owners
                and partition.partition < group.partition_counts.get(partition.topic_id, 0)
                and partition.topic_id in spec.topic_ids
            ):
                owners[partition] = member
                given[member].add(partition)
            if pace.is_over(1):
                yield
    return owners


def _all_partitions(group: GroupSpec, topic_ids: Iterable[UUID]) -> Iterator[TopicIdPartition]:
    for topic_id in topic_ids:
        for number in range(group.partition_counts.get(topic_id, 0)):
            yield TopicIdPartition(topic_id, number)


def _assign_to_equals(group: GroupSpec, given: Given, owners: Owners) -> Work[None]:
    """All read the same topics: members' partition counts differ by at most one."""
    pace = SlicePace()
    topic_ids = sorted(next(iter(group.members.values())).topic_ids, key=id_number)
    count = sum(group.partition_counts.get(topic_id, 0) for topic_id in topic_ids)
    quota, rest = divmod(count, len(given))
    may_keep = _limits(given, quota, rest)
    rest -= sum(limit > quota for limit in may_keep.values())
    free = []
    for partition in _all_partitions(group, topic_ids):
        owner = owners.get(partition)
        if owner is not None and may_keep[owner]:
            may_keep[owner] -= 1
        else:
            free.append(partition)
            if owner is not None:
                given[owner].remove(partition)
        if pace.is_over(1):
            yield
    yield from _deal(iter(free), given, quota, rest)


def _limits(given: Given, quota: int, rest: int) -> dict[str, int]:
    """How many a member may keep: those that have most one more, so that fewer partitions move."""
    limits = {}
    for member in sorted(given, key=lambda member: (-len(given[member]), member)):
        limits[member] = quota + (rest > 0 and len(given[member]) > quota)
        rest -= limits[member] > quota
    return limits


def _deal(free: Iterator[TopicIdPartition], given: Given, quota: int, rest: int) -> Work[None]:
    """Fill each member up to the quota, and some of those that have no more by one more."""
    pace = SlicePace()
    for member in sorted(given):
        limit = quota + (rest > 0 and len(given[member]) <= quota)
        rest -= limit > quota
        for _ in range(limit - len(given[member])):
            given[member].add(next(free))
            if pace.is_over(1):
                yield


def _assign_to_unequals(group: GroupSpec, given: Given, owners: Owners) -> Work[None]:
    """Deal each partition to the reader with the fewest, topics with few readers first."""
    pace = SlicePace()
    readers = yield from _readers(group, sorted(group.members))
    for topic_id in sorted(readers, key=lambda each: (len(readers[each]), each.int)):
        heap: list[tuple[int, str]] = []
        for partition in _all_partitions(group, [topic_id]):
            if pace.is_over(1):
                yield
            if partition in owners:
                continue
            if not heap:
                heap = _by_count(readers[topic_id], given)
            count, member = heap[0]
            given[member].add(partition)
            heapreplace(heap, (count + 1, member))
    yield from _even_out(readers, given)


def _by_count(members: Iterable[str], given: Given) -> list[tuple[int, str]]:
    heap = [(len(given[member]), member) for member in members]
    heapify(heap)
    return heap


def _even_out(readers: Mapping[UUID, list[str]], given: Given) -> Work[None]:
    """Move partitions to readers of their topic that have at least two fewer, until none has.

    Each move brings the counts of two members closer together, so it comes to an end; and none
    makes the lowest count lower.
    """
    pace = SlicePace()
    has_moved = True
    while has_moved:
        has_moved = False
        lowest = min(map(len, given.values()))
        for member in sorted(given, key=lambda member: (-len(given[member]), member)):
            mine = given[member]
            if len(mine) - lowest <= 1:
                break
            for topic_id, numbers in in_order(mine.topics):
                others = readers[topic_id]
                if pace.is_over(len(numbers) + len(others)):
                    yield
                partitions = (TopicIdPartition(topic_id, number) for number in numbers)
                has_moved |= _move_to_fewest(partitions, mine, others, given)


def _move_to_fewest(
    partitions: Iterable[TopicIdPartition],
    mine: Share,
    readers: Iterable[str],
    given: Given,
) -> bool:
    """Move partitions of one topic while some reader has at least two fewer; whether any did."""
    heap = _by_count(readers, given)
    has_moved = False
    for partition in partitions:
        count, least = heap[0]
        if len(mine) - count <= 1:
            break
        mine.remove(partition)
        given[least].add(partition)
        heapreplace(heap, (count + 1, least))
        has_moved = True
    return has_moved


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors, by the names that `group.consumer.assignors` and members use."""
