"""An assignment is a set of partitions, whatever it is made of."""

from __future__ import annotations

import operator
import random
from uuid import UUID

import pytest

from ottla.coordinator.group.consumer.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    TopicIdPartition,
    in_order,
)

TOPICS = [UUID(int=number) for number in range(1, 4)]


def some(chance):
    """A few of the partitions of three topics."""
    everything = [TopicIdPartition(topic, number) for topic in TOPICS for number in range(3)]
    return frozenset(chance.sample(everything, chance.randrange(len(everything))))


@pytest.mark.parametrize("act", [operator.and_, operator.or_, operator.sub])
@pytest.mark.parametrize("seed", range(8))
def test_operations_are_those_of_a_frozenset(act, seed):
    """With no topic left of which there is no partition."""
    chance = random.Random(seed)
    for _ in range(20):
        one, other = some(chance), some(chance)
        found = act(AssignedPartitions(one), AssignedPartitions(other))

        assert found == AssignedPartitions(act(one, other))
        assert all(found.topics.values())
        assert frozenset(found) == act(one, other)
        assert len(found) == len(act(one, other))


def test_comparisons_are_those_of_a_frozenset():
    """As are the question whether a partition is in it, and whether there is any."""
    chance = random.Random(3)
    for _ in range(100):
        one, other = some(chance), some(chance)

        assert (AssignedPartitions(one) <= AssignedPartitions(other)) == (one <= other)
        assert AssignedPartitions(one & other) <= AssignedPartitions(one)
        assert (AssignedPartitions(one) == AssignedPartitions(other)) == (one == other)
        assert hash(AssignedPartitions(sorted(one))) == hash(AssignedPartitions(one))
        assert bool(AssignedPartitions(one)) == bool(one)
        assert all((each in AssignedPartitions(one)) == (each in one) for each in other)
    assert TOPICS[0] not in AssignedPartitions(one)
    assert AssignedPartitions(one) != one


def test_topic_that_is_named_again_has_all_its_partitions():
    """A request may do so; one without any is none."""
    a, b, c = TOPICS
    found = AssignedPartitions.of([(a, [2, 0]), (b, []), (c, range(1)), (a, [1, 0])])

    assert found.topics == {a: {0, 1, 2}, c: {0}}
    assert list(in_order(found.topics)) == [(a, [0, 1, 2]), (c, [0])]
    assert AssignedPartitions.of([(b, [])]) == NO_PARTITIONS
    assert repr(NO_PARTITIONS) == "AssignedPartitions([])"
