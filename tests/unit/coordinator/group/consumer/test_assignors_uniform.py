"""The uniform assignor: even, sticky, and each partition once."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from ottla.coordinator.group.consumer.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    TopicIdPartition,
)
from ottla.coordinator.group.consumer.assignors import GroupSpec, MemberSpec, assign_uniform
from ottla.runtime.scheduler import at_once

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def group(counts, **topics):
    """Members by the topics that they read; nobody has anything yet."""
    specs = {name: MemberSpec(frozenset(read), NO_PARTITIONS) for name, read in topics.items()}
    return GroupSpec(specs, counts)


def again(spec, targets, **topics):
    """The same group later: members that stay have what they were given."""
    members = {
        name: MemberSpec(frozenset(read), targets.get(name, NO_PARTITIONS))
        for name, read in topics.items()
    }
    return GroupSpec(members, spec.partition_counts)


def sizes(targets):
    return sorted(len(target) for target in targets.values())


def test_members_that_read_the_same_differ_by_one_at_most():
    """Seven partitions for three members."""
    targets = at_once(assign_uniform(group({A: 4, B: 3}, x=[A, B], y=[A, B], z=[A, B])))

    assert sizes(targets) == [2, 2, 3]
    assert len(frozenset().union(*targets.values())) == 7


def test_nothing_moves_without_need():
    """A newcomer gets what is too much; the others keep the rest."""
    first = group({A: 6}, x=[A], y=[A])
    before = at_once(assign_uniform(first))

    after = at_once(assign_uniform(again(first, before, x=[A], y=[A], z=[A])))

    assert sizes(after) == [2, 2, 2]
    assert after["x"] <= before["x"]
    assert after["y"] <= before["y"]


def test_partitions_of_a_member_that_left_are_shared():
    """The others keep all that they had."""
    first = group({A: 6}, x=[A], y=[A], z=[A])
    before = at_once(assign_uniform(first))

    after = at_once(assign_uniform(again(first, before, x=[A], y=[A])))

    assert sizes(after) == [3, 3]
    assert before["x"] <= after["x"]


def test_partitions_go_only_to_their_readers():
    """A member that reads less gets the more of that."""
    targets = at_once(assign_uniform(group({A: 2, B: 4}, x=[A, B], y=[B])))

    assert sizes(targets) == [3, 3]
    assert {partition.topic_id for partition in targets["y"]} == {B}


def test_what_is_gone_is_not_kept():
    """Partitions of topics that are not there, or not read any more."""
    had = AssignedPartitions(
        {TopicIdPartition(A, 0), TopicIdPartition(C, 0), TopicIdPartition(A, 9)}
    )
    spec = GroupSpec({"x": MemberSpec(frozenset({A, B}), had)}, {A: 1})

    assert at_once(assign_uniform(spec)) == {"x": AssignedPartitions({TopicIdPartition(A, 0)})}


def test_group_without_members_gets_nothing():
    """Nobody is there to read."""
    assert at_once(assign_uniform(GroupSpec({}, {A: 3}))) == {}


def parts(topic_id, *numbers):
    return AssignedPartitions.of([(topic_id, numbers)])


def holding(counts, **targets):
    """Members that all read A, and what they have."""
    return GroupSpec(
        {name: MemberSpec(frozenset({A}), target) for name, target in targets.items()}, counts
    )


def test_member_that_has_most_keeps_one_more():
    """So that as few partitions move as can be."""
    spec = holding({A: 7}, x=parts(A, 0, 1), y=parts(A, 2, 3, 4, 5, 6), z=NO_PARTITIONS)

    assert at_once(assign_uniform(spec)) == {
        "x": parts(A, 0, 1),
        "y": parts(A, 2, 3, 4),
        "z": parts(A, 5, 6),
    }


def test_member_that_has_no_more_than_its_share_gets_one_more():
    """Where nobody has more, the first by name; nobody gives anything up."""
    spec = holding({A: 5}, x=parts(A, 4), y=parts(A, 3), z=parts(A, 2))

    assert at_once(assign_uniform(spec)) == {
        "x": parts(A, 0, 4),
        "y": parts(A, 1, 3),
        "z": parts(A, 2),
    }


def test_partition_that_two_members_claim_stays_with_the_first():
    """As after a rebalance that failed; the other one gets another."""
    spec = holding({A: 2}, x=parts(A, 0), y=parts(A, 0))

    assert at_once(assign_uniform(spec)) == {"x": parts(A, 0), "y": parts(A, 1)}


def test_free_partitions_are_dealt_to_those_who_have_fewest():
    """Topics with few readers first: those of the others can be given to anybody."""
    spec = GroupSpec(
        {
            "x": MemberSpec(frozenset({A, B}), parts(B, 0)),
            "y": MemberSpec(frozenset({B}), NO_PARTITIONS),
            "z": MemberSpec(frozenset({B}), parts(B, 1)),
        },
        {A: 2, B: 5},
    )
    targets = at_once(assign_uniform(spec))

    assert targets == {
        "x": parts(A, 0, 1) | parts(B, 0),
        "y": parts(B, 2, 3),
        "z": parts(B, 1, 4),
    }


def test_partition_moves_only_where_two_fewer_are():
    """One more than another has is even enough."""
    spec = GroupSpec(
        {
            "x": MemberSpec(frozenset({A, B}), parts(A, 0, 1)),
            "y": MemberSpec(frozenset({A}), parts(A, 2)),
        },
        {A: 3},
    )

    assert at_once(assign_uniform(spec)) == {"x": parts(A, 0, 1), "y": parts(A, 2)}


@pytest.mark.parametrize("seed", range(40))
def test_members_that_read_the_same_share_all_whatever_they_had(seed):
    """Evenly, and nobody is given what another member keeps."""
    chance = random.Random(seed)
    counts = {A: chance.randrange(9), B: chance.randrange(9)}
    partitions = [TopicIdPartition(topic, n) for topic in counts for n in range(counts[topic])]
    chance.shuffle(partitions)
    members = [f"m{number}" for number in range(chance.randrange(1, 6))]
    had: dict[str, set[TopicIdPartition]] = {member: set() for member in members}
    for partition in partitions[: chance.randrange(len(partitions) + 1)]:
        had[chance.choice(members)].add(partition)
    specs = {each: MemberSpec(frozenset({A, B}), AssignedPartitions(had[each])) for each in members}
    targets = at_once(assign_uniform(GroupSpec(specs, counts)))
    quota, rest = divmod(len(partitions), len(members))

    assert sizes(targets) == [quota] * (len(members) - rest) + [quota + 1] * rest
    assert frozenset().union(*targets.values()) == set(partitions)
    moved = sum(len(had[each].difference(targets[each])) for each in members)
    most = sorted((len(had[each]) for each in members), reverse=True)
    limits = [quota + (place < rest) for place in range(len(members))]
    assert moved == sum(max(0, size - limit) for size, limit in zip(most, limits, strict=True))


def test_partitions_that_are_no_longer_there_are_not_kept():
    """The topic was made anew with fewer."""
    had = AssignedPartitions.of([(A, range(4))])
    specs = {"x": MemberSpec(frozenset({A}), had), "y": MemberSpec(frozenset({A}), NO_PARTITIONS)}
    targets = at_once(assign_uniform(GroupSpec(specs, {A: 3})))

    assert sizes(targets) == [1, 2]
    assert frozenset().union(*targets.values()) == {TopicIdPartition(A, n) for n in range(3)}
