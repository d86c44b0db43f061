"""Listeners, and who is let in.

`max.connections` counts all listeners together: when it is reached, nobody is accepted until
somebody leaves, except on the listener of the brokers, where the client that was quiet for
longest makes room (KIP-402). `max.connections.per.ip` is checked after accepting: one too many is
closed at once.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ottla.network.config import NetworkConfig
from ottla.network.connection import Connection
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

# No descriptors or memory at present: waiting helps, trying at once does not.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_PAUSE_MS = 100
MAPPED_IPV4 = "::ffff:"


@dataclass(frozen=True, slots=True)
class Listener:
    """A named place where clients connect; `port` is the real one if 0 was asked for."""

    name: str
    host: str
    port: int


class Admission(Protocol):
    """Where accepted sockets go, and who can be asked to make room."""

    def admit(self, endpoint: socket.socket, listener: Listener, client: tuple[str, int]) -> None:
        """Serve a new client."""
        ...

    def quietest(self, listener: Listener) -> Connection | None:
        """The client of another listener that was quiet for longest."""
        ...


class Acceptor:
    """All listening sockets of a broker, in the processor's epoll while clients can be accepted."""

    def __init__(
        self, runtime: Runtime, config: NetworkConfig, epoll: select.epoll, admission: Admission
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._epoll = epoll
        self._admission = admission
        self._sockets: dict[int, tuple[socket.socket, Listener]] = {}
        self._watched: set[int] = set()
        self._count = 0
        self._count_by_ip: Counter[str] = Counter()
        self._is_accepting = False
        self._is_exhausted = False

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

    def update_config(self, config: NetworkConfig) -> None:
        """Follow changed limits; clients that are connected stay."""
        self._config = config
        self._watch()

    def start(self) -> None:
        self._is_accepting = True
        self._watch()

    def close(self) -> None:
        """Stop listening; whoever waits in the backlog is refused by the kernel."""
        self._is_accepting = False
        self._watch()
        for endpoint, _ in self._sockets.values():
            endpoint.close()
        self._sockets.clear()

    def accept(self, fd: int) -> None:
        """Accept from a listening socket that is ready, a bounded number of clients."""
        endpoint, listener = self._sockets[fd]
        for _ in range(self._config.turn_max_accepts):
            leaver = None
            if self._is_full():
                leaver = self._replaceable_by(listener)
                if leaver is None:
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
            if leaver is not None:
                leaver.close("max.connections is reached and a broker wants to connect")
            self._let_in(client, listener, (address[0].removeprefix(MAPPED_IPV4), address[1]))

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
        limit = self._config.max_connections_per_ip_overrides.get(
            host, self._config.max_connections_per_ip
        )
        if self._count_by_ip[host] >= limit:
            client.close()
            logger.info(
                "Closed a connection of %s: it has %d (max.connections.per.ip)", host, limit
            )
            return
        self._count += 1
        self._count_by_ip[host] += 1
        self._admission.admit(client, listener, address)

    def _is_full(self) -> bool:
        return self._count >= self._config.max_connections

    def _replaceable_by(self, listener: Listener) -> Connection | None:
        if listener.name != self._config.inter_broker_listener_name:
            return None
        return self._admission.quietest(listener)

    def _pause(self, listener: Listener, error: OSError) -> None:
        """Leave clients in the backlog for a moment; to ask again at once would only burn time."""
        logger.warning("Cannot accept on listener %s for now: %s", listener.name, error.strerror)
        self._is_exhausted = True
        self._watch()
        self._runtime.scheduler.call_later(EXHAUSTED_PAUSE_MS, self._resume)

    def _resume(self) -> None:
        self._is_exhausted = False
        self._watch()

    def _watch(self) -> None:
        """Have epoll watch exactly the sockets on which somebody could be accepted now."""
        for fd, (_, listener) in self._sockets.items():
            wanted = self._is_accepting and not self._is_exhausted
            if self._is_full() and self._replaceable_by(listener) is None:
                wanted = False
            if wanted and fd not in self._watched:
                self._epoll.register(fd, select.EPOLLIN)
                self._watched.add(fd)
            elif not wanted and fd in self._watched:
                self._epoll.unregister(fd)
                self._watched.discard(fd)
