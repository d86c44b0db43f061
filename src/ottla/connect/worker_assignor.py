"""How the leader of a group deals connectors and tasks to its members.

`deal_all` is the first way: all of it, round robin. `IncrementalAssignor` (KIP-415) moves only what
must move. It compares what was assigned before, what members run, and what is configured:

    deleted      assigned before, not configured now: revoked
    duplicated   run by two members: revoked from both, dealt in the next round
    lost         assigned before, run by nobody: a member has gone. It may come back: its work waits
                 for scheduled.rebalance.max.delay.ms, from when this member heard that the group
                 rebalances, then it is dealt
    created      configured, neither assigned before nor run: dealt to the least loaded
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from ottla.connect.connect_protocol import CONNECTOR, Work
from ottla.connect.worker_task import TaskId

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS: Final = 10
BACKOFF_FACTOR: Final = 20


@dataclass
class Dealt:
    """For each member what it gets and what it gives up, and after how long all join again."""

    assigned: dict[str, Work] = field(default_factory=dict)
    revoked: dict[str, Work] = field(default_factory=dict)
    delay_ms: int = 0


def deal_all(members: Collection[str], configured: Collection[TaskId]) -> Dealt:
    """Everything, connectors first, round robin over the members in order."""
    found: dict[str, set[TaskId]] = {member: set() for member in sorted(members)}
    turns = cycle(found.values())
    for each in sorted(configured, key=lambda each: (each.task != CONNECTOR, each)):
        next(turns).add(each)
    return Dealt({member: frozenset(work) for member, work in found.items()})


class IncrementalAssignor:
    """The leader's memory from one rebalance to the next."""

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_ms = max_delay_ms
        self._previous: set[TaskId] = set()
        self._previous_generation = -1
        self._previous_members: set[str] = set()
        self._rebalance_at_ms = 0
        """When work that waits for a lost member is dealt; 0: none waits."""
        self._candidates: dict[str, None] = {}
        """Members that came without work while some waits."""
        self._has_revoked = False
        self._revoking_rounds = 0

    def deal(
        self,
        running: Mapping[str, Work],
        configured: Collection[TaskId],
        last_generation: int,
        now_ms: int,
        since_ms: int,
    ) -> Dealt:
        """One round, which the leader has joined at `since_ms`, and all others by now.

        `running` is what each member says that it runs.
        """
        if self._previous_generation != last_generation:
            logger.debug("no memory of generation %d: all that runs counts", last_generation)
            self._previous, self._previous_members = set(), set()
        wanted = set(configured)
        active = set().union(*running.values())
        duplicated = {each for each in active if sum(each in w for w in running.values()) > 1}
        deleted = (self._previous | active) - wanted
        lost = self._previous - active - deleted
        created = wanted - self._previous - active
        revoked = {m: set(work & (deleted | duplicated)) for m, work in running.items()}
        kept = {member: set(work) - revoked[member] for member, work in running.items()}
        load = {member: set(work) for member, work in kept.items()}
        delay_ms, found = self._handle_lost(lost, load, now_ms, since_ms)
        for member, work in found.items():
            load[member] |= work
        _spread(load, created | _rest_of(lost, found, delay_ms))
        if delay_ms == 0:
            delay_ms = self._balance(load, kept, revoked)
        assigned = {member: frozenset(work - kept[member]) for member, work in load.items()}
        gone = set().union(*revoked.values())
        waiting = lost if self._rebalance_at_ms and delay_ms else set()
        self._previous = (set().union(*load.values()) - gone) | waiting
        self._previous_members = set(running)
        self._previous_generation = last_generation + 1
        return Dealt(assigned, {m: frozenset(work) for m, work in revoked.items()}, delay_ms)

    def remember_generation(self, generation: int) -> None:
        """The round was for this generation."""
        self._previous_generation = generation

    def _handle_lost(
        self, lost: set[TaskId], load: Mapping[str, set[TaskId]], now_ms: int, since_ms: int
    ) -> tuple[int, dict[str, set[TaskId]]]:
        """How long lost work waits; what of it goes to members that came for it."""
        if not lost:
            self._candidates.clear()
            self._rebalance_at_ms = 0
            return 0, {}
        has_left = bool(self._previous_members - load.keys())
        if self._max_delay_ms == 0 or not (has_left or self._rebalance_at_ms):
            self._rebalance_at_ms = 0
            return 0, {}  # an assignment that did not arrive, or nobody is waited for
        for member, work in load.items():
            if not work:
                self._candidates[member] = None
        if not self._rebalance_at_ms:
            self._rebalance_at_ms = since_ms + self._max_delay_ms
            logger.info(
                "%d connectors and tasks wait %d ms for a member that has left",
                len(lost),
                self._max_delay_ms,
            )
        if now_ms >= self._rebalance_at_ms:
            found: dict[str, set[TaskId]] = {}
            ready = [member for member in self._candidates if member in load]
            for member, each in zip(cycle(ready), sorted(lost), strict=False) if ready else ():
                found.setdefault(member, set()).add(each)
            self._candidates.clear()
            self._rebalance_at_ms = 0
            return 0, found
        return self._rebalance_at_ms - now_ms, {}

    def _balance(
        self,
        load: Mapping[str, set[TaskId]],
        kept: Mapping[str, set[TaskId]],
        revoked: Mapping[str, set[TaskId]],
    ) -> int:
        """Revoke what is above a member's share; a delay if that was done too often in a row."""
        surplus = _surplus(load, kept)
        if not any(surplus.values()):
            self._has_revoked = any(revoked.values())
            self._revoking_rounds = 0
            return 0
        if self._has_revoked:
            self._revoking_rounds += 1
            self._has_revoked = False
            factor = BACKOFF_FACTOR ** min(self._revoking_rounds - 1, 6)
            delay_ms = int(min(self._max_delay_ms, FIRST_BACKOFF_MS * factor))
            if delay_ms:
                return delay_ms
        self._has_revoked = True
        for member, work in surplus.items():
            revoked[member].update(work)
            load[member].difference_update(work)
        return 0


def _rest_of(
    lost: set[TaskId], found: Mapping[str, Collection[TaskId]], delay_ms: int
) -> set[TaskId]:
    """Lost work that is dealt as if it were new: none while it waits."""
    return set() if delay_ms else lost - {each for work in found.values() for each in work}


def _kinds(work: Collection[TaskId]) -> tuple[list[TaskId], list[TaskId]]:
    """Connectors and tasks, which are balanced apart."""
    connectors = sorted(each for each in work if each.task == CONNECTOR)
    return connectors, sorted(each for each in work if each.task != CONNECTOR)


def _spread(load: Mapping[str, set[TaskId]], new: Collection[TaskId]) -> None:
    """Give each to the member that has fewest of its kind."""
    for kind in (0, 1):
        counts = {member: len(_kinds(work)[kind]) for member, work in sorted(load.items())}
        for each in _kinds(new)[kind] if counts else ():
            least = min(counts, key=lambda member: counts[member])
            load[least].add(each)
            counts[least] += 1


def _surplus(
    load: Mapping[str, set[TaskId]], kept: Mapping[str, set[TaskId]]
) -> dict[str, set[TaskId]]:
    """What members run beyond their share: total over members, the rest to the first of them."""
    found: dict[str, set[TaskId]] = {member: set() for member in load}
    for kind in (0, 1):
        counts = {member: _kinds(work)[kind] for member, work in sorted(load.items())}
        share, extra = divmod(sum(map(len, counts.values())), max(1, len(counts)))
        if all(len(work) <= share + bool(extra) for work in counts.values()) and all(
            len(work) >= share for work in counts.values()
        ):
            continue
        for member, work in counts.items():
            allowed = share
            if extra and len(work) > share:
                allowed, extra = share + 1, extra - 1
            runs = [each for each in work if each in kept[member]]
            over = len(work) - allowed
            if over > 0:
                found[member] |= set(runs[-over:])
    return found
