"""Pollers of systems without epoll: kqueue, poll and select, with epoll's meaning of events.

    kqueue   macOS and the BSDs.
    poll     other systems.
    select   where there is no poll. It knows only which sockets can be read from or written to.

A client that waits for its response, and sends no more, is reported by epoll as HALF_CLOSED,
by kqueue as EV_EOF, and by poll where the system has POLLRDHUP. Elsewhere the broker finds a client
that has gone when its answer is due, as Kafka's does.
"""

from __future__ import annotations

import errno
import math
import select
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.runtime.poller import FAILED, HALF_CLOSED, HUNG_UP, READABLE, WRITABLE, Poller


class KqueuePoller:
    """One filter for each direction that matters of a socket.

    The filter for reading reports that the peer has closed its side (EV_EOF), and errors (in
    `fflags`), behind unread bytes too. Where bytes are not wanted it is edge-triggered (EV_CLEAR),
    so that they are reported once. To add it again begins with an event of the present state.
    """

    __slots__ = ("_calls", "_interests", "_kqueue", "close")

    def __init__(self, calls: Any = select) -> None:
        self._calls = calls
        self._kqueue = calls.kqueue()
        self._interests: dict[int, int] = {}
        self.close: Callable[[], None] = self._kqueue.close

    def register(self, fd: int, events: int) -> None:
        self._change(self._filters(fd, events, self._calls.KQ_EV_ADD))
        self._interests[fd] = events

    def modify(self, fd: int, events: int) -> None:
        removed = self._filters(fd, self._interests[fd], self._calls.KQ_EV_DELETE)
        self._change([*removed, *self._filters(fd, events, self._calls.KQ_EV_ADD)])
        self._interests[fd] = events

    def unregister(self, fd: int) -> None:
        self._change(self._filters(fd, self._interests.pop(fd), self._calls.KQ_EV_DELETE))

    def poll(self, timeout_s: float | None, max_events: int) -> list[tuple[int, int]]:
        """The ready sockets; the two filters of one are two events of kqueue, and one of ours."""
        ready: dict[int, int] = {}
        for event in self._kqueue.control(None, max_events, timeout_s):
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


class WholePoller(ABC):
    """A call that reports all sockets that are ready, in an order that is the system's."""

    def __init__(self) -> None:
        self._left_out = 0

    def poll(self, timeout_s: float | None, max_events: int) -> list[tuple[int, int]]:
        """The ready sockets; those that are left out now come first next time."""
        ready = self._wait(timeout_s)
        if len(ready) > max_events:
            start = self._left_out % len(ready)
            self._left_out = start + max_events
            ready = [*ready[start:], *ready[:start]][:max_events]
        return ready

    @abstractmethod
    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        """All that are ready, once there are some, or the time is over."""

    def close(self) -> None:
        """Nothing of the system is kept between two calls."""


POLL_BITS: Final[Mapping[int, str]] = {
    READABLE: "POLLIN",
    WRITABLE: "POLLOUT",
    FAILED: "POLLERR",
    HUNG_UP: "POLLHUP",
    HALF_CLOSED: "POLLRDHUP",
}
"""The names of our events; their numbers are the system's, and not all systems have all."""


class PollPoller(WholePoller):
    """`select.poll`; to register a socket again changes its events."""

    def __init__(self) -> None:
        super().__init__()
        self._poll = select.poll()
        self.unregister: Callable[[int], object] = self._poll.unregister
        self._bits = {
            ours: int(getattr(select, name))
            for ours, name in POLL_BITS.items()
            if hasattr(select, name)
        }

    def register(self, fd: int, events: int) -> None:
        self._poll.register(fd, sum(bit for ours, bit in self._bits.items() if events & ours))

    modify = register

    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        bits = self._bits.items()
        timeout_ms = None if timeout_s is None else math.ceil(timeout_s * 1000)
        return [
            (fd, sum(ours for ours, bit in bits if reported & bit))
            for fd, reported in self._poll.poll(timeout_ms)
        ]


class SelectPoller(WholePoller):
    """`select.select`, which takes no descriptor above a limit of the system, often 1,024."""

    def __init__(self) -> None:
        super().__init__()
        self._interests: dict[int, int] = {}
        self.unregister: Callable[[int], object] = self._interests.pop

    def register(self, fd: int, events: int) -> None:
        try:
            select.select((fd,), (), (), 0)
        except ValueError as error:
            raise OSError(errno.EMFILE, f"{fd} is too high a descriptor for select") from error
        self._interests[fd] = events

    modify = register

    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        interests = self._interests.items()
        readable, writable, _ = select.select(
            [fd for fd, events in interests if events & READABLE],
            [fd for fd, events in interests if events & WRITABLE],
            (),
            timeout_s,
        )
        ready = dict.fromkeys(readable, READABLE)
        for fd in writable:
            ready[fd] = ready.get(fd, 0) | WRITABLE
        return list(ready.items())


PORTABLE_POLLERS: Final[Mapping[str, Callable[[], Poller]]] = {
    "kqueue": KqueuePoller,
    "poll": PollPoller,
    "select": SelectPoller,
}
