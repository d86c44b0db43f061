"""Replicas go round the brokers."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.controller.topic_assignment import (
    assign_more_partitions,
    assign_new_topic,
    assign_replicas,
    check_assignment,
    check_replication_factor,
)
from ottla.errors import ErrorCode, KafkaError

FIVE = [0, 1, 2, 3, 4]
NO_RACKS = dict.fromkeys(FIVE)


def test_replicas_go_round_as_in_the_example():
    """The table in the module's docstring: the distance grows with each round."""
    assignment = assign_replicas(FIVE, range(7), 3, 0, 0)

    assert list(assignment.values()) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
    ]


def test_one_broker_gets_everything():
    """There is nobody to go round to."""
    assert assign_replicas([7], range(2), 1, 0, 0) == {0: (7,), 1: (7,)}


@pytest.mark.parametrize("replication_factor", [1, 2, 3, 5])
def test_load_is_even(replication_factor):
    """Ten partitions on five brokers: each leads two and has its share of replicas."""
    assignment = assign_new_topic(NO_RACKS, 10, replication_factor, random.Random(1).randrange)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    all_replicas = Counter(broker for replicas in assignment.values() for broker in replicas)

    assert set(leaders.values()) == {2}
    assert set(all_replicas.values()) == {2 * replication_factor}
    assert all(len(set(replicas)) == replication_factor for replicas in assignment.values())


def test_first_broker_is_chosen_by_chance():
    """Otherwise broker 0 would lead all small topics."""
    chance = random.Random(1)
    leaders = {assign_new_topic(NO_RACKS, 1, 1, chance.randrange)[0][0] for _ in range(50)}

    assert leaders == set(FIVE)


def test_more_partitions_go_on_where_the_round_was():
    """The new ones continue after the old ones."""
    existing = assign_replicas(FIVE, range(3), 2, 2, 2)

    assert assign_more_partitions(NO_RACKS, existing, 5) == {3: (0, 3), 4: (1, 4)}


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "error"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-5, 1, ErrorCode.INVALID_PARTITIONS),
        (2**31 - 1, 1, ErrorCode.INVALID_PARTITIONS),
        (10_001, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -5, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_absurd_numbers_are_refused_before_anything_is_made(partitions, replication_factor, error):
    """No memory is taken for what is refused."""
    with pytest.raises(KafkaError) as caught:
        assign_new_topic(NO_RACKS, partitions, replication_factor, random.Random().randrange)

    assert caught.value.error is error


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ({0: (0, 1), 2: (1, 0)}, "must be 0 to 1"),
        ({0: ()}, "must have some"),
        ({0: (1, 1)}, "a broker of its own"),
        ({0: (9,)}, "do not live: 9"),
        ({0: (0, 1), 1: (0,)}, "as the others"),
    ],
)
def test_bad_assignment_of_a_user_is_refused(assignment, reason):
    """The sentence says which partition is wrong."""
    with pytest.raises(KafkaError, match=reason) as caught:
        check_assignment(assignment, range(len(assignment)), FIVE)

    assert caught.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_added_partitions_have_as_many_replicas_as_the_old_ones():
    """The topic's replication factor is the measure."""
    check_assignment({3: (0, 1)}, range(3, 4), FIVE, replication_factor=2)
    with pytest.raises(KafkaError, match="it must have 2"):
        check_assignment({3: (0,)}, range(3, 4), FIVE, replication_factor=2)


def test_long_lists_of_a_peer_are_shown_in_part():
    """An error message is no place for ten thousand numbers."""
    with pytest.raises(KafkaError) as caught:
        check_assignment(dict.fromkeys(range(1, 5001), (0,)), range(5000), FIVE)

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("brokers", "rule"),
    [([0], "must be 1: one broker lives"), ([0, 1], "must be from 1 to 2, the number of live")],
)
def test_too_many_replicas_are_refused_with_the_rule(brokers, rule):
    """`From 1 to 1` is no rule that anybody would write down."""
    with pytest.raises(KafkaError, match=f"replication factor 3: {rule}"):
        check_replication_factor(3, brokers)


@pytest.mark.parametrize("count", [9, 10, 11])
def test_list_that_is_shown_in_part_says_so(count):
    """Up to ten numbers are the whole list."""
    with pytest.raises(KafkaError) as caught:
        check_assignment(dict.fromkeys(range(1, count + 1), (0,)), range(count), FIVE)

    shown = ", ".join(str(number) for number in range(1, min(count, 10) + 1))
    assert f"partitions {shown}{', ...' if count > 10 else ''} are given" in str(caught.value)


@pytest.mark.parametrize(
    "assign",
    [
        lambda: assign_new_topic(NO_RACKS, 1, 6, random.Random(1).randrange),
        lambda: assign_more_partitions(dict.fromkeys([0, 1]), {0: (0, 1, 2)}, 2),
        lambda: assign_new_topic({0: "a", 1: "b"}, 1, 3, random.Random(1).randrange),
    ],
)
def test_more_replicas_than_live_brokers_are_refused(assign):
    """Too many replicas are refused, also for later partitions while brokers are away."""
    with pytest.raises(KafkaError) as caught:
        assign()

    assert caught.value.error is ErrorCode.INVALID_REPLICATION_FACTOR


def test_too_many_partitions_of_a_hand_made_assignment_are_refused():
    """As many as a request may ask for are taken, not one more."""
    check_assignment(dict.fromkeys(range(10_000), (0,)), range(10_000), FIVE)
    with pytest.raises(KafkaError) as caught:
        check_assignment(dict.fromkeys(range(10_001), (0,)), range(10_001), FIVE)

    assert caught.value.error is ErrorCode.INVALID_PARTITIONS
