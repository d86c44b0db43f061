"""Limits how many bytes a second are moved by background work on logs."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.runtime import Runtime


class RateLimit:
    """Says how long to wait so that no more than so many bytes a second are moved on average."""

    __slots__ = ("_free_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_ms = 0.0

    def delay_ms(self, byte_count: int, now_ms: int) -> int:
        """How long to wait after moving so many bytes before continuing."""
        cost_ms = 1000.0 * byte_count / self.bytes_per_second
        self._free_ms = max(self._free_ms, float(now_ms)) + cost_ms
        return int(self._free_ms - now_ms)


class Throttler:
    """Makes workers wait as long as a throttler says, or until `wake` is called."""

    __slots__ = ("_runtime", "_waits", "byte_count", "limit")

    def __init__(self, runtime: Runtime, bytes_per_second: float) -> None:
        self._runtime = runtime
        self._waits: set[asyncio.Future[None]] = set()
        self.limit = RateLimit(bytes_per_second)
        self.byte_count = 0
        """How many bytes were moved."""

    async def throttle(self, byte_count: int) -> None:
        """Wait for as long as moving so many bytes should take."""
        self.byte_count += byte_count
        runtime = self._runtime
        delay_ms = self.limit.delay_ms(byte_count, runtime.clock.monotonic_ms())
        if delay_ms <= 0:
            return
        wait = asyncio.get_running_loop().create_future()
        timer = runtime.scheduler.call_later(delay_ms, partial(_wake, wait))
        self._waits.add(wait)
        try:
            await wait
        finally:
            timer.cancel()
            self._waits.discard(wait)

    def change(self, bytes_per_second: float) -> None:
        """Follow another limit from now on; waits that are still owed are dropped."""
        self.limit = RateLimit(bytes_per_second)
        self.wake()

    def wake(self) -> None:
        """End all waits now; later waits make up for the time that was cut off."""
        for wait in self._waits:
            _wake(wait)


def _wake(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)
