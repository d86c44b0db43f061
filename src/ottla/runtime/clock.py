"""The two clocks: the wall clock that stamps records, and the one that measures waiting."""

from __future__ import annotations

import time
from typing import Protocol

from ottla.compiled import mypyc_attr


class Clock(Protocol):
    """Where everything gets the time from, so that a test can own it."""

    def now_ms(self) -> int:
        """The wall clock, in milliseconds since 1970; it may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment in the past; it never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """The same in nanoseconds, for how long a piece of work takes."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)  # tests shift it
class SystemClock:
    """The clocks of the machine, cut to whole milliseconds."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()
