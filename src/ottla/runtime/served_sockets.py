"""The sockets of a broker, on its own loop or on that of another program (asyncio.run, uvloop)."""

from __future__ import annotations

import asyncio
import select
from functools import partial
from typing import TYPE_CHECKING

from ottla.runtime.serving_loop import ServedSockets, ServingLoop, SharedSelector

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.runtime.serving_loop import Ready


def served_sockets(on_ready: Callable[[Ready], object]) -> ServedSockets:
    """A set of sockets of the running loop; its thread calls `on_ready` when some are ready."""
    loop = asyncio.get_running_loop()
    return loop.serve(on_ready) if isinstance(loop, ServingLoop) else GuestSockets(loop, on_ready)


class GuestSockets(ServedSockets):
    """Sockets with a poller of their own, which is one descriptor for the loop.

    A turn costs two system calls more than on a `ServingLoop`, and a callback of asyncio.

    Raises:
        TypeError: the system has no epoll, whose poller alone can be watched by another one.
    """

    __slots__ = ("_loop", "_own", "look")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[Ready], object]
    ) -> None:
        if not hasattr(select, "epoll"):
            raise TypeError(
                f"without epoll a broker runs on ServingLoop, not on {type(loop).__name__}"
            )
        self._loop, self._own = loop, select.epoll()
        shared = SharedSelector(self._own, spin_us=0)
        super().__init__(shared, on_ready)
        self.look = partial(shared.select, 0)
        loop.add_reader(self._own.fileno(), self.look)

    def close(self) -> None:
        if not self.is_closed:
            super().close()
            self._loop.remove_reader(self._own.fileno())
            self._own.close()
