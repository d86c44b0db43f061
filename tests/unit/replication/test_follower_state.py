"""When a follower has caught up."""

from __future__ import annotations

from ottla.replication.follower_state import FollowerState


def test_follower_a_little_behind_all_the_time_is_caught_up():
    """It has by now what the leader had when it fetched before."""
    replica = FollowerState(2, 0, is_in_sync=False)
    replica.on_fetch(10, 0, leader_end=20, now_ms=1_000)
    assert not replica.is_caught_up(20, 1_000, 500)
    replica.on_fetch(20, 0, leader_end=30, now_ms=1_100)

    assert replica.last_caught_up_ms == 1_000
    assert replica.is_caught_up(30, 1_500, 500)
    assert not replica.is_caught_up(30, 1_501, 500)


def test_follower_at_the_end_is_caught_up_however_long_ago_it_fetched():
    """Nothing was written since."""
    replica = FollowerState(2, 0, is_in_sync=False)
    replica.on_fetch(10, 0, leader_end=10, now_ms=1_000)

    assert replica.is_caught_up(10, 10**9, 500)
    assert replica.is_caught_up(20, 1_500, 500)
    assert not replica.is_caught_up(20, 1_501, 500)


def test_replica_that_a_leader_begins_with_has_time_to_show_itself():
    """One that was in sync counts as caught up when the epoch begins, any other does not."""
    assert FollowerState(2, 1_000, is_in_sync=True).is_caught_up(5, 1_500, 500)
    assert not FollowerState(2, 1_000, is_in_sync=False).is_caught_up(5, 1_000, 500)
