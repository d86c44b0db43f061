"""Clients whose TLS handshake is under way: they are not connections yet.

Nobody waits for them. A step is taken when bytes have come, a bounded number of them in a turn,
for the signature of one costs as much as hundreds of requests; a client that is not done in time
is closed, however slowly it sends.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from ssl import SSLError
from typing import TYPE_CHECKING, Final

from ottla.network.acceptor import End, Listener
from ottla.network.refusal_log import RefusalLog
from ottla.network.transport import TlsSide, Transport
from ottla.runtime import Runtime, Timer
from ottla.runtime.poller import READABLE, WRITABLE
from ottla.runtime.serving_loop import ServedSockets
from ottla.security.principal import KafkaPrincipal
from ottla.structs import Value

if TYPE_CHECKING:
    from ottla.network.tls_context import ListenerTls
    from ottla.network.tls_transport import TlsTransport

logger = logging.getLogger(__name__)

TURN_STEPS: Final = 16
OnAuthenticated = Callable[[Transport, KafkaPrincipal], object]
"""Takes over a client whose handshake is done, under the name of its certificate."""


class Handshake(Value):
    """One client, and the events that the poller watches for."""

    transport: TlsTransport
    tls: ListenerTls
    listener: Listener
    client: tuple[str, int]
    on_done: OnAuthenticated
    timer: Timer
    interest: int = READABLE


class Handshakes:
    """All handshakes of a processor; `on_gone` is called for those that did not finish.

    A connection whose handshake is done stays registered with the poller, for reading.
    """

    def __init__(
        self,
        runtime: Runtime,
        served: ServedSockets,
        timeout_ms: int,
        on_gone: Callable[[str], object],
    ) -> None:
        self.side = TlsSide()
        self._scheduler = runtime.scheduler
        self._served = served
        self._timeout_ms = timeout_ms
        self._on_gone = on_gone
        self._by_fd: dict[int, Handshake] = {}
        self._now_ns, self._log = runtime.clock.monotonic_ns, RefusalLog(runtime.clock)
        self._steps_left = TURN_STEPS
        self._ends_ns = 0

    def __len__(self) -> int:
        return len(self._by_fd)

    def __contains__(self, fd: int) -> bool:
        return fd in self._by_fd

    def begin(
        self,
        endpoint: socket.socket,
        tls: ListenerTls,
        listener: Listener,
        client: tuple[str, int],
        on_done: OnAuthenticated,
    ) -> None:
        """Await the first bytes of a client; when all is done, `on_done` takes it over.

        The poller watches for its bytes already.
        """
        transport = tls.transport(endpoint, self.side)
        fd = transport.fileno()
        expire = partial(self._end, fd, f"not done within {self._timeout_ms} ms")
        timer = self._scheduler.call_later(self._timeout_ms, expire)
        self._by_fd[fd] = Handshake(transport, tls, listener, client, on_done, timer)

    def begin_turn(self, ends_ns: int) -> None:
        self._steps_left, self._ends_ns = TURN_STEPS, ends_ns

    def step(self, fd: int) -> None:
        """Continue one that the poller has reported; not in this turn if its steps are used up."""
        is_over = self._steps_left < TURN_STEPS and self._now_ns() >= self._ends_ns
        if is_over or not self._steps_left:
            return
        self._steps_left -= 1
        handshake = self._by_fd[fd]
        try:
            is_done = handshake.transport.handshake()
        except SSLError as error:
            self._end(fd, error.reason or error.strerror or str(error))
            return
        except OSError as error:
            self._end(fd, error.strerror)
            return
        self._watch(fd, handshake)
        if is_done:
            self._authenticate(fd, handshake)

    def _authenticate(self, fd: int, handshake: Handshake) -> None:
        """Name the client after its certificate, and hand it over; close it without a name."""
        try:
            principal = handshake.tls.principal_of(handshake.transport.peer_certificate)
        except ValueError as error:
            self._end(fd, error)
            return
        handshake.timer.cancel()
        del self._by_fd[fd]
        handshake.on_done(handshake.transport, principal)

    def oldest(self, listener: Listener) -> End | None:
        """Ends the oldest handshake of another listener, which can make room for a broker's."""
        for fd, each in self._by_fd.items():
            if each.listener.name != listener.name:
                return partial(self._end, fd)
        return None

    def close(self) -> None:
        """The processor stops."""
        for fd in list(self._by_fd):
            self._end(fd, "the broker is stopping")

    def close_listener(self, name: str) -> None:
        """A listener is no more."""
        for fd in [fd for fd, each in self._by_fd.items() if each.listener.name == name]:
            self._end(fd, "the listener was removed")

    def _watch(self, fd: int, handshake: Handshake) -> None:
        wanted = WRITABLE if handshake.transport.wants_to_send else READABLE
        if handshake.interest != wanted:
            handshake.interest = wanted
            self._served.modify(fd, wanted)

    def _end(self, fd: int, why: object) -> None:
        handshake = self._by_fd.pop(fd)
        handshake.timer.cancel()
        self._served.unregister(fd)
        handshake.transport.close()
        (host, port), name = handshake.client, handshake.listener.name
        if self._log.is_news(host, name, str(why)):
            text = "TLS handshake of %s:%d on listener %s failed: %s"
            logger.info(text, host, port, name, why)
        self._on_gone(host)
