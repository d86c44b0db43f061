"""A clock that stands still until a test advances it."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class MockClock:
    """Both clocks, moved by hand. The wall clock can be set apart from the monotonic one."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Move both clocks; timers do not run (that is what `MockScheduler.advance` does)."""
        if ms < 0:
            raise ValueError(f"time cannot go back by {-ms} ms")
        self._now_ms += ms
        self._monotonic_ms += ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Step the wall clock to any time, as an operator or a time server may."""
        self._now_ms = now_ms
