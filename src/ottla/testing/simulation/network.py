"""The network of a simulated world: streams that are slow, stall and break.

Each direction of a stream keeps its order; between streams there is none. A link that is cut in
one direction holds its messages until it is whole again, as TCP does by sending again.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol
from zlib import crc32

from ottla.testing.runtime import ChannelNetwork, Connect, feed
from ottla.testing.simulation.agenda import AgendaLoop
from ottla.testing.virtual_loop import MockClock

FIRST_EPHEMERAL_PORT: Final = 40_000
CONNECT_TIMEOUT_MS: Final = 10_000


class StreamUser(Protocol):
    """The user of one end of a stream."""

    def on_bytes(self, data: bytes) -> None: ...

    def on_end(self, error: Exception | None) -> None: ...


Accept = Callable[["StreamEnd"], StreamUser]


class StreamDirection:
    """One direction of a stream: the bytes sent, in order, and when they may arrive.

    It arrives in the process at the other end; if that is paused, when it is resumed.
    """

    def __init__(self, network: SimulatedNetwork, source: StreamEnd, target: StreamEnd) -> None:
        self._network = network
        self._link = (source.process.host, target.process.host)
        self._target = target
        self._queue: deque[tuple[int, bytes | None]] = deque()
        self._is_scheduled = False

    def push(self, data: bytes | None) -> None:
        """Send bytes, or (None) the end."""
        network = self._network
        arrival_ms = network.now_ms() + network.delay_ms(self._link)
        network.trace = crc32(data or b"", crc32(b"%d" % arrival_ms, network.trace))
        self._queue.append((arrival_ms, data))
        if not self._is_scheduled:
            self.schedule()

    def schedule(self) -> None:
        if self._is_scheduled or not self._queue:
            return
        if self._network.is_cut(self._link):
            self._network.hold(self._link, self)
            return
        self._is_scheduled = True
        delay_ms = max(0, self._queue[0][0] - self._network.now_ms())
        self._target.process.loop.add_timer(delay_ms, self._arrive)

    def _arrive(self) -> None:
        self._is_scheduled = False
        now_ms = self._network.now_ms()
        try:
            if not self._network.is_cut(self._link):
                while self._queue and self._queue[0][0] <= now_ms:
                    _, data = self._queue.popleft()
                    self._target.arrived(data)
        finally:
            if self._queue:
                self.schedule()

    def clear(self) -> None:
        self._queue.clear()


class StreamEnd:
    """One end: `write` sends, and arriving bytes are handed to the user in its own process."""

    def __init__(self, network: SimulatedNetwork, process: ProcessNetwork, port: int) -> None:
        self.network = network
        self.process = process
        self.port = port
        self.user: StreamUser | None = None
        self.is_closed = False
        self.peer: StreamEnd = self
        self.flow: StreamDirection | None = None

    def join(self, peer: StreamEnd) -> None:
        self.peer, peer.peer = peer, self
        self.flow, peer.flow = (
            StreamDirection(self.network, self, peer),
            StreamDirection(self.network, peer, self),
        )

    def write(self, data: bytes) -> None:
        if not self.is_closed and self.flow is not None:
            self.flow.push(data)

    def close(self) -> None:
        """Send the end after the written bytes; nothing more is received."""
        if not self.is_closed:
            self.is_closed = True
            self.network.streams.pop(self, None)
            if self.flow is not None:
                self.flow.push(None)

    def reset(self, error: Exception) -> None:
        """Break: bytes on their way to this end are lost."""
        if self.is_closed:
            return
        self.is_closed = True
        self.network.streams.pop(self, None)
        if self.peer.flow is not None:
            self.peer.flow.clear()
        self.process.loop.call_soon(self._end, error)

    def arrived(self, data: bytes | None) -> None:
        """Pass arriving bytes to the user; called in the process of this end."""
        if self.is_closed:
            return
        if data is None:
            self.is_closed = True
            self.network.streams.pop(self, None)
            self._end(None)
        elif self.user is not None:
            self.user.on_bytes(data)

    def _end(self, error: Exception | None) -> None:
        if self.user is not None:
            self.user.on_end(error)


class ClientTransport(asyncio.Transport):
    """The stream as asyncio shows it to a protocol."""

    def __init__(self, end: StreamEnd, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._end = end
        self._protocol = protocol
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._end.write(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here, so that no limit is reached."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def on_bytes(self, data: bytes) -> None:
        if not self._is_closing:
            feed(self._protocol, data)

    def on_end(self, error: Exception | None) -> None:
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._end.close()
            self._end.process.loop.call_soon(self._protocol.connection_lost, error)


def _sit_down(end: StreamEnd, protocol: asyncio.BaseProtocol) -> ClientTransport:
    end.user = transport = ClientTransport(end, protocol)
    return transport


class ProcessNetwork(ChannelNetwork):
    """`Network` for one process: its host, and the loop in which everything arrives."""

    def __init__(self, network: SimulatedNetwork, host: str, loop: AgendaLoop) -> None:
        self._network = network
        self.host = host
        self.loop = loop

    def serve(self, host: str, port: int, accept: Accept) -> int:
        """Accept streams at an address; returns the port, a free one if 0 was asked for."""
        return self._network.serve(self, host, port, accept)

    def stop_serving(self, host: str, port: int) -> None:
        self._network.listeners.pop((host, port), None)

    async def open(self, host: str, port: int) -> StreamEnd:
        """Open a stream to an address, without an asyncio protocol on it."""
        return await self._network.open(self, host, port)

    def close_all(self) -> None:
        """End the streams and listeners of a process that is gone."""
        self._network.forget(self)

    async def way_to(self, host: str, port: int) -> Connect:
        return partial(_sit_down, await self.open(host, port))


class SimulatedNetwork:
    """All streams and links of a world, and their faults."""

    def __init__(self, clock: MockClock, loop: AgendaLoop, chance: random.Random) -> None:
        self.now_ms = clock.monotonic_ms
        self._loop = loop
        self._random = chance
        self.listeners: dict[tuple[str, int], tuple[ProcessNetwork, Accept]] = {}
        self.streams: dict[StreamEnd, None] = {}
        self.min_delay_ms, self.max_delay_ms = 0, 5
        self.trace = 0
        """A checksum of all that was sent so far, and of when it arrives."""
        self._cut: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], dict[StreamDirection, None]] = {}
        self._next_port = FIRST_EPHEMERAL_PORT

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Hold the messages from `source` to `target` from now on; the names are hosts."""
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """Deliver the messages held in the meantime, and all from now on."""
        self._cut.discard((source, target))
        for flow in self._held.pop((source, target), ()):
            flow.schedule()

    def heal_all(self) -> None:
        for source, target in sorted(self._cut):
            self.heal(source, target)

    def reset_some(self, count: int) -> None:
        """Break a few streams at both ends; bytes on their way are lost."""
        ends = list(self.streams)
        for end in self._random.sample(ends, min(count, len(ends))):
            error = ConnectionResetError(errno.ECONNRESET, "the simulated network broke it")
            end.reset(error)
            end.peer.reset(error)

    # For the streams

    def is_cut(self, link: tuple[str, str]) -> bool:
        return link in self._cut

    def hold(self, link: tuple[str, str], flow: StreamDirection) -> None:
        self._held.setdefault(link, {})[flow] = None

    def delay_ms(self, link: tuple[str, str]) -> int:
        if link[0] == link[1]:
            return 0
        return self._random.randint(self.min_delay_ms, self.max_delay_ms)

    def serve(self, process: ProcessNetwork, host: str, port: int, accept: Accept) -> int:
        if port == 0:
            port = self._free_port()
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, f"somebody listens on {host}:{port} already")
        self.listeners[host, port] = (process, accept)
        return port

    async def open(self, process: ProcessNetwork, host: str, port: int) -> StreamEnd:
        """Open a stream; OSError where no process listens, or the link is cut for too long."""
        opened: asyncio.Future[StreamEnd] = asyncio.get_running_loop().create_future()
        out, back = (process.host, host), (host, process.host)
        deadline_ms = self.now_ms() + CONNECT_TIMEOUT_MS

        def fail(number: int, text: str) -> None:
            if not opened.done():
                opened.set_exception(OSError(number, f"{host}:{port}: {text}"))

        def arrive() -> None:
            if self.is_cut(out) or self.is_cut(back):
                if self.now_ms() < deadline_ms:
                    self._loop.add_timer(1_000, arrive)
                else:
                    process.loop.call_soon(fail, errno.ETIMEDOUT, "no answer")
                return
            listener = self.listeners.get((host, port))
            if listener is None:
                process.loop.call_soon(fail, errno.ECONNREFUSED, "nobody listens there")
                return
            server_process, accept = listener
            client = StreamEnd(self, process, self._free_port())
            server = StreamEnd(self, server_process, port)
            client.join(server)
            self.streams[client] = self.streams[server] = None
            server_process.loop.call_soon(lambda: setattr(server, "user", accept(server)))
            delay_ms = self.delay_ms(back)
            self._loop.add_timer(delay_ms, lambda: process.loop.call_soon(_succeed, opened, client))

        self._loop.add_timer(self.delay_ms(out), arrive)
        return await opened

    def forget(self, process: ProcessNetwork) -> None:
        for address in [a for a, (owner, _) in self.listeners.items() if owner is process]:
            del self.listeners[address]
        for end in [end for end in self.streams if end.process is process]:
            end.close()

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _succeed(opened: asyncio.Future[StreamEnd], client: StreamEnd) -> None:
    if opened.done():
        client.close()
    else:
        opened.set_result(client)
