"""Who leads a partition."""

from __future__ import annotations

import pytest

from ottla.controller.leader_election import (
    Candidates,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    elect_unclean,
    in_next_epoch,
    initial_state,
    without_replica,
)
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
        ((9,), {1, 5}, False, None),
        ((9,), {1, 5}, True, LeaderAndIsr(1, 8, (1,), 3)),
        ((9,), set(), True, None),
    ],
)
def test_leader_comes_from_the_isr_unless_that_is_dead(isr, live, unclean_allowed, expected):
    """Only with unclean elections another replica may lead, and then alone."""
    state = LeaderAndIsr(9, 7, isr, 3)

    elect = elect_unclean if unclean_allowed else elect_offline
    assert elect(Candidates(state, REPLICAS, live)) == expected


@pytest.mark.parametrize(
    ("isr", "live", "expected"),
    [
        ((9, 1), {1, 9}, LeaderAndIsr(1, 8, (9, 1), 3)),
        ((9, 5), {1, 5, 9}, None),
        ((9, 1), {5, 9}, None),
    ],
)
def test_preferred_leader_is_live_and_in_sync_or_there_is_no_election(isr, live, expected):
    """Nobody else will do."""
    assert elect_preferred(Candidates(LeaderAndIsr(9, 7, isr, 3), REPLICAS, live)) == expected


def test_reassigned_partition_is_led_by_one_of_its_targets():
    """Of those that are in sync, in the order that was asked for."""
    state = LeaderAndIsr(9, 7, (1, 9, 5), 3)
    candidates = Candidates(state, (5, 1, 9), {1, 5, 9}, targets=(5, 1))

    assert elect_reassigned(candidates) == LeaderAndIsr(5, 8, (1, 9, 5), 3)
    assert elect_reassigned(candidates._replace(live={9})) is None


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("elect", [elect_offline, elect_unclean, elect_preferred])
def test_no_leader_is_elected_where_no_epoch_is_left(elect, left, caplog):
    """Two leaders of one epoch would write different records at the same offsets."""
    state = LeaderAndIsr(9, 2**31 - 1 - left, (1, 9), 3)
    elected = elect(Candidates(state, REPLICAS, {1, 5}))

    assert elected == (LeaderAndIsr(1, 2**31 - 1, elected.isr, 3) if left else None)
    assert ("no leader epoch is left" in caplog.text) is (not left)


def test_changes_of_replicas_stay_in_the_last_epoch():
    """It is the largest that a request can carry."""
    state = LeaderAndIsr(1, 2**31 - 1, (1, 9), 3)

    assert in_next_epoch(state).leader_epoch == 2**31 - 1
    assert without_replica(state, {9}) == LeaderAndIsr(1, 2**31 - 1, (1,), 3)


def test_broker_that_shuts_down_gives_leadership_and_isr_up():
    """If somebody else is in sync."""
    candidates = Candidates(LeaderAndIsr(1, 7, (1, 5), 3), REPLICAS, {5, 9}, leaving=(1,))

    assert elect_for_shutdown(candidates) == LeaderAndIsr(5, 8, (5,), 3)
    assert elect_for_shutdown(candidates._replace(live={9})) is None


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ((5,), LeaderAndIsr(1, 8, (1,), 3)),
        ((1,), LeaderAndIsr(-1, 8, (5,), 3)),
        ((1, 5), LeaderAndIsr(-1, 8, (1, 5), 3)),
    ],
)
def test_dead_replicas_leave_the_isr_unless_nobody_would_be_left(gone, expected):
    """Each of the last ones has everything that was acknowledged, and may lead when it is back."""
    assert without_replica(LeaderAndIsr(1, 7, (1, 5), 3), gone) == expected
