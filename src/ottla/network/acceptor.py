"""Listeners, and which clients are accepted.

`max.connections` counts all listeners together: when it is reached, no client is accepted until
another leaves, except on the listener of the brokers, where a client in its handshake, or the one
that was quiet for longest, makes room (KIP-402). `max.connections.per.ip` is checked after
accepting: one too many is closed at once. How fast clients may come is limited as well
(`ConnectionRates`). The last file descriptors are not for clients: who just connects cannot take
them from the logs.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.network.connection_rates import ConnectionRates
from ottla.network.descriptors import is_of_reserve
from ottla.network.refusal_log import RefusalLog
from ottla.network.socket_config import NO_LIMIT, SocketConfig
from ottla.runtime import Runtime, Timer
from ottla.runtime.poller import READABLE
from ottla.runtime.serving_loop import ServedSockets
from ottla.structs import Value

logger = logging.getLogger(__name__)

# No descriptors or memory at present: waiting helps, trying at once does not.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_PAUSE_MS = 100
MAX_REFUSED: Final = 1024
"""So many clients are kept waiting before they are closed; more are closed at once."""
MAPPED_IPV4 = "::ffff:"
End = Callable[[str], object]
"""Ends a client that can make room for another, and is given the reason."""
TURN_NS: Final = 10_000_000
"""After so long a stage of a turn begins nothing more: a handshake may take milliseconds."""


class Listener(Value, frozen=True):
    """A named place where clients connect; `port` is the real one if 0 was asked for."""

    name: str
    host: str
    port: int


class Acceptor:
    """All listening sockets of a broker, in its poller while clients can be accepted."""

    def __init__(
        self,
        runtime: Runtime,
        config: SocketConfig,
        served: ServedSockets,
        admit: Callable[[socket.socket, Listener, tuple[str, int]], object],
        quietest: Callable[[Listener], End | None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._served = served
        self._admit = admit
        self.replaceable = [quietest]
        self._sockets: dict[int, tuple[socket.socket, Listener]] = {}
        self._watched: set[int] = set()
        self._count = 0
        self._count_by_ip: Counter[str] = Counter()
        self._is_accepting = False
        self._is_exhausted = False
        self.rates = ConnectionRates(runtime.clock, config)
        self._pausing: set[str] = set()
        self._refused: dict[socket.socket, Timer] = {}
        self._waits, self._closed = RefusalLog(runtime.clock), RefusalLog(runtime.clock)

    def __contains__(self, fd: int) -> bool:
        """Whether it is a listening socket."""
        return fd in self._sockets

    @property
    def listeners(self) -> list[Listener]:
        return list(dict.fromkeys(listener for _, listener in self._sockets.values()))

    @property
    def watched(self) -> Iterable[int]:
        """The listening sockets on which clients can be accepted now."""
        return self._watched

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Open the sockets of a listener; clients wait in the backlog until `start`."""
        sockets = self._runtime.network.listen(
            host,
            port,
            backlog=self._config.socket_listen_backlog_size,
            receive_buffer_bytes=self._config.socket_receive_buffer_bytes,
        )
        listener = Listener(name, host, int(sockets[0].getsockname()[1]))
        for endpoint in sockets:
            self._sockets[endpoint.fileno()] = (endpoint, listener)
        self._watch()
        return listener

    def stop_listening(self, name: str) -> None:
        """Close the sockets of a listener, and with them the clients in its backlog."""
        for fd, (endpoint, listener) in list(self._sockets.items()):
            if listener.name == name:
                if fd in self._watched:
                    self._served.unregister(fd)
                    self._watched.discard(fd)
                del self._sockets[fd]
                _refuse_from_now_on(endpoint)

    def update_config(self, config: SocketConfig) -> None:
        """Follow changed limits; clients that are connected stay."""
        self._config = config
        self._watch()

    def start(self) -> None:
        self._is_accepting = True
        self._watch()

    def close(self) -> None:
        """Stop listening; the kernel refuses clients that wait in the backlog."""
        self._is_accepting = False
        self._watch()
        for endpoint, _ in self._sockets.values():
            _refuse_from_now_on(endpoint)
        self._sockets.clear()
        for client in list(self._refused):
            self._end_refused(client)

    def accept(self, fd: int) -> None:
        """Accept from a listening socket that is ready, a bounded number of clients."""
        endpoint, listener = self._sockets[fd]
        now_ns = self._runtime.clock.monotonic_ns
        ends_ns = now_ns() + TURN_NS
        for _ in range(self._config.turn_max_accepts):
            end_other = None
            if self._is_full():
                end_other = self._replaceable_by(listener)
                if end_other is None:
                    self._watch()
                    return
            try:
                client, address = endpoint.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause(listener, error)
                    return
                continue  # this client has gone already; the next one may be there
            if not address:  # so has this one, as macOS reports it
                client.close()
                continue
            if self._takes_reserve(client, listener):
                client.close()
                self._wait(listener, EXHAUSTED_PAUSE_MS)
                self._tell(listener, "the last descriptors are for files")
                return
            if end_other is not None:
                end_other("max.connections is reached and a broker wants to connect")
            self._let_in(client, listener, (address[0].removeprefix(MAPPED_IPV4), address[1]))
            if listener.name in self._pausing or now_ns() >= ends_ns:
                return

    def left(self, client_host: str) -> None:
        """A client has gone, so that another one can be accepted."""
        self._count -= 1
        self._count_by_ip[client_host] -= 1
        if not self._count_by_ip[client_host]:
            del self._count_by_ip[client_host]
        if len(self._watched) < len(self._sockets):
            self._watch()

    def _let_in(self, client: socket.socket, listener: Listener, address: tuple[str, int]) -> None:
        host = address[0]
        wait_ms = self.rates.refuses_ip(host)
        if wait_ms:
            self._refuse(client, host, wait_ms)
            return
        self._note_rate(listener)
        limit = self._config.max_connections_per_ip_overrides.get(
            host, self._config.max_connections_per_ip
        )
        if self._count_by_ip[host] >= limit:
            client.close()
            if self._closed.is_news(host):
                text = "Closed a connection of %s: it has %d (max.connections.per.ip)"
                logger.info(text, host, limit)
            return
        self._count += 1
        self._count_by_ip[host] += 1
        self._admit(client, listener, address)

    def _note_rate(self, listener: Listener) -> None:
        """Have a listener wait whose clients come too fast."""
        config = self._config
        limits: dict[str | None, int] = {}
        if listener.name in config.connection_creation_rates:
            limits[listener.name] = config.connection_creation_rates[listener.name]
        is_protected = self._is_of_brokers(listener)
        if config.max_connection_creation_rate < NO_LIMIT and not is_protected:
            limits[None] = config.max_connection_creation_rate
        pause_ms = self.rates.pause_ms(limits)
        if pause_ms:
            self._wait(listener, pause_ms)

    def _wait(self, listener: Listener, pause_ms: int) -> None:
        self._pausing.add(listener.name)
        self._watch()
        end = partial(self._end_pause, listener.name)
        self._runtime.scheduler.call_later(pause_ms, end)

    def _end_pause(self, listener_name: str) -> None:
        self._pausing.discard(listener_name)
        self._watch()

    def _refuse(self, client: socket.socket, host: str, wait_ms: int) -> None:
        """Close a client later, so that it does not come again at once."""
        logger.debug(
            "Refused a connection of %s for %d ms: connection_creation_rate", host, wait_ms
        )
        if len(self._refused) >= MAX_REFUSED:
            client.close()
            return
        end = partial(self._end_refused, client)
        self._refused[client] = self._runtime.scheduler.call_later(wait_ms, end)

    def _end_refused(self, client: socket.socket) -> None:
        self._refused.pop(client).cancel()
        client.close()

    def _is_of_brokers(self, listener: Listener) -> bool:
        """Whether brokers come by this listener, and clients by another."""
        is_theirs = listener.name == self._config.inter_broker_listener_name
        return is_theirs and len(self.listeners) > 1

    def _takes_reserve(self, client: socket.socket, listener: Listener) -> bool:
        fd, most = client.fileno(), self._config.max_descriptors
        return is_of_reserve(fd, most, self._count) and not self._is_of_brokers(listener)

    def _is_full(self) -> bool:
        return self._count >= self._config.max_connections

    def _replaceable_by(self, listener: Listener) -> End | None:
        if listener.name != self._config.inter_broker_listener_name:
            return None
        return next(filter(None, (find(listener) for find in self.replaceable)), None)

    def _pause(self, listener: Listener, error: OSError) -> None:
        """Leave clients in the backlog for a moment; to ask again at once would only burn time."""
        self._tell(listener, str(error.strerror))
        self._is_exhausted = True
        self._watch()
        self._runtime.scheduler.call_later(EXHAUSTED_PAUSE_MS, self._resume)

    def _tell(self, listener: Listener, reason: str) -> None:
        """Log why clients have to wait, though not at every attempt."""
        if self._waits.is_news(listener.name, reason):
            logger.warning("Cannot accept on listener %s for now: %s", listener.name, reason)

    def _resume(self) -> None:
        self._is_exhausted = False
        self._watch()

    def _watch(self) -> None:
        """Have the poller watch exactly the sockets on which a client could be accepted now."""
        for fd, (_, listener) in self._sockets.items():
            wanted = self._is_accepting and not self._is_exhausted
            if listener.name in self._pausing:
                wanted = False
            if self._is_full() and self._replaceable_by(listener) is None:
                wanted = False
            if wanted and fd not in self._watched:
                try:
                    self._served.register(fd, READABLE)
                except OSError as error:
                    self._pause(listener, error)
                    return
                self._watched.add(fd)
            elif not wanted and fd in self._watched:
                self._served.unregister(fd)
                self._watched.discard(fd)


def _refuse_from_now_on(endpoint: socket.socket) -> None:
    """Close a listening socket, also where another thread waits for it in poll(2).

    The kernel keeps a socket open until that call returns: until then it would let clients in whom
    nobody serves.
    """
    with contextlib.suppress(OSError):  # no system but Linux shuts down a socket that listens
        endpoint.shutdown(socket.SHUT_RDWR)
    endpoint.close()
