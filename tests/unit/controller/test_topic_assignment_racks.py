"""Replicas are spread over racks."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.controller.topic_assignment import alternate_racks, assign_over_racks, known_racks

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
