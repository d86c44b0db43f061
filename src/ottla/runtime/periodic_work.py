"""Work that is done once in a while, in slices: very much may expire at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.runtime.runtime import Runtime
from ottla.runtime.scheduler import Work


class PeriodicWork:
    """Begins work once a period, unless the one before is still under way."""

    __slots__ = ("_name", "_new_work", "_rest", "_runtime", "_timer")

    def __init__(
        self, runtime: Runtime, period_ms: int, new_work: Callable[[], Work[Any]], name: str
    ) -> None:
        self._runtime = runtime
        self._new_work = new_work
        self._name = name
        self._rest: asyncio.Task[Any] | None = None
        self._timer = runtime.scheduler.call_every(period_ms, self._begin)

    def cancel(self) -> None:
        """Begin no more of it, and end running work at its next pause."""
        self._timer.cancel()
        if self._rest is not None:
            self._rest.cancel()

    def _begin(self) -> None:
        if self._rest is None or self._rest.done():
            self._rest = self._runtime.begin(self._new_work(), self._name)
