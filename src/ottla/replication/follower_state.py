"""The state of one follower at its leader, from the fetches that the follower sends."""

from __future__ import annotations

from typing import Final

from ottla.structs import NO_EPOCH, NO_OFFSET

LONG_AGO_MS: Final = -(2**62)


class FollowerState:
    """One follower of a partition, as its leader last heard from it.

    A follower has caught up when it asks for the leader's end; one that is a little behind all the
    time counts as caught up at the time of the fetch before, if it now has all that the leader had
    then. Invariant: `last_caught_up_ms` never falls within a leader's epoch.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, now_ms: int, is_in_sync: bool) -> None:
        self.broker_id = broker_id
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.last_fetch_ms = LONG_AGO_MS
        # A new leader gives the in-sync replicas that it begins with time to show themselves.
        self.last_caught_up_ms = now_ms if is_in_sync else LONG_AGO_MS
        self.broker_epoch = NO_EPOCH

    def __repr__(self) -> str:
        return f"FollowerState({self.broker_id}, end {self.log_end_offset})"

    def on_fetch(self, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        """The follower has everything before `offset`, because it asks for that one."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end_offset > NO_OFFSET:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = leader_end
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms: int) -> bool:
        """Whether it has everything, or had so not longer than `lag_ms` ago."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms
