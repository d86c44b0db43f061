"""The calls of kqueue (those of Python's `select` on macOS and the BSDs) as a fake on epoll.

As kqueue(2) has it: a filter for reading and one for writing of each descriptor, added and deleted
apart; EV_CLEAR reports a state once, until it changes or the filter is added again; EV_EOF stands
on the filter for reading when the peer has closed its side, with unread bytes too, and on the one
for writing when nobody reads; a socket's error stands in `fflags`. It shows that we make the right
calls, and cannot show that the kernel of macOS answers them as its manual says.
"""

from __future__ import annotations

import errno
import select
from dataclasses import dataclass
from select import epoll  # also where a test takes it from the module

KQ_EV_ADD, KQ_EV_DELETE, KQ_EV_CLEAR, KQ_EV_EOF = 0x1, 0x2, 0x20, 0x8000
KQ_FILTER_READ, KQ_FILTER_WRITE = -1, -2
ENDS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


@dataclass(frozen=True)
class kevent:  # noqa: N801 - the name of Python's
    """A change, or an event."""

    ident: int
    filter: int = KQ_FILTER_READ
    flags: int = KQ_EV_ADD
    fflags: int = 0


class kqueue:  # noqa: N801 - the name of Python's
    """Two epolls, one for each filter, in a third one."""

    def __init__(self) -> None:
        self._by_filter = {KQ_FILTER_READ: epoll(), KQ_FILTER_WRITE: epoll()}
        self._both = epoll()
        for each in self._by_filter.values():
            self._both.register(each.fileno(), select.EPOLLIN)
        self.closed = False

    def close(self) -> None:
        self.closed = True
        for each in (self._both, *self._by_filter.values()):
            each.close()

    def control(
        self, changes: list[kevent] | None, max_events: int, timeout: float | None = None
    ) -> list[kevent]:
        for change in changes or ():
            self._change(change)
        if not max_events:
            return []
        self._both.poll(timeout)
        found = [
            self._event(number, fd, events)
            for number, each in self._by_filter.items()
            for fd, events in each.poll(0, max_events)
        ]
        return [each for each in found if each is not None]

    def _change(self, change: kevent) -> None:
        watched = self._by_filter[change.filter]
        if change.flags & KQ_EV_DELETE:
            watched.unregister(change.ident)  # ENOENT where there is no such filter
            return
        assert change.flags & KQ_EV_ADD
        wanted = (
            select.EPOLLIN | select.EPOLLRDHUP
            if change.filter == KQ_FILTER_READ
            else select.EPOLLOUT
        )
        if change.flags & KQ_EV_CLEAR:
            wanted |= select.EPOLLET
        watched.register(change.ident, wanted)

    def _event(self, number: int, fd: int, events: int) -> kevent | None:
        ends = ENDS if number == KQ_FILTER_READ else select.EPOLLHUP | select.EPOLLERR
        error = 0
        if events & select.EPOLLERR:
            error = errno.ECONNRESET
        flags = KQ_EV_EOF if events & ends else 0
        return kevent(fd, number, flags, error)
