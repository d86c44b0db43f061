"""An asyncio loop that shares its poller with those who serve many sockets at once.

asyncio calls a callback for each socket that is ready, by a handle and the queue of the loop, which
costs as much as a small request. Here the loop's own wait finds the sockets of clients, and hands
all of them at once to the processor whose they are. The loop goes round only where something has
been scheduled on it meanwhile, a timer is due, or a socket of its own is ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVarTuple

from ottla.errors import ConfigError
from ottla.runtime.poller import AUTO, EPOLL, READABLE, WRITABLE, EpollPoller, Poller, pollers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context

Ready: TypeAlias = "list[tuple[int, int]]"
"""Descriptors, each with its events."""

Ts = TypeVarTuple("Ts")

MAX_EVENTS = 512
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
EVENTS: Final = {READ: READABLE, WRITE: WRITABLE, READ | WRITE: READABLE | WRITABLE}


class ServingLoop(asyncio.SelectorEventLoop):
    """The loop of brokers: the sockets that they serve cost it no callbacks."""

    def __init__(self, poller: Poller | None = None, spin_us: int = 0) -> None:
        """With `spin_us` it asks again for so long, once it has served, before it sleeps."""
        self._shared = SharedSelector(poller or open_poller(), spin_us)
        super().__init__(self._shared)

    def serve(self, on_ready: Callable[[Ready], object]) -> ServedSockets:
        """A set of sockets; whenever some are ready the loop's thread calls `on_ready`."""
        return ServedSockets(self._shared, on_ready)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._shared.is_wanted = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._shared.is_wanted = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        self._shared.is_wanted = True
        super().stop()


def open_poller(name: str = AUTO) -> Poller:
    """A new poller: the one of that name, or the best that this system has for AUTO.

    ConfigError where the system has none of that name.
    """
    found = pollers()
    chosen = found[0] if name == AUTO else name
    if chosen not in found:
        raise ConfigError(f"ottla.network.poller={name}: this system has {', '.join(found)}")
    if chosen == EPOLL:
        return EpollPoller()
    from ottla.runtime.portable_pollers import PORTABLE_POLLERS

    return PORTABLE_POLLERS[chosen]()


class ServedSockets:
    """The sockets of one who serves them; `on_ready` gets those that are ready, all at once."""

    __slots__ = ("_all", "_poller", "fds", "is_closed", "modify", "on_ready")

    def __init__(self, selector: SharedSelector, on_ready: Callable[[Ready], object]) -> None:
        self._poller, self._all = selector.poller, selector.served
        self.on_ready, self.is_closed = on_ready, False
        self.fds: set[int] = set()
        self.modify = self._poller.modify
        self._all.append(self)

    def register(self, fd: int, events: int) -> None:
        """Watch a socket for events; OSError where the system takes no more."""
        self._poller.register(fd, events)
        self.fds.add(fd)

    def unregister(self, fd: int) -> None:
        """Watch it no longer."""
        self.fds.discard(fd)
        self._poller.unregister(fd)

    def close(self) -> None:
        """Watch none of them any longer."""
        while self.fds:
            self._poller.unregister(self.fds.pop())
        if not self.is_closed:
            self.is_closed = True
            self._all.remove(self)


class SharedSelector(selectors.BaseSelector):
    """asyncio's view of the poller: its own descriptors, and a wait that serves the others."""

    def __init__(self, poller: Poller, spin_us: int) -> None:
        self.poller, self._spin_ns = poller, spin_us * 1000
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.served: list[ServedSockets] = []
        self.is_wanted = False
        """Something was scheduled on the loop since it began to wait."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = number_of(fileobj)
        self.poller.register(fd, EVENTS[events])
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        fd = number_of(fileobj)
        key = self._keys.pop(fd)
        with contextlib.suppress(OSError):  # it was closed
            self.poller.unregister(fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, serving the sockets of others, until there is something for the loop."""
        self.is_wanted = False
        poll, keys, wait_s = self.poller.poll, self._keys, timeout
        ends_s = time.monotonic() + timeout if timeout else 0.0
        ready = poll(wait_s, MAX_EVENTS)
        while ready:
            own = [(keys[fd], events) for fd, events in ready if fd in keys]
            if len(own) < len(ready):
                self._serve(ready if not own else [each for each in ready if each[0] not in keys])
            if own:  # unless its number is another one's since others were served
                return [(k, asked_for(k, events)) for k, events in own if keys.get(k.fd) is k]
            if self.is_wanted or wait_s == 0:
                break
            if wait_s is not None:
                wait_s = max(0, ends_s - time.monotonic())
            ready = (self._spin_ns and self._spin()) or poll(wait_s, MAX_EVENTS)
        return []

    def _spin(self) -> Ready:
        """The sockets that become ready soon, if any: to sleep and to wake takes longer."""
        ready: Ready = []
        ends_ns = time.monotonic_ns() + self._spin_ns
        while not ready and time.monotonic_ns() < ends_ns:
            ready = self.poller.poll(0, MAX_EVENTS)
        return ready

    def _serve(self, ready: Ready) -> None:
        """Hand the ready sockets to those whose they are; an error of one stops no other."""
        is_one = len(self.served) == 1
        shares = [
            (each, ready if is_one else [pair for pair in ready if pair[0] in each.fds])
            for each in self.served
        ]  # before any of them is served, which may change the sets
        for served, own in shares:
            try:
                if own:
                    served.on_ready(own)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # as of any callback of asyncio
                self.is_wanted = True
                context = {"message": "serving ready sockets failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def close(self) -> None:
        self._keys.clear()
        self.poller.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return KeysByFile(self._keys)


class KeysByFile(Mapping[Any, selectors.SelectorKey]):
    """Keys by the number of a descriptor, which may be looked up by its file as well."""

    def __init__(self, keys: Mapping[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, file: Any) -> selectors.SelectorKey:
        return self._keys[number_of(file)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def number_of(file: Any) -> int:
    """The descriptor of a file or socket, or of a number itself."""
    return file if isinstance(file, int) else int(file.fileno())


def asked_for(key: selectors.SelectorKey, events: int) -> int:
    """The events that asyncio has asked for: an error or a hang-up is both of them, as epoll's."""
    return (READ * bool(events & ~WRITABLE) | WRITE * bool(events & ~READABLE)) & key.events
