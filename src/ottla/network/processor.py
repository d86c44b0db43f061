"""The processor: all client sockets of a broker, in the poller of its loop, epoll on Linux.

The loop (`ServingLoop`) hands over all sockets that are ready, and one turn serves them, instead of
one callback per socket. A turn has six stages, in this order:

    accept             new clients, and their TLS handshakes
    receive            bytes of sockets that are ready, into one buffer for all of them
    handle             whole frames: `on_request` runs inline and answers now or later
    complete delayed   waiting operations that this turn's requests completed
    send               answers, gathered per connection, at most a bounded number of bytes each
    close              last: see below

Each stage is bounded. The rest waits for the next turn, which `call_soon` makes come
after all else that the loop has to do. An error of ours costs a client its connection, and no other
one anything: the next stage follows, and what the failed one has left is done in the next turn.

Facts about epoll that shape this file (the differences of other pollers are hidden in `Poller`):
- It watches open file descriptions, not numbers. A description that was duplicated (fork, dup)
  stays watched after `close`, and cannot be unregistered once the number is gone. So
  connections are unregistered before they are closed.
- A closed number is given to the next socket at once. If a connection were closed in the middle of
  a turn and another accepted, events of the old one that were fetched before would hit the new one.
  So connections are closed after all events of the turn have been looked at. Where a turn is due,
  listeners and handshakes may end between its events and itself: it looks their numbers up.
- It is used level-triggered: bytes that a bounded turn leaves unread are reported again. Errors
  and hang-ups are reported even where nothing is asked for.
- That a client has closed its side (HALF_CLOSED) is reported where it is asked for, also behind
  bytes that are not read. The client may be gone, or still read. So the first byte of the answer
  that it waits for is sent at once: if the client is gone, a hang-up is reported.
- It knows nothing of bytes that TLS has taken from a socket. `readable_ahead` does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ottla.errors import RemoteProtocolError
from ottla.network.acceptor import TURN_NS, Acceptor, Listener
from ottla.network.connection import (
    BLOCKED,
    CLOSING,
    IN_FLIGHT,
    STOPPING,
    THROTTLED,
    Connection,
    Identify,
)
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.network.handshakes import Handshakes
from ottla.network.held_bytes import check_size, half_requests, unread_answers
from ottla.network.idle_expiry import IdleExpiry
from ottla.network.outgoing import ALL, COLD, FULL, Flushed, TruncatedFileError
from ottla.network.read_ahead import ReadAhead
from ottla.network.refusal_log import RefusalLog
from ottla.network.socket_config import SocketConfig
from ottla.network.traffic import TrafficByListener
from ottla.network.transport import PlainTransport, TlsSide, Transport, tune_socket
from ottla.runtime import Clock, Runtime
from ottla.runtime.poller import HALF_CLOSED, READABLE, WRITABLE
from ottla.runtime.served_sockets import served_sockets
from ottla.runtime.serving_loop import MAX_EVENTS
from ottla.security.principal import ANONYMOUS, KafkaPrincipal

logger = logging.getLogger(__name__)


RECEIVE_BYTES = 32 * 1024
TURN_RECEIVE_BYTES = 8 * RECEIVE_BYTES
# Of large requests and answers: at most so much per connection and turn, and so much per turn.
LARGE_FRAME_BYTES = 1024 * 1024
TURN_LARGE_FRAME_BYTES = 2 * LARGE_FRAME_BYTES
TURN_LARGE_SENDS = 16

IN = READABLE
OUT = WRITABLE
# Of a muted client: only that it closes its side.
QUIET = HALF_CLOSED
# Errors of ours. The second one is that of a future that others have given up.
FAULTS = (Exception, asyncio.CancelledError)


class Sent:
    """The measured requests (`Connection.unsent`) whose answers have been sent."""

    __slots__ = ("_now_ns", "began_ns", "is_awaited", "on_sent")

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.monotonic_ns
        self.on_sent: Callable[[Connection], object] | None = None
        self.began_ns = 0
        """When the send stage began, of the last turn in which an answer was awaited."""
        self.is_awaited = False
        """Set where an answer that is ready now belongs to a request that is timed."""

    def begin(self) -> None:
        """The send stage of a turn begins."""
        if self.is_awaited:
            self.is_awaited = False
            self.began_ns = self._now_ns()

    def end(self, connection: Connection) -> None:
        """All that was queued has been sent, or never will be."""
        if connection.unsent and self.on_sent is not None:
            self.on_sent(connection)


def readable_ahead(
    side: TlsSide, connections: Mapping[int, Connection], readable: Iterable[Connection]
) -> list[Connection]:
    """Those, besides the readable ones, that may take requests whose bytes TLS has received."""
    listed = {connection.transport.fileno() for connection in readable}
    found: list[Connection] = []
    for fd in side.ahead - listed:
        connection = connections.get(fd)
        if connection is not None and connection.muted:
            side.park(fd)
        elif connection is not None and not connection.is_ready:
            found.append(connection)
    return found


class Processor:
    """Serves clients: frames come out through `on_request`, answers go in through the connection.

    A frame is valid until `on_request` returns; `complete_delayed` comes before answers are sent.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: SocketConfig,
        on_request: Callable[[Connection, memoryview], object],
        complete_delayed: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock, self._scheduler = runtime.clock, runtime.scheduler
        self._config, self.sasl = config, config.sasl
        self.max_frame_bytes: Callable[[int], int] = lambda api_key: config.socket_request_max_bytes
        self.max_request_bytes, self.tls = config.socket_request_max_bytes, config.tls
        self._on_request = on_request
        self.identify: Identify | None = None
        self._sockets = served_sockets(self.drain)
        self._idle_expiry = idle = IdleExpiry(runtime, config.connections_max_idle_ms)
        self._acceptor = Acceptor(runtime, config, self._sockets, self.admit, idle.quietest)
        self._read_ahead, self._unread = ReadAhead(runtime.background), unread_answers()
        self._handshakes = Handshakes(
            runtime, self._sockets, config.tls_handshake_timeout_ms, self._acceptor.left
        )
        self._acceptor.replaceable.insert(0, self._handshakes.oldest)
        self._side, self._begun = self._handshakes.side, half_requests()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._pool, self._arena = BufferPool(), memoryview(bytearray(TURN_RECEIVE_BYTES))
        self._connections: dict[int, Connection] = {}
        self._accepted_count = self._now_ms = self.turn_began_ns = self._large_bytes_left = 0
        self.traffic, self.sent = TrafficByListener(), Sent(runtime.clock)
        self._refusals = RefusalLog(runtime.clock)
        # The work that stages leave to each other, and to the next turn.
        self._acceptable: dict[int, None] = {}
        self._readable: list[Connection] = []
        self._ready: list[Connection] = []
        self._to_send: list[Connection] = []
        self._to_close: list[Connection] = []
        self._in_turn = self._is_turn_due = False
        first = (self._sort, self._accept, self._receive, self._handle)
        self._stages = (*first, complete_delayed, self._send, self._close)
        self._events: Sequence[tuple[int, int]] = ()
        self._served: Connection | None = None  # the one that a stage is at work for

    @property
    def listeners(self) -> list[Listener]:
        """The listeners with their real ports."""
        return self._acceptor.listeners

    @property
    def connections(self) -> list[Connection]:
        """All connections that are open now."""
        return list(self._connections.values())

    def limit_ip(self, ip: str, limit: float | None) -> None:
        """Limit the connections a second of an address, or with "" of each without a limit."""
        self._acceptor.rates.limit_ip(ip, limit)

    def update_config(self, config: SocketConfig) -> None:
        """Follow changed limits of connections and, for new ones, changed certificates."""
        self._config, self.sasl, self.tls = config, config.sasl, config.tls
        self._acceptor.update_config(config)

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Open a listener ("" is every interface, port 0 any free one); `start` serves it."""
        return self._acceptor.listen(name, host, port)

    def stop_listening(self, name: str) -> None:
        """Remove a listener, not from within a turn; its connections are the caller's to close."""
        self._acceptor.stop_listening(name)
        self._handshakes.close_listener(name)

    def start(self) -> None:
        """Serve from now on, on the running asyncio loop."""
        self._loop = asyncio.get_running_loop()
        self._acceptor.start()

    async def stop(self, timeout_ms: int) -> None:
        """Stop taking clients and requests, send due answers until the earliest deadline, close."""
        self._acceptor.close()
        self._handshakes.close()
        self._idle_expiry.stop()
        if self._loop is None:
            self._sockets.close()
            return
        self._stopped = self._stopped or self._loop.create_future()
        for connection in self._connections.values():
            connection.muted |= STOPPING
            if not connection.owes_answer and not connection.outgoing:
                connection.close("the broker is stopping")
        self._schedule_turn()
        timer = self._scheduler.call_later(timeout_ms, self._close_all)
        await asyncio.shield(self._stopped)
        timer.cancel()
        self._sockets.close()

    def _close_all(self) -> None:
        for connection in self._connections.values():
            connection.close("the broker has stopped")

    # The turn

    def drain(self, ready: Sequence[tuple[int, int]] = ()) -> None:
        """One turn. The order of the stages is the design; see the head of this file."""
        self._events = ready
        if ready and self._is_turn_due:
            self._sort()  # for the turn that is due
            return
        self._is_turn_due, self._in_turn = False, not self._sockets.is_closed
        if not self._in_turn:
            return  # a turn was due when the processor stopped
        self.turn_began_ns = began_ns = self._clock.monotonic_ns()
        self._now_ms, self._ends_ns = began_ns // 1_000_000, began_ns + TURN_NS
        for stage in self._stages:
            try:
                stage()
            except FAULTS:
                logger.exception("Serving %s failed", self._served or "clients")
                if self._served is not None:
                    self._served.close("an error of the broker")
            self._served = None
        self._in_turn = False
        if self._side.ahead:
            self._readable += readable_ahead(self._side, self._connections, self._readable)
        if self._readable or self._ready or self._to_send or self._to_close:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        """Have another turn soon, although no socket may have anything to say."""
        if not self._is_turn_due and self._loop is not None:
            self._is_turn_due = True
            self._loop.call_soon(self.drain)

    def _sort(self) -> None:
        """Sort the ready connections; those come first that are left of the last turn.

        New clients cannot wait behind many that are ready: the backlog overflows within
        milliseconds, and the kernel of a client that found no room asks again after a second.
        """
        listed, ready = set(self._readable), self._events
        if ready and (listed or len(ready) > MAX_EVENTS // 2):
            self._acceptable.update(dict.fromkeys(self._acceptor.watched))
        for fd, events in ready:
            connection = self._connections.get(fd)
            if connection is None:
                self._acceptable[fd] = None
            elif events == IN and not connection.muted:
                if connection not in listed:
                    self._readable.append(connection)
            else:
                self._served = connection
                self._sort_out(connection, events)

    def _sort_out(self, connection: Connection, events: int) -> None:
        if events & OUT:
            self._idle_expiry.touch(connection, self._now_ms)
            self.has_output(connection)
        if not events & ~OUT:
            return
        if not connection.muted:
            self._readable.append(connection)
        elif events & IN and connection.interest & IN:
            # Not before a client sends ahead of its answers is the poller made quiet.
            self._watch(connection, QUIET)
        elif events == QUIET:
            self._watch(connection, 0)
            connection.half_close()
        else:
            connection.close("the client has hung up")

    # Accept

    def _accept(self) -> None:
        acceptable, self._acceptable = self._acceptable, {}
        self._handshakes.begin_turn(self._ends_ns)
        for fd in acceptable:
            self._served = None
            if fd in self._handshakes:
                self._handshakes.step(fd)
            elif fd in self._acceptor:
                self._acceptor.accept(fd)

    def admit(self, endpoint: socket.socket, listener: Listener, client: tuple[str, int]) -> None:
        """Serve a client that the acceptor has let in; after its handshake, where TLS is wanted."""
        try:
            local = tune_socket(endpoint, self._config.socket_send_buffer_bytes)
            self._sockets.register(endpoint.fileno(), IN)
        except OSError:  # it has gone already, or the poller takes no more
            endpoint.close()
            self._acceptor.left(client[0])
            return
        self._accepted_count += 1
        name = f"{local}-{client[0]}:{client[1]}-{self._accepted_count}"
        tls = self._config.tls.get(listener.name)
        if tls is None:
            self._serve(name, listener, client, PlainTransport(endpoint))
        else:
            on_done = partial(self._serve, name, listener, client)
            self._handshakes.begin(endpoint, tls, listener, client, on_done)

    def _serve(
        self,
        name: str,
        listener: Listener,
        client: tuple[str, int],
        transport: Transport,
        principal: KafkaPrincipal = ANONYMOUS,
    ) -> None:
        """Take requests from now on."""
        authenticator = self._config.authenticator(listener.name, self._clock)
        frames = FrameBuffer(self._config.max_frame_bytes(authenticator), self._pool)
        connection = Connection(self, transport, frames, name, listener.name, client, authenticator)
        connection.interest = IN
        self._connections[transport.fileno()] = connection
        self._idle_expiry.add(connection, self._now_ms)
        self.traffic.begin(connection)
        self._served = connection
        connection.accepted(principal)

    # Receive

    def _receive(self) -> None:
        used = count = 0
        self._large_bytes_left = TURN_LARGE_FRAME_BYTES
        for connection in self._readable:
            is_late = self.tls and count and self._clock.monotonic_ns() >= self._ends_ns
            if is_late or used > TURN_RECEIVE_BYTES - RECEIVE_BYTES or self._large_bytes_left <= 0:
                break
            count += 1
            if connection.muted or connection.is_ready or connection.is_queued_to_send:
                continue  # bytes that an earlier turn has left come first, also before its end
            self._served = connection
            try:
                used += self._receive_from(connection, used)
            except BlockingIOError:
                continue
            except OSError as error:
                connection.close(f"receiving failed: {error.strerror}")
        del self._readable[:count]

    def _receive_from(self, connection: Connection, used: int) -> int:
        """Receive the bytes that have come; returns how much of the arena that took."""
        frames = connection.frames
        if not frames.is_empty():
            self._receive_large(connection)
            return 0
        count = connection.transport.recv_into(self._arena[used : used + RECEIVE_BYTES])
        if not count:
            connection.half_close()
            return 0
        connection.received_bytes += count
        if connection.last_active_ms != self._now_ms:
            self._idle_expiry.touch(connection, self._now_ms)
        frames.feed(self._arena, used, used + count)
        if count == RECEIVE_BYTES and not frames.has_frame():
            frames.settle()
            self._receive_large(connection)
            return 0
        self._make_ready(connection)
        return count

    def _receive_large(self, connection: Connection) -> None:
        """Receive the rest of a begun frame straight into the buffer that it will be handled in."""
        received = connection.frames.fill(connection.transport.recv_into, LARGE_FRAME_BYTES)
        if received is None:
            connection.finish("the client has closed the connection within a request")
            return
        check_size(connection, self.max_frame_bytes, self._refusals)
        self._begun.note(connection)
        if connection.frames.has_frame():
            self._make_ready(connection)
        self._large_bytes_left -= received
        connection.received_bytes += received
        self._idle_expiry.touch(connection, self._now_ms)

    def _make_ready(self, connection: Connection) -> None:
        connection.is_ready = True
        connection.ready_ns = self.turn_began_ns
        self._ready.append(connection)

    # Handle

    def _handle(self) -> None:
        ready, self._ready = self._ready, []
        requests_left, count = self._config.turn_max_requests, 0
        # Of many clients none has its next request handled before each has had one handled.
        share = requests_left // len(ready) or 1 if ready else 0
        try:
            for connection in ready:
                if requests_left <= 0 or (count and self._clock.monotonic_ns() >= self._ends_ns):
                    break
                count += 1
                connection.is_ready, self._served = False, connection
                requests_left -= self._handle_frames(connection, share)
        finally:
            # Connections that were not served come before those that want more.
            for connection in ready[count:]:
                connection.frames.settle()
            self._ready = ready[count:] + self._ready

    def _handle_frames(self, connection: Connection, max_requests: int) -> int:
        """Hand over the requests that can be handled now, each when the one before is answered."""
        frames = connection.frames
        count = 0
        try:
            while not connection.muted and count < max_requests:
                is_late = count and self._clock.monotonic_ns() >= self._ends_ns
                if is_late or (connection.owed and connection.must_wait(frames.begun()[0])):
                    break
                if (frame := frames.next_frame()) is None:
                    break
                count += 1
                connection.muted = IN_FLIGHT
                self._on_request(connection, frame)
                if frames.is_empty() or not connection.outgoing.has_room():
                    break
        except RemoteProtocolError as error:
            connection.finish(error.message)
        finally:
            connection.request_count += count
        frames.settle()
        if connection.is_half_closed:
            connection.begin_answer()
        if not connection.muted and (connection.interest != IN or not frames.is_empty()):
            self._take_next_request(connection)
        return count

    def _take_next_request(self, connection: Connection) -> None:
        """It is not muted: take the next request, from the buffer or else from the socket."""
        if self._side.parked:
            self._side.resume(connection.transport.fileno())
        if connection.frames.has_frame():
            if not connection.is_ready:
                self._make_ready(connection)
        elif connection.interest != IN:
            self._watch(connection, IN)

    # Send

    def _send(self) -> None:
        to_send, self._to_send = self._to_send, []
        large_sends = count = 0
        self.sent.begin()
        try:
            for connection in to_send:
                if large_sends == TURN_LARGE_SENDS:
                    break
                count += 1
                connection.is_queued_to_send, self._served = False, connection
                if not connection.muted & CLOSING and self._flush(connection) is not ALL:
                    large_sends += 1
        finally:
            self._to_send = to_send[count:] + self._to_send

    def _flush(self, connection: Connection) -> Flushed | None:
        limit = self._config.turn_max_send_bytes_per_connection
        try:
            flushed = connection.outgoing.flush(connection.transport, limit)
        except (OSError, TruncatedFileError) as error:
            connection.close(f"sending failed: {error}")
            return None
        if flushed is ALL:
            if connection.unsent:
                self.sent.end(connection)
            is_idle = connection.interest == IN and connection.frames.is_empty()
            if connection.muted or not is_idle or self._side.parked:
                self._after_send(connection)
        elif flushed is FULL:
            connection.muted |= BLOCKED
            self._watch(connection, OUT)
            self._unread.note(connection)
        elif flushed is COLD:
            connection.muted |= BLOCKED
            self._watch(connection, 0)
            self._read_ahead.request(connection.outgoing, partial(self.has_output, connection))
        else:
            self.has_output(connection)
        return flushed

    def _after_send(self, connection: Connection) -> None:
        connection.muted &= ~BLOCKED
        if not connection.muted:
            self._take_next_request(connection)
        elif connection.muted & STOPPING and not connection.owes_answer:
            connection.close(connection.close_reason or "the broker is stopping")
        elif connection.interest & OUT:
            self._watch(connection, 0 if connection.is_half_closed else QUIET)

    # Close

    def _close(self) -> None:
        while self._to_close:
            self._served = connection = self._to_close.pop()
            fd = connection.transport.fileno()
            del self._connections[fd]
            self._sockets.unregister(fd)
            connection.transport.close()
            connection.frames.clear()
            connection.outgoing.clear()
            self._idle_expiry.remove(connection)
            self._acceptor.left(connection.client_host)
            self.traffic.end(connection)
            self.sent.end(connection)
            logger.debug("%s is closed: %s", connection.id, connection.close_reason)
        if self._stopped is not None and not self._connections and not self._stopped.done():
            self._stopped.set_result(None)

    # Requests of connections

    def has_output(self, connection: Connection) -> None:
        """Look at it in the send stage of this turn, or of one that comes soon."""
        if not connection.is_queued_to_send:
            connection.is_queued_to_send = True
            self._to_send.append(connection)
            if not self._in_turn:
                self._schedule_turn()

    def begin_close(self, connection: Connection) -> None:
        """Close it in the last stage of this turn, or of one that comes soon."""
        self._to_close.append(connection)
        if not self._in_turn:
            self._schedule_turn()

    def throttle(self, connection: Connection, deadline_ms: int) -> None:
        """Mute it until `deadline_ms`, or longer if that was asked for before."""
        delay_ms = deadline_ms - self._clock.monotonic_ms()
        if delay_ms > 0 and deadline_ms > connection.throttled_until_ms:
            connection.muted |= THROTTLED
            connection.throttled_until_ms = deadline_ms
            if connection.throttle_timer is not None:
                connection.throttle_timer.cancel()
            end = partial(self._end_throttle, connection)
            connection.throttle_timer = self._scheduler.call_later(delay_ms, end)

    def _end_throttle(self, connection: Connection) -> None:
        connection.throttle_timer = None
        connection.muted &= ~THROTTLED
        if not connection.muted:
            self._take_next_request(connection)
            self._schedule_turn()

    def _watch(self, connection: Connection, interest: int) -> None:
        if connection.interest != interest:
            connection.interest = interest
            self._sockets.modify(connection.transport.fileno(), interest)
