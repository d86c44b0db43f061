"""Where connections come from, and when they are ready: listeners inwards, streams outwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from asyncio import wrap_future
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from ottla.runtime.own_thread import run_in_thread
from ottla.structs import NamedTuple

USE_SYSTEM_DEFAULT = -1
PORT_ATTEMPTS = 16
TLS_GOODBYE_S = 1.0
"""How long the end of a TLS stream is waited for; nothing depends on it."""
P = TypeVar("P", bound=asyncio.BaseProtocol)
T = TypeVar("T")


class StreamOptions(NamedTuple):
    """The kernel's buffers of a stream, and the TLS on it; None for a plain one."""

    send_buffer_bytes: int = USE_SYSTEM_DEFAULT
    receive_buffer_bytes: int = USE_SYSTEM_DEFAULT
    tls: ssl.SSLContext | None = None


DEFAULT_OPTIONS = StreamOptions()


class Network(Protocol):
    """The way out of the process; only `ottla.network` uses it."""

    def listen(
        self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int = USE_SYSTEM_DEFAULT
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
        """Open a stream to `host:port`, and put a new protocol on it; OSError if there is none."""
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
        self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int = USE_SYSTEM_DEFAULT
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
        try:
            transport, protocol = await self._open(protocol_factory, host, port, options.tls)
        except (ValueError, OverflowError) as error:  # a peer has named it: "" with TLS, port 70000
            if isinstance(error, OSError):
                raise  # of a certificate
            raise OSError(errno.EINVAL, f"not an address to connect to: {error}") from error
        endpoint = transport.get_extra_info("socket")
        if endpoint is not None:
            if options.tls is not None:
                self._forget_closed()
                self._secure.append((transport, endpoint))
            set_buffer_sizes(endpoint, options.send_buffer_bytes, options.receive_buffer_bytes)
        return transport, protocol

    async def _open(
        self, protocol_factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None
    ) -> tuple[asyncio.BaseTransport, P]:
        """A connection on this loop, with TLS where that is wanted."""
        return await self._loop.create_connection(
            protocol_factory,
            sock=await self._connected(host, port),
            ssl=tls,
            server_hostname=None if tls is None else host,
            ssl_shutdown_timeout=None if tls is None else TLS_GOODBYE_S,
        )

    async def _connected(self, host: str, port: int) -> socket.socket:
        """A socket that is connected to one of the addresses of a host.

        They are looked up in a thread of their own: the loop has an executor for it, which takes
        no job once the main thread of a program has ended.
        """
        if not host or "\0" in host:
            raise ValueError(f"{host!r} is no name of a host")
        look_up = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        try:
            found = look_up(flags=socket.AI_NUMERICHOST)  # an address: nobody is asked
        except socket.gaierror:
            found = await wrap_future(_begin_look_up(look_up))
        refusal: OSError | None = None
        for family, kind, protocol, _, place in found:
            try:
                endpoint = socket.socket(family, kind, protocol)
            except OSError as error:  # the system may have no IPv6, and know addresses of it
                refusal = refusal or error
                continue
            try:
                endpoint.setblocking(False)
                await self._loop.sock_connect(endpoint, (place[0], port, *place[2:]))
            except OSError as error:
                endpoint.close()
                refusal = error
            except BaseException:
                endpoint.close()
                raise
            else:
                return endpoint
        raise refusal or OSError(errno.EINVAL, f"{host!r} has no address")


def _begin_look_up(look_up: Callable[[], T]) -> Future[T]:
    try:
        return run_in_thread(look_up, "ottla-names")
    except RuntimeError as error:  # the system has no thread to give, for now
        raise OSError(errno.EAGAIN, str(error)) from error


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
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except ValueError as error:  # of letters beyond ASCII: a part is empty or long
        raise OSError(errno.EINVAL, f"{host!r} is no name of a host: {error}") from error
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
