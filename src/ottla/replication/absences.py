"""Times in which this broker did not run, and another one may have come to lead its partitions.

A process that was stopped for longer than its session still leads until it hears that it does not.
A producer that asks it next has written to its successor meanwhile: the batch looks as if those
before it were lost here, and librdkafka ends where it reads that. Such a batch is refused as by a
broker that does not lead: the producer asks for the leader, and comes again.

A coordinator answers much from memory: that a commit is done, that a member or a producer is fenced
for good. After such an absence clients look for the coordinator, until the registry says that the
session goes on, or the controller what this broker leads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.log.producer_state_manager import OvertakingBatchError
from ottla.replication.follower_state import LONG_AGO_MS
from ottla.runtime import Clock, Scheduler, Timer

CLOCK_READ_MS: Final = 500
ABSENT_MS: Final = 1_000
"""A broker that runs looks at its clock more often than that; no session is much shorter."""
DOUBT_MS: Final = 30_000
"""How long after an absence others are asked: a registry may be away as well."""
HEARING_MS: Final = 5_000
"""How long a broker whose session has ended takes at most to hear what it leads, if it leads."""


class Absences:
    """Notes by a timer, which is late after an absence, when the last one ended."""

    def __init__(self, clock: Clock, session_ms: int) -> None:
        self._clock = clock
        self._session_ms = session_ms
        self._looked_ms: int | None = None
        self._ended_ms = self._succeeded_ms = LONG_AGO_MS
        self._on_return: Callable[[], object] = lambda: None

    def watch(self, scheduler: Scheduler) -> Timer:
        """Look at the clock from now on, until the timer is cancelled."""
        self._looked_ms = self._clock.monotonic_ms()
        return scheduler.call_every(CLOCK_READ_MS, self._look)

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        away_ms = 0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        if away_ms > ABSENT_MS:
            self._ended_ms = now_ms
        if away_ms > max(ABSENT_MS, self._session_ms * 2 // 3):  # it is renewed in each third
            self._succeeded_ms = now_ms
            self._on_return()

    def ask(self, scheduler: Scheduler, has_session: Callable[[], Awaitable[bool]]) -> None:
        """Ask from now on, after each such absence, whether the session lasts nevertheless."""

        async def confirm() -> None:
            asked_ms = self._succeeded_ms  # behind another absence the answer would be too old
            with suppress(KafkaError):
                if await has_session() and self._succeeded_ms == asked_ms:
                    self._succeeded_ms = LONG_AGO_MS

        self._on_return = lambda: scheduler.spawn(confirm(), "ask for the session")

    def may_be_succeeded(self, since_ms: int) -> bool:
        """Whether another broker may do now what this one has done since then, or from before."""
        if self._looked_ms is None:
            return False
        self._look()
        is_before = since_ms < self._succeeded_ms
        return is_before and self._looked_ms - self._succeeded_ms <= HEARING_MS

    def in_doubt(self, error: KafkaError) -> KafkaError:
        """The error of a batch, or NOT_LEADER_OR_FOLLOWER where another broker may know better."""
        is_gap = error.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not is_gap or self._looked_ms is None:  # nobody else leads where nobody looks
            return error
        self._look()  # sockets are served before timers
        if self._clock.monotonic_ms() - self._ended_ms > DOUBT_MS:
            return error
        return OvertakingBatchError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{error.message}; this broker did not run for a while, and another one may lead",
        )
