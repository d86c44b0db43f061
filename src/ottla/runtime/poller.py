"""A poller finds the sockets that are ready to be read from or written to.

The numbers are those of epoll, so that its events are passed on as they are.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
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
    def poll(self) -> Callable[[float | None, int], list[tuple[int, int]]]:
        """The ready sockets, each with its events, once there are some.

        It waits for so many seconds, without an end for None. At most so many sockets are reported
        as the second argument says, the others next time.
        """
        ...

    def close(self) -> None: ...


class EpollPoller:
    """Linux's. The calls are its own, without a frame of ours around them."""

    __slots__ = ("close", "modify", "poll", "register", "unregister")

    def __init__(self) -> None:
        epoll = select.epoll()
        self.register: Callable[[int, int], object] = epoll.register
        self.modify: Callable[[int, int], object] = epoll.modify
        self.unregister: Callable[[int], object] = epoll.unregister
        self.poll: Callable[[float | None, int], list[tuple[int, int]]] = epoll.poll
        self.close: Callable[[], None] = epoll.close


def pollers() -> tuple[str, ...]:
    """The names in POLLERS that this system has, the best first."""
    return tuple(name for name in POLLERS if hasattr(select, name))
