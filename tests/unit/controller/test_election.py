"""Who leads a partition."""

from __future__ import annotations

import pytest

from ottla.controller.election import elect_leader, initial_state
from ottla.structs import LeaderAndIsr

REPLICAS = (1, 5, 9)


def test_new_partition_is_led_by_its_preferred_replica():
    """The first of the list 1, 5, 9."""
    assert initial_state(REPLICAS, {1, 5, 9}) == LeaderAndIsr(1, 0, (1, 5, 9))


def test_new_partition_is_led_by_the_first_that_lives():
    """Dead replicas are not in sync."""
    assert initial_state(REPLICAS, {9, 5}) == LeaderAndIsr(5, 0, (5, 9))
    assert initial_state(REPLICAS, {2}) is None


@pytest.mark.parametrize(
    ("isr", "live", "unclean_allowed", "expected"),
    [
        ((1, 5, 9), {1, 5, 9}, False, LeaderAndIsr(1, 8, (1, 5, 9), 3)),
        ((9, 5, 1), {5, 9}, False, LeaderAndIsr(5, 8, (9, 5), 3)),
        ((9,), {1, 9}, False, LeaderAndIsr(9, 8, (9,), 3)),
        ((9,), {1, 5}, False, LeaderAndIsr(-1, 8, (9,), 3)),
        ((9,), {1, 5}, True, LeaderAndIsr(1, 8, (1,), 3)),
        ((9,), set(), True, LeaderAndIsr(-1, 8, (9,), 3)),
    ],
)
def test_leader_comes_from_the_isr_unless_that_is_dead(isr, live, unclean_allowed, expected):
    """Only with unclean elections another replica may lead, and then alone."""
    state = LeaderAndIsr(9, 7, isr, 3)

    assert elect_leader(state, REPLICAS, live, unclean_allowed) == expected
