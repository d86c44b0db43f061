"""Clients whose TLS handshake is under way: they are not connections yet.

Nobody waits for them. A step is taken when bytes have come, a bounded number of them in a turn, for
the signature of one costs as much as hundreds of requests; whoever is not done in time is closed,
however slowly it goes on sending.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.network.acceptor import Listener
from ottla.network.tls_transport import TlsSide, TlsTransport
from ottla.network.transport import Transport
from ottla.runtime import Runtime, Timer

logger = logging.getLogger(__name__)

TURN_STEPS: Final = 16


@dataclass(slots=True)
class Handshake:
    """One client, and what epoll watches for."""

    transport: TlsTransport
    listener: Listener
    client: tuple[str, int]
    on_done: Callable[[Transport], object]
    timer: Timer
    interest: int = select.EPOLLIN


class Handshakes:
    """All of a processor's; `on_gone` hears of those that did not come to an end.

    Whoever is taken over stays registered with epoll, for reading.
    """

    def __init__(
        self,
        runtime: Runtime,
        epoll: select.epoll,
        timeout_ms: int,
        on_gone: Callable[[str], object],
    ) -> None:
        self.side = TlsSide()
        self._scheduler = runtime.scheduler
        self._epoll = epoll
        self._timeout_ms = timeout_ms
        self._on_gone = on_gone
        self._by_fd: dict[int, Handshake] = {}
        self._steps_left = TURN_STEPS

    def __len__(self) -> int:
        return len(self._by_fd)

    def __contains__(self, fd: int) -> bool:
        return fd in self._by_fd

    def begin(
        self,
        endpoint: socket.socket,
        context: ssl.SSLContext,
        listener: Listener,
        client: tuple[str, int],
        on_done: Callable[[Transport], object],
    ) -> None:
        """Await the first bytes of a client; when all is done, `on_done` takes it over."""
        transport = TlsTransport(endpoint, context, self.side)
        fd = transport.fileno()
        expire = partial(self._end, fd, f"not done within {self._timeout_ms} ms")
        timer = self._scheduler.call_later(self._timeout_ms, expire)
        self._by_fd[fd] = Handshake(transport, listener, client, on_done, timer)
        self._epoll.register(fd, select.EPOLLIN)

    def begin_turn(self) -> None:
        self._steps_left = TURN_STEPS

    def step(self, fd: int) -> None:
        """Go on with one that epoll has reported; not in this turn if many others had theirs."""
        if not self._steps_left:
            return
        self._steps_left -= 1
        handshake = self._by_fd[fd]
        try:
            is_done = handshake.transport.handshake()
        except ssl.SSLError as error:
            self._end(fd, error.reason or error.strerror or str(error))
            return
        except OSError as error:
            self._end(fd, error.strerror)
            return
        self._watch(fd, handshake)
        if is_done:
            handshake.timer.cancel()
            del self._by_fd[fd]
            handshake.on_done(handshake.transport)

    def close(self) -> None:
        """The processor stops."""
        for fd in list(self._by_fd):
            self._end(fd, "the broker is stopping")

    def _watch(self, fd: int, handshake: Handshake) -> None:
        wanted = select.EPOLLOUT if handshake.transport.wants_to_send else select.EPOLLIN
        if handshake.interest != wanted:
            handshake.interest = wanted
            self._epoll.modify(fd, wanted)

    def _end(self, fd: int, why: object) -> None:
        handshake = self._by_fd.pop(fd)
        handshake.timer.cancel()
        self._epoll.unregister(fd)
        handshake.transport.close()
        host, port = handshake.client
        logger.info(
            "TLS handshake of %s:%d on listener %s failed: %s",
            host,
            port,
            handshake.listener.name,
            why,
        )
        self._on_gone(host)
