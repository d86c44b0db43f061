"""Members of a group share a topic: classic ones, those of KIP-848, or both in one group."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.config.consumer_config import CONSUMER_PROTOCOL
from ottla.testing.simulation.group_ledger import GroupLedger
from ottla.testing.simulation.group_reader import GROUP, GroupReader
from ottla.testing.simulation.group_removals import count_removals
from ottla.testing.simulation.story import PEACE_LIMIT_MS, TOPIC, Story

MEMBERS: Final = 2
CLASSIC: Final = "classic"
PROTOCOLS: Final[tuple[tuple[str, ...], ...]] = (
    (CONSUMER_PROTOCOL,),
    (CONSUMER_PROTOCOL,),
    (CLASSIC,),
    (CLASSIC, CONSUMER_PROTOCOL),
)
"""What the members of a story speak: each life of a member one of them."""


class GroupStory(Story):
    """The members are killed, paused, stopped in order and joined by others for a while."""

    def __init__(self, seed: int) -> None:
        self._members: list[GroupReader] = []
        super().__init__(seed)
        self._protocols = self.world.random.choice(PROTOCOLS)
        self._ledger = GroupLedger(self.history, partial(count_removals, self.cluster, GROUP))

    def _begin(self) -> None:
        self._make_topic(TOPIC)
        self._start_writer("writer0", interval_ms=400)
        self._members += [self._start_member(f"member{number}") for number in range(MEMBERS)]

    def _start_member(self, name: str) -> GroupReader:
        protocol = self.world.random.choice(self._protocols)
        member = GroupReader(self.cluster, name, self._ledger, TOPIC, protocol)
        member.process.spawn(member.run(), "read in a group")
        return member

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [self._kill_member, self._pause_member, self._stop_member, self._add_member]

    def _kill_member(self, chance: random.Random) -> str:
        index = chance.randrange(MEMBERS)
        name = self._members[index].name
        self._members[index].process.kill()
        self._members[index] = self._start_member(name)
        return f"kill {name} and start it again"

    def _pause_member(self, chance: random.Random) -> str:
        member, delay_ms = chance.choice(self._members), chance.randint(1_000, 12_000)
        member.process.pause()
        self.world.loop.add_timer(delay_ms, member.process.resume)
        return f"pause {member.name} for {delay_ms} ms"

    def _stop_member(self, chance: random.Random) -> str:
        """It leaves in order, and another comes in its place."""
        index = chance.randrange(MEMBERS)
        name = self._members[index].name
        self._members[index].is_told_to_stop = True
        self._members[index] = self._start_member(name)
        return f"stop {name} and start it again"

    def _add_member(self, chance: random.Random) -> str:
        delay_ms = chance.randint(1_000, 10_000)
        guest = self._start_member("guest")

        def leave() -> None:
            guest.is_told_to_stop = True

        self.world.loop.add_timer(delay_ms, leave)
        return f"one more member for {delay_ms} ms"

    def _end(self) -> None:
        super()._end()
        if self.history.violations:
            return
        if not self.world.run_until(self._has_got_everything, PEACE_LIMIT_MS):
            self.history.violations.append(
                f"the group has got {self._ledger.ends} only: {self._state()}"
            )

    def _has_got_everything(self) -> bool:
        return all(self._ledger.ends.get(tp, 0) >= self._end_of(tp) for tp in self.partitions)
