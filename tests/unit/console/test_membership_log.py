"""Rebalances, as looks at a group's members show them."""

from __future__ import annotations

from ottla.console.lag_causes import Rebalance
from ottla.console.membership_log import MembershipLog, MembershipLook

ONE = {"m-1": "worker-1"}
TWO = {"m-1": "worker-1", "m-2": "worker-2"}


def test_first_look_is_no_rebalance():
    """There is nothing to compare it with."""
    log = MembershipLog()
    log.note(1, MembershipLook("Stable", ONE))
    log.note(2, MembershipLook("Stable", ONE))

    assert log.since(0) == []


def test_members_that_come_and_go_are_named():
    """By their client ids."""
    log = MembershipLog()
    for time_ms, members in enumerate([ONE, TWO, ONE]):
        log.note(time_ms, MembershipLook("Stable", members))

    assert log.since(0) == [Rebalance(1, ("worker-2",)), Rebalance(2, (), ("worker-2",))]
    assert log.since(2) == [Rebalance(2, (), ("worker-2",))]


def test_rebalance_that_is_seen_while_it_runs_counts_once():
    """The members that it leaves belong to it."""
    log = MembershipLog()
    log.note(0, MembershipLook("Stable", ONE))
    log.note(1, MembershipLook("PreparingRebalance", ONE))
    log.note(2, MembershipLook("CompletingRebalance", TWO))
    log.note(3, MembershipLook("Stable", TWO))

    assert log.since(0) == [Rebalance(1, ("worker-2",))]


def test_new_epoch_is_a_rebalance_of_the_same_members():
    """Groups of the newer kind change their assignment without a state in which nobody reads."""
    log = MembershipLog()
    log.note(0, MembershipLook("Stable", ONE, 4))
    log.note(1, MembershipLook("Stable", ONE, 5))

    assert log.since(0) == [Rebalance(1)]
