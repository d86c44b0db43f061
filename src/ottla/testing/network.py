"""A network in memory for outbound channels: a test plays the server."""

from __future__ import annotations

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.runtime.network import DEFAULT_OPTIONS, USE_SYSTEM_DEFAULT, StreamOptions

P = TypeVar("P", bound=asyncio.BaseProtocol)


class MemoryTransport(asyncio.Transport):
    """One end of a stream: what is written here arrives at the peer's protocol in a later step."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._peer: MemoryTransport | None = None
        self._is_closing = False

    def join(self, peer: MemoryTransport) -> None:
        """Connect the two as the ends of one stream."""
        self._peer = peer
        peer._peer = self

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._peer is not None and not self._is_closing:
            self._loop.call_soon(self._peer._receive, bytes(data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            feed(self._protocol, data)

    def _lose(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.call_soon(self._protocol.connection_lost, error)
        if self._peer is not None:
            self._loop.call_soon(self._peer._lose, None)


def feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give received bytes to a protocol, in the way that asyncio does for its kind."""
    if isinstance(protocol, asyncio.BufferedProtocol):
        while data:
            target = memoryview(protocol.get_buffer(len(data))).cast("B")
            count = min(len(target), len(data))
            target[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]
    elif isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)


Connect = Callable[[asyncio.BaseProtocol], asyncio.BaseTransport]
"""Attaches a protocol to this end of a stream that has been opened."""


class ChannelNetwork(ABC):
    """`Network` for channels only: its streams are no sockets, and it cannot listen."""

    def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int,
        receive_buffer_bytes: int = USE_SYSTEM_DEFAULT,
    ) -> list[socket.socket]:
        raise OSError(errno.EOPNOTSUPP, "this network has no sockets to listen on: use `serve`")

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.BaseTransport, P]:
        connect = await self.way_to(host, port)
        protocol = protocol_factory()
        transport = connect(protocol)
        protocol.connection_made(transport)
        return transport, protocol

    @abstractmethod
    async def way_to(self, host: str, port: int) -> Connect:
        """Open a stream to `host:port`; OSError where no server listens."""


class MemoryNetwork(ChannelNetwork):
    """Connects to the protocols that `serve` has put on addresses."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], Callable[[], asyncio.BaseProtocol]] = {}

    def serve(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """From now on, a connection to `host:port` meets a new protocol of this kind."""
        self._servers[host, port] = protocol_factory

    def stop_serving(self, host: str, port: int) -> None:
        """Refuse new connections; those that are open stay open."""
        del self._servers[host, port]

    async def way_to(self, host: str, port: int) -> Connect:
        await asyncio.sleep(0)
        server_factory = self._servers.get((host, port))
        if server_factory is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        return partial(_join_to, server_factory)


def _join_to(
    server_factory: Callable[[], asyncio.BaseProtocol], client: asyncio.BaseProtocol
) -> MemoryTransport:
    loop = asyncio.get_running_loop()
    server = server_factory()
    client_end, server_end = MemoryTransport(loop, client), MemoryTransport(loop, server)
    client_end.join(server_end)
    server.connection_made(server_end)
    return client_end
