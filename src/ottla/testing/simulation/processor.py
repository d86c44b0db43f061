"""The processor of a simulated broker: the real connections and handlers, without sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.errors import RemoteProtocolError
from ottla.network.acceptor import Listener
from ottla.network.connection import IN_FLIGHT, STOPPING, THROTTLED, Connection, Identify
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.network.socket_config import SocketConfig
from ottla.network.transport import send_read
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import SIZE, SIZE_BYTES
from ottla.runtime import Buffer, File, Runtime
from ottla.security.principal import KafkaPrincipal
from ottla.testing.simulation.network import ProcessNetwork, StreamEnd

logger = logging.getLogger(__name__)

UNLIMITED: Final = 1 << 40
STALE: Final = 0xA5
"""Fills a frame once its handler has returned, so that a late read of it shows."""
LOOK_MS: Final = 1_000
MAX_LOOKS: Final = 3
"""A fetch seen waiting so often is never answered: readers ask for a wait of half a second."""
API_KEY_BYTES: Final = 2
CONTROL: Final = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
"""The requests of the controller to the brokers."""


class StreamTransport:
    """`Transport` over a stream, which takes everything at once."""

    def __init__(self, end: StreamEnd) -> None:
        self._end = end
        self.recv_into: Callable[[memoryview], int] = self._receive
        self.send: Callable[[Buffer], int] = self._write

    def fileno(self) -> int:
        return -1

    def _receive(self, target: memoryview) -> int:
        raise BlockingIOError  # bytes are pushed

    def _write(self, data: Buffer) -> int:
        self._end.write(bytes(data))
        return len(data)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        return self.send(b"".join(map(bytes, buffers)))

    def send_file(self, file: File, position: int, count: int) -> int:
        return send_read(self.send, file, position, count)

    def has_ended(self) -> bool:
        return False

    def probe_peer(self) -> None:
        """Do nothing: a simulated stream ends for both sides at once."""

    def close(self) -> None:
        self._end.close()


class Client:
    """The broker's end of a stream, and the bytes that have not become requests yet."""

    def __init__(
        self, processor: SimulatedProcessor, end: StreamEnd, listener: Listener, number: int
    ) -> None:
        self._processor = processor
        peer = end.peer
        self.inbox = bytearray()
        self.api_key = 0
        self.looks = 0
        self.connection = Connection(
            processor,
            StreamTransport(end),
            FrameBuffer(processor.max_request_bytes, processor.pool),
            f"{listener.host}:{listener.port}-{peer.process.host}:{peer.port}-{number}",
            listener.name,
            (peer.process.host, peer.port),
            processor.config.authenticator(listener.name, processor.clock),
        )
        if self.connection.authenticator is None:
            # The host is the client's name: nobody needs to log in, and ACLs can name it.
            self.connection.principal = KafkaPrincipal.user(peer.process.host)

    def on_bytes(self, data: bytes) -> None:
        self.inbox += data
        self._processor.look_at(self.connection)

    def on_end(self, error: Exception | None) -> None:
        self.connection.close(str(error) if error else "the client has closed the connection")


class SimulatedProcessor:
    """Replaces `Processor`: the same turn of the loop, and the same rules for connections."""

    def __init__(
        self,
        runtime: Runtime,
        config: SocketConfig,
        on_request: Callable[[Connection, memoryview], object],
        complete_delayed: Callable[[], object] = lambda: None,
        on_forgotten: Callable[[str], object] = lambda connection_id: None,
        on_fetch: Callable[[str], object] = lambda connection_id: None,
        control_delay_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        assert isinstance(runtime.network, ProcessNetwork), "the broker lives in a world"
        self.config = config
        self.identify: Identify | None = None
        self.max_request_bytes = config.socket_request_max_bytes
        self.pool = BufferPool()
        self.listeners: list[Listener] = []
        self._network = runtime.network
        self._scheduler = runtime.scheduler
        self.clock = runtime.clock
        self._on_request = on_request
        self._complete_delayed = complete_delayed
        self._on_forgotten = on_forgotten
        self._on_fetch = on_fetch
        self._control_delay_ms = control_delay_ms
        self._clients: dict[Connection, Client] = {}
        self._to_handle: dict[Connection, None] = {}
        self._to_send: dict[Connection, None] = {}
        self._accepted_count = 0
        self._to_close: list[Connection] = []
        self._turn_is_due = False
        self._is_serving = False
        self._stopped: asyncio.Future[None] | None = None
        self.is_stopped = False

    def update_config(self, config: SocketConfig) -> None:
        """Do nothing: limits of connections do not exist here."""

    def limit_ip(self, ip: str, limit: float | None) -> None:
        """Do nothing, likewise."""

    @property
    def connections(self) -> list[Connection]:
        return list(self._clients)

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Listen at an address; connections made before `start` wait."""
        listener = Listener(name, host, port)

        def accept(end: StreamEnd) -> Client:
            self._accepted_count += 1
            client = Client(self, end, listener, self._accepted_count)
            if self._stopped is None:
                self._clients[client.connection] = client
            else:
                end.close()
            return client

        listener = Listener(name, host, self._network.serve(host, port, accept))
        self.listeners.append(listener)
        return listener

    def stop_listening(self, name: str) -> None:
        """Refuse connections to a listener."""
        for listener in [each for each in self.listeners if each.name == name]:
            self._network.stop_serving(listener.host, listener.port)
            self.listeners.remove(listener)

    def start(self) -> None:
        self._is_serving = True
        self._to_handle.update(dict.fromkeys(self._clients))
        self.schedule_turn()
        self._scheduler.call_every(LOOK_MS, self._look_for_forgotten)

    def _look_for_forgotten(self) -> None:
        """Report fetches that were not answered when their wait was over."""
        for client in self._clients.values():
            if client.connection.muted & IN_FLIGHT and client.api_key == ApiKey.FETCH:
                client.looks += 1
                if client.looks == MAX_LOOKS:
                    self._on_forgotten(client.connection.id)

    async def stop(self, timeout_ms: int) -> None:
        """Refuse connections and requests, send pending answers for up to `timeout_ms`, close."""
        for listener in self.listeners:
            self._network.stop_serving(listener.host, listener.port)
        self._stopped = asyncio.get_running_loop().create_future()
        for connection in self.connections:
            connection.muted |= STOPPING
            if not connection.owes_answer:
                connection.close("the broker is stopping")
        timer = self._scheduler.call_later(timeout_ms, self._close_all)
        self.schedule_turn()
        await self._stopped
        timer.cancel()
        self.is_stopped = True

    def _close_all(self) -> None:
        for connection in self.connections:
            connection.close("the broker has stopped")

    # The turn of the loop

    def look_at(self, connection: Connection) -> None:
        """Handle a connection that has received bytes or may take requests again."""
        self._to_handle[connection] = None
        self.schedule_turn()

    def schedule_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._scheduler.call_soon(self._drain)

    def _drain(self) -> None:
        self._turn_is_due = False
        if self._is_serving:
            to_handle, self._to_handle = self._to_handle, {}
            for connection in to_handle:
                if connection in self._clients:
                    self._handle(self._clients[connection])
        self._complete_delayed()
        to_send, self._to_send = self._to_send, {}
        for connection in to_send:
            self._send(connection)
        self._close()

    def _handle(self, client: Client) -> None:
        connection, inbox = client.connection, client.inbox
        while not connection.muted and len(inbox) >= SIZE_BYTES:
            size = SIZE.unpack_from(inbox)[0]
            if not 0 < size <= connection.frames.max_frame_bytes:
                connection.finish(f"a request of {size} bytes")
                return
            if len(inbox) < SIZE_BYTES + size:
                return
            frame = inbox[SIZE_BYTES : SIZE_BYTES + size]
            if connection.owed and connection.must_wait(int.from_bytes(frame[:API_KEY_BYTES])):
                return
            del inbox[: SIZE_BYTES + size]
            client.api_key = int.from_bytes(frame[:API_KEY_BYTES])
            client.looks = 0
            if client.api_key == ApiKey.FETCH:
                self._on_fetch(connection.id)
            delay_ms = self._control_delay_ms() if client.api_key in CONTROL else 0
            if delay_ms:
                connection.muted = IN_FLIGHT
                self._scheduler.call_later(delay_ms, partial(self._handle_late, connection, frame))
            else:
                self._handle_frame(connection, frame)

    def _handle_late(self, connection: Connection, frame: bytearray) -> None:
        if connection in self._clients and not connection.is_closing:
            self._handle_frame(connection, frame)
            self.schedule_turn()

    def _handle_frame(self, connection: Connection, frame: bytearray) -> None:
        connection.muted = IN_FLIGHT
        try:
            self._on_request(connection, memoryview(frame))
        except RemoteProtocolError as error:
            connection.finish(error.message)
        except Exception:
            logger.exception("%s: the handler of a request failed", connection.id)
            connection.close("the handler of its request failed")
        frame[:] = bytes([STALE]) * len(frame)

    def _send(self, connection: Connection) -> None:
        if connection.is_closing or not connection.outgoing:
            return
        try:
            connection.outgoing.flush(connection.transport, UNLIMITED)
        except OSError as error:
            connection.close(f"sending failed: {error}")
        if connection.muted & STOPPING and not connection.owes_answer:
            connection.close(connection.close_reason or "the broker is stopping")

    def _close(self) -> None:
        to_close, self._to_close = self._to_close, []
        for connection in to_close:
            connection.transport.close()
            connection.outgoing.clear()
            self._clients.pop(connection, None)
        if self._stopped is not None and not self._clients and not self._stopped.done():
            self._stopped.set_result(None)

    # For the connections

    def has_output(self, connection: Connection) -> None:
        self._to_send[connection] = None
        self.look_at(connection)

    def begin_close(self, connection: Connection) -> None:
        self._to_close.append(connection)
        self.schedule_turn()

    def throttle(self, connection: Connection, deadline_ms: int) -> None:
        delay_ms = deadline_ms - self.clock.monotonic_ms()
        if delay_ms > 0 and deadline_ms > connection.throttled_until_ms:
            connection.muted |= THROTTLED
            connection.throttled_until_ms = deadline_ms

            if connection.throttle_timer is not None:
                connection.throttle_timer.cancel()

            def unmute() -> None:
                connection.throttle_timer = None
                connection.muted &= ~THROTTLED
                self.look_at(connection)

            connection.throttle_timer = self._scheduler.call_later(delay_ms, unmute)
