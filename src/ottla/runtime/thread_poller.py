"""Calls that wait, and have no descriptor that another call could wait for."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import threading
from typing import TYPE_CHECKING, Final

from ottla.runtime.descriptor_poller import FAILED, HALF_CLOSED, HUNG_UP, READABLE, WRITABLE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping


class ThreadPoller:
    """A call that can only wait: a thread of its own waits, and the loop then asks for itself.

    The thread waits for one turn of the loop at a time: it begins when `on_ready` has returned,
    and ends with posting the next call. A change by the loop meanwhile wakes the thread, so that
    it waits for the present set.
    """

    def __init__(self, new_waiter: Callable[[], Waiter]) -> None:
        # One for the loop's thread and one for ours: one cannot be used by both at once.
        self._waiter, self._waiter_of_thread = new_waiter(), new_waiter()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._waiter_of_thread.register(self._ear.fileno(), READABLE)
        self._may_wait = threading.Semaphore(0)
        self._is_waiting = False  # as the loop sees it
        self._is_rung = False
        self._left_out = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_ready: Callable[[], object] = lambda: None
        self.closed = False

    def register(self, fd: int, events: int) -> None:
        self._waiter.register(fd, events)
        self._waiter_of_thread.register(fd, events)
        self._ring_if_waiting()

    def modify(self, fd: int, events: int) -> None:
        self.register(fd, events)

    def unregister(self, fd: int) -> None:
        self._waiter.unregister(fd)
        self._waiter_of_thread.unregister(fd)
        self._ring_if_waiting()

    def poll(self, timeout: float, max_events: int) -> list[tuple[int, int]]:
        """The ready sockets. Their order is the system's: those left out come first next time."""
        ready = self._waiter.wait(int(timeout * 1000))
        if len(ready) > max_events:
            start = self._left_out % len(ready)
            self._left_out = start + max_events
            ready = [*ready[start:], *ready[:start]][:max_events]
        return ready

    def attach(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[], object]) -> None:
        self._loop, self._on_ready = loop, on_ready
        self._thread = threading.Thread(target=self._serve, name="ottla-poller", daemon=True)
        self._thread.start()
        self._wait_again()

    def detach(self) -> None:
        self._loop = None
        if self._thread is not None:
            self._ring()
            self._may_wait.release()
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.detach()
            self._bell.close()
            self._ear.close()

    def _wait_again(self) -> None:
        self._is_waiting = True
        self._may_wait.release()

    def _ring_if_waiting(self) -> None:
        if self._is_waiting and not self._is_rung:
            self._ring()

    def _ring(self) -> None:
        self._is_rung = True
        self._bell.send(b"\0")

    def _turn(self) -> None:
        """Handle the ready sockets on the loop, then let the thread wait for more."""
        self._is_waiting = False
        if self._loop is not None:
            try:
                self._on_ready()
            finally:
                self._wait_again()

    def _serve(self) -> None:
        """The thread."""
        while True:
            self._may_wait.acquire()
            while not self._is_something_ready():
                pass
            loop = self._loop
            if loop is None:
                return
            with contextlib.suppress(RuntimeError):  # the loop was closed without stopping us
                loop.call_soon_threadsafe(self._turn)

    def _is_something_ready(self) -> bool:
        """Wait; False if nothing came but a ring, and there is something else to wait for."""
        ready = self._waiter_of_thread.wait(None)
        ear = self._ear.fileno()
        if not any(fd == ear for fd, _ in ready):
            return True
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(1)
        # Before the next wait: a change from here on rings again.
        self._is_rung = False
        return len(ready) > 1 or self._loop is None


POLL_BITS: Final[Mapping[int, str]] = {
    READABLE: "POLLIN",
    WRITABLE: "POLLOUT",
    FAILED: "POLLERR",
    HUNG_UP: "POLLHUP",
    HALF_CLOSED: "POLLRDHUP",
}
"""The names of our events; their numbers are the system's, and not all systems have all."""


class PollWaiter:
    """`select.poll`; to register a socket again changes its events."""

    __slots__ = ("_bits", "_poll")

    def __init__(self) -> None:
        self._poll = select.poll()
        self._bits = {
            ours: int(getattr(select, name))
            for ours, name in POLL_BITS.items()
            if hasattr(select, name)
        }

    def register(self, fd: int, events: int) -> None:
        self._poll.register(fd, sum(bit for ours, bit in self._bits.items() if events & ours))

    def unregister(self, fd: int) -> None:
        self._poll.unregister(fd)

    def wait(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        bits = self._bits.items()
        return [
            (fd, sum(ours for ours, bit in bits if told & bit))
            for fd, told in self._poll.poll(timeout_ms)
        ]


class SelectWaiter:
    """`select.select`, which takes no descriptor above a limit of the system, often 1,024."""

    __slots__ = ("_interests",)

    def __init__(self) -> None:
        self._interests: dict[int, int] = {}

    def register(self, fd: int, events: int) -> None:
        try:
            select.select((fd,), (), (), 0)
        except ValueError as error:
            raise OSError(errno.EMFILE, f"{fd} is too high a descriptor for select") from error
        self._interests[fd] = events

    def unregister(self, fd: int) -> None:
        del self._interests[fd]

    def wait(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        interests = self._interests.copy().items()
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        ready: dict[int, int] = {}
        try:
            readable, writable, _ = select.select(
                [fd for fd, events in interests if events & READABLE],
                [fd for fd, events in interests if events & WRITABLE],
                (),
                timeout_s,
            )
        except OSError:  # one was closed after the copy was made: the loop looks again
            return [(fd, 0) for fd, _ in interests]
        for fd in readable:
            ready[fd] = READABLE
        for fd in writable:
            ready[fd] = ready.get(fd, 0) | WRITABLE
        return list(ready.items())


Waiter = PollWaiter | SelectWaiter
"""A set of sockets, and a call that waits for one of them; other threads may change the set."""
