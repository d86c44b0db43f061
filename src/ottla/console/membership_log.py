"""The rebalances of a group, as seen from outside: by its state, members and epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from ottla.clients.admin.descriptions import REBALANCING_STATES
from ottla.console.lag_causes import Rebalance
from ottla.structs import NamedTuple

MOST_REBALANCES: Final = 50


class MembershipLook(NamedTuple):
    """A group at one moment: its members' client ids by member id, and its epoch (KIP-848)."""

    state: str
    members: Mapping[str, str]
    epoch: int | None = None


class MembershipLog:
    """Notes a rebalance whenever two looks differ; the first look is the base of the next.

    A rebalance that is seen while it runs, and again by the members that it leaves, counts once.
    """

    def __init__(self) -> None:
        self._last: MembershipLook | None = None
        self._rebalances: deque[Rebalance] = deque(maxlen=MOST_REBALANCES)

    def note(self, time_ms: int, now: MembershipLook) -> None:
        """Compare with the last look."""
        last, self._last = self._last, now
        if last is None:
            return
        joined = tuple(sorted(now.members[each] for each in now.members.keys() - last.members))
        left = tuple(sorted(last.members[each] for each in last.members.keys() - now.members))
        runs = now.state in REBALANCING_STATES
        ran = last.state in REBALANCING_STATES
        if ran and self._rebalances and (joined or left):
            before = self._rebalances.pop()
            joined, left = (*before.joined, *joined), (*before.left, *left)
            self._rebalances.append(Rebalance(before.time_ms, joined, left))
        elif joined or left or (runs and not ran) or now.epoch != last.epoch:
            self._rebalances.append(Rebalance(time_ms, joined, left))

    def since(self, time_ms: int) -> list[Rebalance]:
        """The rebalances from a moment on, the oldest first."""
        return [each for each in self._rebalances if each.time_ms >= time_ms]
