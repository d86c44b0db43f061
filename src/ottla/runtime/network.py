"""Where connections come from, and when they are ready: listeners inwards, streams outwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import random
import select
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar

USE_SYSTEM_DEFAULT = -1
PORT_ATTEMPTS = 16
TLS_GOODBYE_S = 1.0
"""How long the end of a TLS stream is waited for; nothing depends on it."""

P = TypeVar("P", bound=asyncio.BaseProtocol)


class StreamOptions(NamedTuple):
    """The kernel's buffers of a stream, and the TLS on it; None for a plain one."""

    send_buffer_bytes: int = USE_SYSTEM_DEFAULT
    receive_buffer_bytes: int = USE_SYSTEM_DEFAULT
    tls: ssl.SSLContext | None = None


DEFAULT_OPTIONS = StreamOptions()


# What is ready to be read from or written to, of many sockets.


# The numbers are those of epoll, so that its events are passed on as they are.
READABLE: Final = 0x0001
WRITABLE: Final = 0x0004
FAILED: Final = 0x0008
HUNG_UP: Final = 0x0010
HALF_CLOSED: Final = 0x2000
"""The peer sends no more; told also behind bytes that are not read."""

AUTO: Final = "auto"
EPOLL: Final = "epoll"
POLLERS: Final = (EPOLL, "kqueue", "poll", "select")
"""The calls of systems that tell which sockets are ready, the best first."""


class Poller(Protocol):
    """The calls of `select.epoll`, with its meaning of them, level-triggered.

    FAILED and HUNG_UP are told of every socket that is registered, also where nothing is asked
    for. A socket is unregistered before it is closed.
    """

    @property
    def register(self) -> Callable[[int, int], object]: ...

    @property
    def modify(self) -> Callable[[int, int], object]: ...

    @property
    def unregister(self) -> Callable[[int], object]: ...

    @property
    def poll(self) -> Callable[[float, int], list[tuple[int, int]]]:
        """The sockets that are ready, and for what. The time to wait is always 0.

        At most so many of them as the second argument says; the others are told next time.
        """
        ...

    closed: bool

    def close(self) -> None: ...

    def attach(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[], object]) -> None:
        """Have the loop call `on_ready` when something is ready, and again while it still is."""
        ...

    def detach(self) -> None:
        """End what `attach` began."""
        ...


class DescriptorPoller:
    """What has a descriptor that is readable when something is ready: the loop watches it."""

    __slots__ = ("_descriptor", "_loop")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[], object]) -> None:
        self._loop = loop
        loop.add_reader(self._descriptor, on_ready)

    def detach(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None


class EpollPoller(DescriptorPoller):
    """Linux's. The calls are its own, without a frame of ours around them."""

    __slots__ = ("_epoll", "closed", "modify", "poll", "register", "unregister")

    def __init__(self) -> None:
        epoll = self._epoll = select.epoll()
        super().__init__(epoll.fileno())
        self.register: Callable[[int, int], object] = epoll.register
        self.modify: Callable[[int, int], object] = epoll.modify
        self.unregister: Callable[[int], object] = epoll.unregister
        self.poll: Callable[[float, int], list[tuple[int, int]]] = epoll.poll
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._epoll.close()


def pollers() -> tuple[str, ...]:
    """Those of POLLERS that this system has, the best first."""
    return tuple(name for name in POLLERS if hasattr(select, name))


class Network(Protocol):
    """The way out of the process; only `ottla.network` uses it."""

    def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int,
        receive_buffer_bytes: int = USE_SYSTEM_DEFAULT,
    ) -> list[socket.socket]:
        """Listen on every address of `host` ("" means all interfaces), all on the same port."""
        ...

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.BaseTransport, P]:
        """Open a stream to `host:port`, and put a new protocol on it."""
        ...


class SocketNetwork:
    """`Network` on the machine's TCP sockets, for one asyncio loop."""

    __slots__ = ("_loop", "_secure")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # With their sockets: a TLS transport that was closed twice does not know its own.
        self._secure: list[tuple[asyncio.BaseTransport, socket.socket]] = []

    async def close(self) -> None:
        """Wait for the goodbyes of TLS streams that were closed, not for long; end all others."""
        deadline = self._loop.time() + TLS_GOODBYE_S
        while self._forget_closed() and self._loop.time() < deadline:  # noqa: ASYNC110 - no event
            await asyncio.sleep(TLS_GOODBYE_S / 500)
        for transport, _ in self._secure:
            if isinstance(transport, asyncio.Transport):
                transport.abort()

    def _forget_closed(self) -> list[tuple[asyncio.BaseTransport, socket.socket]]:
        """The TLS streams whose sockets are open."""
        self._secure = [each for each in self._secure if each[1].fileno() >= 0]
        return self._secure

    def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int,
        receive_buffer_bytes: int = USE_SYSTEM_DEFAULT,
    ) -> list[socket.socket]:
        addresses = _addresses_of(host)
        for _ in range(PORT_ATTEMPTS):
            try:
                return _listen_on_all(addresses, port, backlog, receive_buffer_bytes)
            except OSError as error:
                # Port 0: the port that the first address got may be in use on the second one.
                if port or error.errno != errno.EADDRINUSE:
                    raise OSError(
                        error.errno, f"cannot listen on {host}:{port}: {error.strerror}"
                    ) from error
        raise OSError(errno.EADDRINUSE, f"no port is free on all addresses of {host!r}")

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.BaseTransport, P]:
        goodbye_s = None if options.tls is None else TLS_GOODBYE_S
        transport, protocol = await self._loop.create_connection(
            protocol_factory, host, port, ssl=options.tls, ssl_shutdown_timeout=goodbye_s
        )
        endpoint = transport.get_extra_info("socket")
        if endpoint is not None:
            if options.tls is not None:
                self._forget_closed()
                self._secure.append((transport, endpoint))
            set_buffer_sizes(endpoint, options.send_buffer_bytes, options.receive_buffer_bytes)
        return transport, protocol


def set_buffer_sizes(endpoint: socket.socket, send_bytes: int, receive_bytes: int) -> None:
    """Set the kernel's buffers of a socket; USE_SYSTEM_DEFAULT leaves them to the kernel."""
    if send_bytes != USE_SYSTEM_DEFAULT:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    if receive_bytes != USE_SYSTEM_DEFAULT:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)


def _addresses_of(host: str) -> list[tuple[int, str]]:
    """Family and address of everything that `host` stands for, in the resolver's order."""
    if not host:
        return [(socket.AF_INET6, "::")] if socket.has_dualstack_ipv6() else [(socket.AF_INET, "")]
    # As bytes: Python loads its tables of Unicode for a name that is text.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((int(family), str(address[0])) for family, _, _, _, address in found))


def _listen_on_all(
    addresses: list[tuple[int, str]], port: int, backlog: int, receive_buffer_bytes: int
) -> list[socket.socket]:
    with contextlib.ExitStack() as opened:
        listeners: list[socket.socket] = []
        for family, address in addresses:
            listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                _bind(listener, family, address, port)
            except OSError as error:
                # A name such as localhost may have an IPv6 address on a machine without IPv6.
                if error.errno == errno.EADDRNOTAVAIL and len(addresses) > 1:
                    continue
                raise
            # Before listen: the window scale of accepted connections is fixed at the handshake.
            set_buffer_sizes(listener, USE_SYSTEM_DEFAULT, receive_buffer_bytes)
            listener.listen(backlog)
            listener.setblocking(False)
            listeners.append(listener)
            port = port or listener.getsockname()[1]
        if not listeners:
            raise OSError(errno.EADDRNOTAVAIL, f"none of {addresses} is an address of this machine")
        opened.pop_all()
        return listeners


def _bind(listener: socket.socket, family: int, address: str, port: int) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        # "::" alone stands for all interfaces of both families; a named address only for itself.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
    listener.bind((address, port))


# The name under which other machines may find this one.


def canonical_host_name() -> str:
    """The name of this machine if it resolves here, else `localhost`."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name


# A free port of this machine that a server finds free again when it is restarted.


PORTS = range(10_000, 32_000)
"""Below those that systems give to outgoing connections: a server that is started again must find
its port free, whatever has been connected to whom in the meantime."""
TRIES = 100

# One after the other from a place of this process's own: a port that was given is free until its
# server has started, or while it is down, and must not be given to another one meanwhile.
_offsets = itertools.count(random.randrange(len(PORTS)))


def free_port(host: str) -> int:
    """A port on which no process listens now, never the one before; OSError if none is found."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for offset in itertools.islice(_offsets, TRIES):
        port = PORTS[offset % len(PORTS)]
        try:
            with socket.create_server((host, port), family=family):
                return port
        except OSError:
            continue
    raise OSError(f"of {TRIES} ports from {PORTS.start} to {PORTS.stop - 1} of {host} none is free")
