"""Replicas are spread over racks."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.controller.racks import alternate_racks, assign_over_racks
from ottla.controller.topic_assignment import known_racks

SIX = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


def test_neighbours_are_of_different_racks():
    """The first of each rack, then the second of each."""
    assert alternate_racks(SIX) == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(("start", "shift"), [(0, 0), (3, 2), (5, 5)])
def test_three_replicas_are_on_three_racks_and_the_load_is_even(start, shift):
    """Each broker leads as much as the others."""
    assignment = assign_over_racks(SIX, range(12), 3, start, shift)
    leaders = Counter(replicas[0] for replicas in assignment.values())

    assert all(len({SIX[each] for each in replicas}) == 3 for replicas in assignment.values())
    assert set(leaders.values()) == {2}


def test_more_replicas_than_racks_are_on_brokers_of_their_own():
    """Every rack has one before any has two."""
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    for replicas in assign_over_racks(racks, range(8), 3, 0, 0).values():
        assert len(set(replicas)) == 3
        assert {racks[each] for each in replicas[:2]} == {"a", "b"}


def test_racks_matter_only_where_all_brokers_have_one():
    """One that has not said could be anywhere."""
    assert known_racks({0: "a", 1: None}) is None
    assert known_racks({0: "a", 1: "b"}) == {0: "a", 1: "b"}


@pytest.mark.parametrize("start", range(3))
def test_racks_of_different_sizes_take_part_in_turn(start):
    """A rack with one broker is passed over once that has had its turn."""
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}

    assert alternate_racks(racks) == [0, 3, 1, 2]
    for replicas in assign_over_racks(racks, range(8), 2, start, 0).values():
        assert len({racks[each] for each in replicas}) == 2


def test_first_partition_is_led_where_the_round_starts_and_the_next_by_the_next():
    """As without racks: the start is chosen by chance, the order is not."""
    racks = {0: "a", 1: "b", 2: "c"}
    assignment = assign_over_racks(racks, range(4), 1, 2, 0)

    assert assignment == {0: (2,), 1: (0,), 2: (1,), 3: (2,)}


def test_followers_move_on_by_the_number_of_racks_with_each_round():
    """Those of a lost broker fall to all the others, as without racks."""
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}

    assert list(assign_over_racks(racks, range(14), 3, 0, 0).values()) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 5),
        (4, 5, 0),
        (5, 0, 1),
        (0, 4, 5),
        (1, 5, 0),
        (2, 0, 1),
        (3, 1, 2),
        (4, 2, 3),
        (5, 3, 4),
        (0, 2, 4),
        (1, 3, 5),
    ]
