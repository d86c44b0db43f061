"""Rates over several windows: pure arithmetic on a time in milliseconds that the caller gives."""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_DELAY_MS: Final = 2**31 - 1
"""An answer has no room for more; a limit near zero asks for it."""


class Rate:
    """A rate over several windows, as Kafka's Rate over a SampledStat computes it.

    The oldest windows leave whole. While fewer than all windows but one have begun, they count as
    past: a client that has just come may use the limit of that time at once.
    """

    __slots__ = ("_least_seconds", "_samples", "_total", "_window_count", "_window_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._least_seconds = max(1, window_count - 1) * window_ms / 1000
        self._samples: deque[list[float]] = deque()
        """When each window began, and what was used in it."""
        self._total = 0.0

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        """Note a use; a negative amount takes one back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            self._expire(now_ms)
            samples.append([now_ms, amount])
        else:
            samples[-1][1] += amount
        self._total += amount

    def per_second(self, now_ms: int) -> float:
        """The use, divided by the length of the windows."""
        self._expire(now_ms)
        return self._total * 1000 / self._elapsed_ms(now_ms)

    def delay_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the use is within the limit again; 0 if it is."""
        if self._total <= limit * self._least_seconds:
            return 0  # however long the windows are by now
        excess = max(0.0, self.per_second(now_ms) - limit)
        return int(min(excess / limit * self._elapsed_ms(now_ms) + 0.5, MAX_DELAY_MS))

    def is_idle(self, limit: float, now_ms: int) -> bool:
        """Whether nothing that was used counts any longer: a new meter would say the same."""
        self._expire(now_ms)
        return not self._samples

    def _elapsed_ms(self, now_ms: int) -> float:
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._window_count - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, self._window_ms)

    def _expire(self, now_ms: int) -> None:
        samples = self._samples
        first_ms = now_ms - self._window_count * self._window_ms
        if samples and samples[0][0] <= first_ms:
            while samples and samples[0][0] <= first_ms:
                samples.popleft()
            self._total = sum(amount for _, amount in samples)
