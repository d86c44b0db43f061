"""Pollers of systems without epoll: kqueue, poll and select, with epoll's meaning of events.

    kqueue   macOS and the BSDs. Its descriptor is watched by the asyncio loop, as epoll's is.
    poll     other systems. It has no descriptor: a thread waits, and has the loop look.
    select   where there is no poll. It knows only which sockets can be read from or written to.

A client that waits for its response, and sends no more, is reported by epoll as HALF_CLOSED,
by kqueue as EV_EOF, and by poll where the system has POLLRDHUP. Elsewhere the broker finds a client
that has gone when its answer is due, as Kafka's does.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.runtime.descriptor_poller import (
    FAILED,
    HALF_CLOSED,
    HUNG_UP,
    READABLE,
    WRITABLE,
    DescriptorPoller,
    Poller,
)
from ottla.runtime.thread_poller import PollWaiter, SelectWaiter, ThreadPoller


class KqueuePoller(DescriptorPoller):
    """One filter for each direction that matters of a socket.

    The filter for reading reports that the peer has closed its side (EV_EOF), and errors (in
    `fflags`), behind unread bytes too. Where bytes are not wanted it is edge-triggered (EV_CLEAR),
    so that they are reported once. To add it again begins with an event of the present state.
    """

    __slots__ = ("_calls", "_interests", "_kqueue", "closed")

    def __init__(self, calls: Any = select) -> None:
        self._calls = calls
        self._kqueue = calls.kqueue()
        self._interests: dict[int, int] = {}
        self.closed = False
        super().__init__(self._kqueue.fileno())

    def close(self) -> None:
        self.closed = True
        self._kqueue.close()

    def register(self, fd: int, events: int) -> None:
        self._change(self._filters(fd, events, self._calls.KQ_EV_ADD))
        self._interests[fd] = events

    def modify(self, fd: int, events: int) -> None:
        removed = self._filters(fd, self._interests[fd], self._calls.KQ_EV_DELETE)
        self._change([*removed, *self._filters(fd, events, self._calls.KQ_EV_ADD)])
        self._interests[fd] = events

    def unregister(self, fd: int) -> None:
        self._change(self._filters(fd, self._interests.pop(fd), self._calls.KQ_EV_DELETE))

    def poll(self, timeout: float, max_events: int) -> list[tuple[int, int]]:
        """The ready sockets; the two filters of one are two events of kqueue, and one of ours."""
        ready: dict[int, int] = {}
        for event in self._kqueue.control(None, max_events, timeout):
            events = self._events_of(event)
            if events:
                ready[event.ident] = ready.get(event.ident, 0) | events
        return list(ready.items())

    def _filters(self, fd: int, interest: int, action: int) -> list[Any]:
        calls = self._calls
        changes = []
        if interest & WRITABLE:
            changes.append(calls.kevent(fd, calls.KQ_FILTER_WRITE, action))
        if interest & READABLE:
            changes.append(calls.kevent(fd, calls.KQ_FILTER_READ, action))
        elif not interest & WRITABLE:
            changes.append(calls.kevent(fd, calls.KQ_FILTER_READ, action | calls.KQ_EV_CLEAR))
        return changes

    def _change(self, changes: list[Any]) -> None:
        self._kqueue.control(changes, 0, 0)

    def _events_of(self, event: Any) -> int:
        calls = self._calls
        interest = self._interests[event.ident]
        is_end = event.flags & calls.KQ_EV_EOF
        if event.filter == calls.KQ_FILTER_WRITE:
            return WRITABLE | (HUNG_UP if is_end else 0)
        events = interest & READABLE
        if is_end:
            events |= interest & HALF_CLOSED
            if event.fflags:
                events |= FAILED | HUNG_UP
        return events


PORTABLE_POLLERS: Final[Mapping[str, Callable[[], Poller]]] = {
    "kqueue": KqueuePoller,
    "poll": lambda: ThreadPoller(PollWaiter),
    "select": lambda: ThreadPoller(SelectWaiter),
}
