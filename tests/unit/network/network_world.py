"""A processor on real loopback sockets, with a loop that turns when the test says so."""

from __future__ import annotations

import asyncio
import random
import select
import socket
import struct
from collections.abc import Callable, Iterable

from ottla.network.connection import Connection
from ottla.network.outgoing import Part
from ottla.network.processor import Processor
from ottla.network.socket_config import SocketConfig
from ottla.network.transport import Transport
from ottla.runtime import DelayedOperation, Runtime, SocketNetwork
from ottla.runtime.poller import Poller
from ottla.runtime.served_sockets import GuestSockets
from ottla.runtime.serving_loop import ServingLoop
from ottla.testing import MemoryDisk, MockBackground, MockClock, MockScheduler, wait_until

PATIENCE_S = 100


def frame(body: bytes) -> bytes:
    """The body behind its size."""
    return struct.pack(">i", len(body)) + body


class Poll(DelayedOperation):
    """A request that waits, like a fetch, and is released by `cancel`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(600_000)
        self.connection = connection

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.connection.send([frame(b"heard")])


class Client(socket.socket):
    """A plain socket that never blocks the loop under test."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = bytearray()
        self.closed_by_peer = False

    def pull(self) -> None:
        """Put what has arrived into the inbox."""
        try:
            data = self.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self.inbox += data
        self.closed_by_peer = not data

    def take(self) -> bytes:
        """All that has arrived and was not taken before."""
        self.pull()
        taken = bytes(self.inbox)
        self.inbox.clear()
        return taken


class NetworkWorld:
    """Processor, clients and time. Requests are answered by `answer`: an echo by default."""

    def __init__(
        self,
        poller: Poller | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        **config: object,
    ) -> None:
        self.loop = loop or ServingLoop(poller)
        self.clock = MockClock()
        self.scheduler = MockScheduler(self.clock)
        self.runtime = Runtime(
            self.clock,
            self.scheduler,
            MockBackground(self.scheduler),
            MemoryDisk(),
            SocketNetwork(self.loop),
            random.Random(0),
        )
        self.config = SocketConfig(**config)
        self.answer: Callable[[Connection, memoryview], object] = self.echo
        self.requests: list[bytes] = []
        self.connections: list[Connection] = []
        self.polls: list[Poll] = []
        self.complete_delayed: Callable[[], object] = lambda: None
        self.clients: list[Client] = []
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.processor = Processor(
            self.runtime, self.config, self.on_request, self.on_complete_delayed
        )
        self.port = self.processor.listen("PLAINTEXT", "127.0.0.1", 0).port
        self.processor.start()

    def on_request(self, connection: Connection, request: memoryview) -> None:
        self.requests.append(bytes(request))
        self.connections.append(connection)
        self.answer(connection, request)

    def on_complete_delayed(self) -> None:
        self.complete_delayed()

    def echo(self, connection: Connection, request: memoryview) -> None:
        connection.send([frame(bytes(request))])

    def hold(self, connection: Connection, request: memoryview) -> None:
        """An answer that is given later."""

    def poll(self, connection: Connection, request: memoryview) -> None:
        """An answer that waits until somebody ends the wait."""
        self.polls.append(Poll(connection))
        connection.wait_for(self.polls[-1])

    def respond_with(self, parts: Iterable[Part]) -> None:
        """From now on, answer with these parts."""
        fixed = list(parts)
        self.answer = lambda connection, request: connection.send(fixed)

    def connect(self, port: int = 0, receive_buffer_bytes: int | None = None) -> Client:
        client = self.new_client()
        if receive_buffer_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        client.connect(("127.0.0.1", port or self.port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        self.turn(1)  # or the backlog would fill up
        return client

    def new_client(self) -> Client:
        """A client that is not connected yet."""
        client = Client()
        self.clients.append(client)
        return client

    def turn(self, count: int = 3) -> None:
        """Let the loop look at its sockets."""
        for _ in range(count):
            self.loop.run_until_complete(asyncio.sleep(0))

    def look(self) -> None:
        """One look at the sockets, and the turn for those that are ready."""
        sockets = self.processor._sockets
        if isinstance(sockets, GuestSockets):
            sockets.look()
        else:
            self.loop._selector.select(0)

    def until(self, condition: Callable[[], object], what: str = "what the loop brings") -> None:
        """Turn the loop until something has happened: a busy kernel may deliver later."""

        def turn() -> None:
            self.turn(1)
            select.select([client for client in self.clients if client.fileno() >= 0], [], [], 0)

        wait_until(condition, what, PATIENCE_S, seen=lambda: self, meanwhile=turn)

    def __repr__(self) -> str:
        """What a wait that is given up has seen."""
        inboxes = [bytes(client.inbox[:100]) for client in self.clients]
        return f"{self.processor.connections}, requests {self.requests}, inboxes {inboxes}"

    def send(self, client: Client, data: bytes) -> None:
        """Send all of the data, while the processor takes it in."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[client.send(rest) :]
            except BlockingIOError:
                pass
            self.turn(1)

    def receive(self, client: Client, count: int) -> bytes:
        """Exactly `count` bytes."""

        def is_enough() -> bool:
            client.pull()
            return len(client.inbox) >= count or client.closed_by_peer

        if len(client.inbox) < count:
            self.until(is_enough)
        received = bytes(client.inbox[:count])
        assert len(received) == count, f"only {len(received)} bytes of {count} came"
        del client.inbox[:count]
        return received

    def is_closed(self, client: Client) -> bool:
        """Whether the processor closes the connection; an error if it does not."""
        self.until(lambda: not client.take() and client.closed_by_peer)
        return True

    def is_open(self, client: Client) -> bool:
        """Whether the processor leaves the connection open for a few turns more."""
        self.turn(10)
        client.take()
        return not client.closed_by_peer

    def await_bytes(self, *transports: Transport) -> None:
        """Wait, without a turn of the loop, until the kernel has brought something to each.

        To every connection, where none are named.
        """
        for each in transports or [each.transport for each in self.processor.connections]:
            readable, _, _ = select.select([each], [], [], PATIENCE_S)
            assert readable, "nothing came"

    def advance(self, ms: int) -> None:
        """Let time pass, and the loop do what that brings."""
        self.scheduler.advance(ms)
        self.turn()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if not self.processor._sockets.is_closed:
            stopping = self.loop.create_task(self.processor.stop(0))
            self.turn(1)
            self.advance(0)
            self.loop.run_until_complete(stopping)
        self.loop.close()
