"""How long an answer is waited for: up to a deadline, with pauses that grow."""

from __future__ import annotations

from collections.abc import Callable

from ottla.errors import KafkaTimeoutError
from ottla.runtime import Clock

JITTER = 0.2
NEVER_MS = 1 << 62


class Deadline:
    """A moment on the monotonic clock by which something has to be done."""

    __slots__ = ("_clock", "at_ms", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int | None) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self.at_ms = NEVER_MS if timeout_ms is None else clock.monotonic_ms() + timeout_ms

    @property
    def left_ms(self) -> int:
        return max(0, self.at_ms - self._clock.monotonic_ms())

    @property
    def has_passed(self) -> bool:
        return self._clock.monotonic_ms() >= self.at_ms

    def timeout(self, what: str) -> KafkaTimeoutError:
        return KafkaTimeoutError(f"{what} within {self.timeout_ms} ms")


class Backoff:
    """Waits that double from `initial_ms` to `max_ms`, each spread by a fifth (KIP-580).

    `random` gives a number from 0 to 1; without the spread, clients that failed together would
    come back together.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: int, max_ms: int, random: Callable[[], float]) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._random = random

    def delay_ms(self, failures: int) -> int:
        """How long to wait after the first, second, ... failure (counted from 1)."""
        delay = min(self._initial_ms << min(failures - 1, 30), self._max_ms)
        return int(delay * (1 + JITTER * (2 * self._random() - 1)))
