"""The wait for the members of a group to join, which ends when all have or when time is up."""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.runtime import DelayedOperation


class DelayedJoin(DelayedOperation):
    """Waits for every known member to send its JoinGroup, at most for the rebalance timeout."""

    def __init__(
        self, group: ClassicGroup, delay_ms: int, complete_join: Callable[[ClassicGroup], object]
    ) -> None:
        super().__init__(delay_ms)
        self.group = group
        self.complete_join = complete_join

    def try_complete(self) -> bool:
        return self.group.has_all_members_joined and self.force_complete()

    def on_complete(self) -> None:
        self.complete_join(self.group)


class InitialDelayedJoin(DelayedJoin):
    """Holds the first rebalance of an empty group, so that members which start together meet in it.

    It always waits group.initial.rebalance.delay.ms, and repeats that while new members keep
    coming, but in all waits no longer than the rebalance timeout (KIP-134).
    """

    def __init__(
        self,
        group: ClassicGroup,
        delay_ms: int,
        remaining_ms: int,
        complete_join: Callable[[ClassicGroup], object],
        wait_on: Callable[[DelayedOperation], object],
    ) -> None:
        super().__init__(group, delay_ms, complete_join)
        self.remaining_ms = remaining_ms
        self.wait_on = wait_on

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        if not (self.group.new_member_added and self.remaining_ms):
            super().on_complete()
            return
        self.group.new_member_added = False
        delay_ms = min(self.delay_ms, self.remaining_ms)
        remaining_ms = max(self.remaining_ms - self.delay_ms, 0)
        self.wait_on(
            InitialDelayedJoin(self.group, delay_ms, remaining_ms, self.complete_join, self.wait_on)
        )
