"""Where the controller's random numbers come from."""

from __future__ import annotations

from typing import Protocol


class Chance(Protocol):
    """As much of `Runtime.random` as the controller needs."""

    def randrange(self, stop: int, /) -> int: ...

    def getrandbits(self, count: int, /) -> int: ...
