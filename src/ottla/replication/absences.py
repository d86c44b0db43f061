"""Times in which this broker did not run, and another one may have come to lead its partitions.

A process that was stopped for longer than its session still leads until it hears that it does not.
A producer that asks it next has written to its successor meanwhile: the batch looks as if those
before it were lost here, and librdkafka ends where it reads that. Such a batch is refused as by a
broker that does not lead: the producer asks for the leader, and comes again.
"""

from __future__ import annotations

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


class Absences:
    """Notes by a timer, which is late after an absence, when the last one ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms: int | None = None
        self._ended_ms = LONG_AGO_MS

    def watch(self, scheduler: Scheduler) -> Timer:
        """Look at the clock from now on, until the timer is cancelled."""
        self._looked_ms = self._clock.monotonic_ms()
        return scheduler.call_every(CLOCK_READ_MS, self._look)

    def _look(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms > ABSENT_MS:
            self._ended_ms = now_ms
        self._looked_ms = now_ms

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
