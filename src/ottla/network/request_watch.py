"""How one request is measured, as those know it who serve it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ottla.protocol.message import Response
from ottla.runtime.scheduler import Work


class RequestWatch:
    """Hears how requests fare, where requests are measured."""

    __slots__ = ("end", "versions")

    def __init__(self, end: Callable[[Response | None], object]) -> None:
        self.end = end
        """Called with the answer; with None the request is over without one."""
        self.versions: dict[int, int] = defaultdict(int)
        """How many requests have begun, by version."""

    def begin_wait(self) -> None:
        """The handler has returned."""

    def end_in_slices(self, response: Response) -> Work[None]:
        """The same as `end` for a large answer, with a pause now and then."""
        self.end(response)
        yield from ()
