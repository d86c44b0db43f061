"""A poller of descriptors: it finds the sockets that are ready to be read from or written to.

The numbers are those of epoll, so that its events are passed on as they are.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

READABLE: Final = 0x0001
WRITABLE: Final = 0x0004
FAILED: Final = 0x0008
HUNG_UP: Final = 0x0010
HALF_CLOSED: Final = 0x2000
"""The peer sends no more; reported also behind bytes that are not read."""
AUTO: Final = "auto"
EPOLL: Final = "epoll"
POLLERS: Final = (EPOLL, "kqueue", "poll", "select")
"""The calls of systems that tell which sockets are ready, the best first."""


class DescriptorPoller:
    """A poller with a descriptor that is readable when a socket is ready: the loop watches it."""

    __slots__ = ("_descriptor", "_loop")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[], object]) -> None:
        self._loop = loop
        loop.add_reader(self._descriptor, on_ready)

    def detach(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None


class Poller(Protocol):
    """The calls of `select.epoll`, with its meaning of them, level-triggered.

    FAILED and HUNG_UP are reported of every socket that is registered, also where nothing is asked
    for. A socket is unregistered before it is closed.
    """

    @property
    def register(self) -> Callable[[int, int], object]: ...

    @property
    def modify(self) -> Callable[[int, int], object]: ...

    @property
    def unregister(self) -> Callable[[int], object]: ...

    @property
    def poll(self) -> Callable[[float, int], list[tuple[int, int]]]:
        """The ready sockets, each with its events. The time to wait is always 0.

        At most so many of them as the second argument says; the others are reported next time.
        """
        ...

    closed: bool

    def close(self) -> None: ...

    def attach(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[], object]) -> None:
        """Have the loop call `on_ready` when something is ready, and again while it still is."""
        ...

    def detach(self) -> None:
        """End the watch that `attach` began."""
        ...


class EpollPoller(DescriptorPoller):
    """Linux's. The calls are its own, without a frame of ours around them."""

    __slots__ = ("_epoll", "closed", "modify", "poll", "register", "unregister")

    def __init__(self) -> None:
        epoll = self._epoll = select.epoll()
        super().__init__(epoll.fileno())
        self.register: Callable[[int, int], object] = epoll.register
        self.modify: Callable[[int, int], object] = epoll.modify
        self.unregister: Callable[[int], object] = epoll.unregister
        self.poll: Callable[[float, int], list[tuple[int, int]]] = epoll.poll
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._epoll.close()


def pollers() -> tuple[str, ...]:
    """Those of POLLERS that this system has, the best first."""
    return tuple(name for name in POLLERS if hasattr(select, name))
