"""A client's connection: one request in flight, and the answers on their way out.

It moves no bytes itself. The processor that owns it receives into its `frames`, hands its
requests over and sends its `outgoing`; the connection knows what it may do next.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ottla.errors import LocalProtocolError, RemoteProtocolError
from ottla.network.transport import Outgoing, Part, Transport
from ottla.protocol.header import (
    SIZE,
    SIZE_BYTES,
    RequestHeader,
    encode_response,
    encode_response_in_slices,
)
from ottla.protocol.message import Response
from ottla.runtime import DelayedOperation, FileRegion, Timer
from ottla.security.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from ottla.security.sasl import SaslAuthenticator

T = TypeVar("T")
LetIn = Callable[[KafkaPrincipal], object]
Refuse = Callable[[str], object]
Identify = Callable[["Connection", LetIn, Refuse], object]
"""Gets a client, and two calls of which it makes one later: let it in, or refuse it."""
LastOf = Callable[[Iterator[list[Part] | None]], Awaitable[list[Part]]]
"""Does work that gives a None for each slice of it, and then its result."""

# Bytes of one connection on their way to becoming frames; never a socket in sight.
#
# A frame is a size (4 bytes, big endian) and as many bytes. What a client claims about the size is
# believed only as far as bytes have come: memory is taken for at most GROWTH times of what was
# received (CVE-2022-34917 was about the opposite).


GROWTH = 4
MIN_OWN_BYTES = 512
MIN_POOLED_BYTES = 64 * 1024
MAX_POOLED_BYTES = 4 * 1024 * 1024
NOTHING = memoryview(b"")
HEAD = struct.Struct(">ih")
"""A frame begins with its size and the key of its API."""


class BufferPool:
    """Buffers for large frames that are used again, so that the kernel need not give fresh pages.

    Invariant: `_buffers` is sorted by size, and sums up to `pooled_bytes`, which is `max_bytes`
    or less.
    """

    __slots__ = ("_buffers", "_max_bytes", "pooled_bytes")

    def __init__(self, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._buffers: list[bytearray] = []
        self.pooled_bytes = 0

    def take(self, min_bytes: int, wanted_bytes: int) -> bytearray:
        """A buffer of `min_bytes` or more; of `wanted_bytes` if one lies here."""
        if wanted_bytes >= MIN_POOLED_BYTES and self._buffers:
            index = bisect_left(self._buffers, wanted_bytes, key=len)
            index = min(index, len(self._buffers) - 1)
            if len(self._buffers[index]) >= min_bytes:
                buffer = self._buffers.pop(index)
                self.pooled_bytes -= len(buffer)
                return buffer
        if min_bytes >= MIN_POOLED_BYTES:
            min_bytes = 1 << (min_bytes - 1).bit_length()  # a power of two suits more frames
        return bytearray(min_bytes)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back that is no longer in use."""
        size = len(buffer)
        if not MIN_POOLED_BYTES <= size <= MAX_POOLED_BYTES:
            return
        if self.pooled_bytes + size <= self._max_bytes:
            insort(self._buffers, buffer, key=len)
            self.pooled_bytes += size


def lasting(part: memoryview) -> memoryview:
    """Bytes of a frame, to be kept beyond the turn in which they are valid.

    They are a copy, unless the frame is so large that its buffer is used for nothing else: a copy
    of 100 MB would take the loop for as long as a thousand requests.
    """
    whole: Any = part.obj
    return part if len(whole) > MAX_POOLED_BYTES else memoryview(bytearray(part))


class FrameBuffer:
    """The received bytes of one connection, from `_start` to `_end` of `_view`.

    They lie either in a buffer that is borrowed for the turn (`feed`) or in an own one. Only one
    frame is received into an own buffer, never a byte beyond it; so most connections, whose
    requests are small, own nothing. Frames that `next_frame` gave out are valid until `settle`.
    """

    __slots__ = ("_end", "_own", "_pool", "_start", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, pool: BufferPool) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pool = pool
        self._own: bytearray | None = None
        self._view = NOTHING
        self._start = 0
        self._end = 0

    def is_empty(self) -> bool:
        """Whether all bytes that were received were given out as frames."""
        return self._start == self._end

    @property
    def owned_bytes(self) -> int:
        """How much memory the connection holds on to between turns."""
        return 0 if self._own is None else len(self._own)

    def feed(self, view: memoryview, start: int, end: int) -> None:
        """Bytes that were received in `view`, which may be used until `settle`."""
        self._view = view
        self._start = start
        self._end = end

    def target(self) -> memoryview:
        """Where the rest of a begun frame is received; there must be one."""
        if self._own is None or self._end == len(self._own):
            self._make_room()
        room = self._start + self._needed_bytes() - self._end
        return self._view[self._end : self._end + room]

    def fill(self, receive: Callable[[memoryview], int], max_bytes: int) -> int | None:
        """Receive up to the end of a begun frame, or for now; about `max_bytes` at most.

        Returns how many bytes have come, None at the end of the stream. Nothing is received behind
        a whole frame: that would have no room, and look like the end.
        """
        count = 0
        while count < max_bytes and not self.has_frame():
            target = self.target()
            try:
                received = receive(target)
            except BlockingIOError:
                break
            if not received:
                return None
            self._end += received
            count += received
            if received < len(target):
                break
        return count

    def has_frame(self) -> bool:
        """Whether `next_frame` would give a frame, or complain about its size."""
        available = self._end - self._start
        if available < SIZE_BYTES:
            return False
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        return available - SIZE_BYTES >= size or size > self.max_frame_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more bytes have come."""
        start = self._start
        available = self._end - start
        if available < SIZE_BYTES:
            return None
        size = SIZE.unpack_from(self._view, start)[0]
        if not 0 < size <= self.max_frame_bytes:
            raise RemoteProtocolError(
                f"a request of {size} bytes: it must have 1 to {self.max_frame_bytes} "
                f"(socket.request.max.bytes, or sasl.server.max.receive.size before the login)"
            )
        if available - SIZE_BYTES < size:
            return None
        start += SIZE_BYTES
        self._start = end = start + size
        return self._view[start:end]

    def settle(self) -> None:
        """The turn is over: give borrowed buffers back, keep what has not become a frame yet."""
        if self._start != self._end:
            if self._own is None:
                self._make_room()
            return
        if self._own is not None:
            self._pool.give(self._own)
            self._own = None
        self._view = NOTHING
        self._start = self._end = 0

    def clear(self) -> None:
        """Forget everything, as the connection is closed."""
        self._start = self._end
        self.settle()

    def begun(self) -> tuple[int, int]:
        """The API key and the size of a frame that is being received; 0 and 0 while not known."""
        if self._end - self._start < HEAD.size:
            return 0, 0
        size, api_key = HEAD.unpack_from(self._view, self._start)
        return api_key, size

    def _needed_bytes(self) -> int:
        """How many bytes, from `_start` on, make the frame whole (or at least its size known)."""
        if self._end - self._start < SIZE_BYTES:
            return SIZE_BYTES
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        return SIZE_BYTES + size

    def _make_room(self) -> None:
        """Move the bytes to the start of an own buffer that has room for more of the frame."""
        available = self._end - self._start
        needed = self._needed_bytes()
        capacity = max(available, min(needed, max(GROWTH * available, MIN_OWN_BYTES)))
        buffer = self._pool.take(capacity, max(available, needed))
        view = memoryview(buffer)
        view[:available] = self._view[self._start : self._end]
        if self._own is not None:
            self._pool.give(self._own)
        self._own = buffer
        self._view = view
        self._start = 0
        self._end = available


# Why a connection takes no more requests at present. It is muted while any of them holds.
IN_FLIGHT = 1  # a handler owes an answer
THROTTLED = 2  # a quota is exceeded
BLOCKED = 4  # the peer does not read its answers
CLOSING = 8
STOPPING = 16  # no more requests are taken, of this client or of any

# Every answer of less than 16 MiB begins with it: the highest byte of its size.
FIRST_BYTE: Final = b"\0"


class ConnectionOwner(Protocol):
    """The processor, as far as a connection knows it."""

    identify: Identify | None
    """What names clients that need not log in, where something does."""

    def has_output(self, connection: Connection) -> None:
        """Something waits to be sent, or the connection may take requests again."""
        ...

    def throttle(self, connection: Connection, deadline_ms: int) -> None: ...

    def begin_close(self, connection: Connection) -> None: ...

    @property
    def max_request_bytes(self) -> int:
        """The largest request of a client that may make requests."""
        ...


class Connection:
    """One client. Invariant: every request that is handed over ends in one `send` or `no_response`.

    No further request is handed over before that, so answers keep the order of the requests.
    """

    __slots__ = (
        "_owner",
        "authenticator",
        "awaited",
        "client_host",
        "client_port",
        "close_reason",
        "frames",
        "has_begun_answer",
        "id",
        "interest",
        "is_answer_due",
        "is_half_closed",
        "is_queued_to_send",
        "is_ready",
        "last_active_ms",
        "listener_name",
        "muted",
        "outgoing",
        "principal",
        "ready_ns",
        "received_bytes",
        "request_count",
        "software",
        "throttle_timer",
        "throttled_until_ms",
        "transport",
        "unsent",
    )

    def __init__(
        self,
        owner: ConnectionOwner,
        transport: Transport,
        frames: FrameBuffer,
        id: str,
        listener_name: str,
        client: tuple[str, int],
        authenticator: SaslAuthenticator | None = None,
    ) -> None:
        self._owner = owner
        self.transport = transport
        self.frames = frames
        self.outgoing = Outgoing()
        self.id = id
        self.listener_name = listener_name
        self.client_host, self.client_port = client
        self.principal = ANONYMOUS
        # It judges each frame; None where there is nothing, or nothing more, to be judged.
        self.authenticator = authenticator
        self.muted = 0
        self.close_reason = ""
        self.awaited: DelayedOperation | None = None
        # The client has closed its side: it sends no more, and may still read.
        self.is_half_closed = False
        self.has_begun_answer = False  # the first byte of the next answer is sent
        self.is_answer_due = True  # the request in flight will be answered
        # The processor's notes.
        self.interest = 0  # what the poller watches for
        self.is_ready = False  # in the list of those with requests to be handled
        self.is_queued_to_send = False
        self.last_active_ms = 0
        self.throttled_until_ms = 0
        self.throttle_timer: Timer | None = None
        self.ready_ns = 0  # when the requests that are handled now had been received
        self.received_bytes = 0
        self.request_count = 0
        self.software = ("", "")
        """Name and version of the client's software, as it has told (KIP-511)."""
        self.unsent: tuple[RequestWatch, ...] = ()
        """The measured requests whose answers are queued."""

    def __repr__(self) -> str:
        return f"Connection({self.id}, listener={self.listener_name}, muted={self.muted})"

    @property
    def number(self) -> int:
        """How many connections the broker had accepted with this one; `id` ends with it."""
        return int(self.id.rpartition("-")[2])

    @property
    def is_closing(self) -> bool:
        """Closed, or about to be: what is sent from now on goes nowhere."""
        return bool(self.muted & CLOSING)

    def send(self, parts: Sequence[Part]) -> None:
        """Answer the request in flight; the parts must not be views of its frame."""
        self._end_request()
        if self.has_begun_answer:
            parts = self._rest_of(parts)
        if not self.muted & CLOSING:
            self.outgoing.extend(parts)
            self._owner.has_output(self)

    def send_last(self, parts: Sequence[Part], reason: str) -> None:
        """Answer the request in flight, and close once the answer is sent."""
        self.muted |= STOPPING
        self.close_reason = reason
        self.send(parts)

    def accepted(self, principal: KafkaPrincipal) -> None:
        """A client has come, under the name of its certificate, or of none."""
        if self.authenticator is None:
            self.principal = principal
            if self._owner.identify is not None:
                self.muted |= IN_FLIGHT
                self.is_answer_due = False
                self._owner.identify(self, self._let_in, self.close)

    def _let_in(self, principal: KafkaPrincipal) -> None:
        self.principal = principal
        self.no_response()

    def authenticated(self, authenticator: SaslAuthenticator, name: KafkaPrincipal) -> None:
        """The client is known now: it may make requests, of any size that requests may have."""
        self.principal = name
        self.frames.max_frame_bytes = self._owner.max_request_bytes
        if not authenticator.has_session_end:
            self.authenticator = None

    def no_response(self) -> None:
        """End the request in flight without an answer, as acks=0 does."""
        self._end_request()
        self.is_answer_due = True
        if not self.muted & CLOSING:
            self._owner.has_output(self)

    def wait_for(self, operation: DelayedOperation) -> None:
        """The request in flight is answered by this operation, which ends with the client."""
        if self.muted & CLOSING:
            operation.cancel()
        else:
            self.awaited = operation

    def half_close(self) -> None:
        """The client has stopped sending; it may be gone, or still read its answer."""
        self.is_half_closed = True
        try:
            if self._waits_for_nothing() and self.transport.has_ended():
                self.close("the client has closed the connection")
                return
            self.transport.probe_peer()
        except OSError:
            self.close("the client has hung up")
        else:
            self.begin_answer()

    def _waits_for_nothing(self) -> bool:
        """Whether only a quota holds it: all is answered and sent, and no request has begun."""
        return self.muted == THROTTLED and not self.outgoing and self.frames.is_empty()

    def begin_answer(self) -> None:
        """Send the first byte of the answer in flight, to hear whether the client is gone.

        TCP tells a client that is gone from one that still reads only when it is sent something:
        the system of the first one refuses it, and the poller tells of a hang-up. An answer begins
        with its size, whose first byte is known before the answer.
        """
        is_waiting = self.muted & (IN_FLIGHT | CLOSING) == IN_FLIGHT
        if is_waiting and self.is_answer_due and not self.has_begun_answer:
            self.has_begun_answer = True
            self.outgoing.extend([FIRST_BYTE])
            self._owner.has_output(self)

    def _rest_of(self, parts: Sequence[Part]) -> Sequence[Part]:
        """An answer without its first byte, which was sent before."""
        self.has_begun_answer = False
        head, *rest = parts
        assert not isinstance(head, FileRegion), "an answer begins with its size"
        if head[:1] != FIRST_BYTE:
            self.close("an answer of 16 MiB or more was due to a client that has closed its side")
        return [memoryview(head)[1:], *rest]

    def mute_until(self, deadline_ms: int) -> None:
        """Take no more requests before the monotonic clock reaches `deadline_ms` (throttling)."""
        if not self.muted & CLOSING:
            self._owner.throttle(self, deadline_ms)

    def close(self, reason: str) -> None:
        """Close at the end of the turn; what is queued to be sent is dropped."""
        if not self.muted & CLOSING:
            self.muted |= CLOSING
            self.close_reason = reason
            if self.throttle_timer is not None:
                self.throttle_timer.cancel()
                self.throttle_timer = None
            if self.awaited is not None:
                self.awaited.cancel()
                self.awaited = None
            self._owner.begin_close(self)

    def _end_request(self) -> None:
        # After `close` no answer is due, and a handler that prepared one need not know.
        if not self.muted & (IN_FLIGHT | CLOSING):
            raise LocalProtocolError(f"{self.id} was sent an answer without a request in flight")
        self.muted &= ~IN_FLIGHT
        self.awaited = None


# One request, as its handler sees it.


class RequestQuota:
    """What quotas say to one request. This one is that of a client without limits."""

    __slots__ = ()

    @property
    def max_fetch_bytes(self) -> int:
        """The most bytes that a fetch may answer with."""
        return MAX_ANSWER_BYTES

    def admits_fetch(self, size: int) -> bool:
        """Whether a fetch may answer with `size` bytes of records; if not, with none now."""
        return True

    def admit_mutations(self, count: int, *, is_strict: bool) -> None:
        """Note partitions that are created or deleted (KIP-599).

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED, only if `is_strict`; then they are not noted.
        """

    def exempt(self) -> None:
        """The request is one between brokers: the time of its handler is not limited."""

    def end_step(self) -> None:
        """The handler has returned, or waits: from here on its time is free."""

    def timed(self, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The same coroutine, charged for its steps."""
        return coroutine


NO_QUOTA: Final = RequestQuota()
MAX_ANSWER_BYTES: Final = 2**31 - 1


class RequestWatch:
    """Hears how requests fare, where requests are measured."""

    __slots__ = ("end", "versions")

    def __init__(self, end: Callable[[Response | None], object]) -> None:
        self.end = end
        """Called with the answer; with None the request is over without one."""
        self.versions: dict[int, int] = defaultdict(int)
        """How many requests have begun, by version."""

    def begin_wait(self) -> None:
        """The handler has returned."""


class RequestContext:
    """What a handler gets beside the decoded body: who asks, and how to answer.

    Invariant: a request ends once, by `respond`, `no_response` or `close_connection`.
    """

    __slots__ = (
        "_is_ended",
        "amend",
        "close_reason",
        "connection",
        "header",
        "in_sight",
        "received_ms",
        "watch",
    )

    quota: RequestQuota = NO_QUOTA

    def __init__(self, connection: Connection, header: RequestHeader, received_ms: int) -> None:
        self.connection = connection
        self.header = header
        self.received_ms = received_ms
        self.watch: RequestWatch | None = None
        self._is_ended = False
        self.amend: Callable[[Any], object] | None = None
        """Called with the response before it is sent; a later one calls that of before first."""
        self.in_sight: Callable[[str], bool] | None = None
        """Whether the client may see what has this name, where the handler has to ask first."""
        self.close_reason = ""
        """Why the connection is closed where the request would have had no answer."""

    @property
    def api_version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """The name that the client gives itself; empty when it gives none."""
        return self.header.client_id or ""

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def listener_name(self) -> str:
        return self.connection.listener_name

    @property
    def principal(self) -> KafkaPrincipal:
        """Who asks, as far as the listener has found out."""
        return self.connection.principal

    def respond(self, response: Response) -> None:
        """Send the answer. It may come in a later turn than the request."""
        self._check_not_ended()
        if self.amend is not None:
            self.amend(response)
        parts = encode_response(self.header, response)
        self._is_ended = True  # not before: a response that cannot be encoded is no answer
        self.connection.send(parts)
        if self.watch is not None:
            self.watch.end(response)

    async def respond_in_slices(self, response: Response, last_of: LastOf) -> None:
        """The same; `last_of` does the work of encoding, which may be much, in slices."""
        self._check_not_ended()
        if self.amend is not None:
            self.amend(response)
        parts = await last_of(encode_response_in_slices(self.header, response))
        self._check_not_ended()
        self._is_ended = True
        self.connection.send(parts)
        if self.watch is not None:
            self.watch.end(response)

    def begin_wait(self) -> None:
        """The handler has returned; the answer comes later, if it has not come."""
        if self.watch is not None:
            self.watch.begin_wait()

    def wait_for(self, operation: DelayedOperation | None) -> None:
        """`operation` gives the answer, unless it was given at once (None).

        It is cancelled when the connection ends.
        """
        if operation is not None and not self._is_ended:
            self.connection.wait_for(operation)

    def expect_no_response(self) -> None:
        """The request will not be answered, so that nothing may be sent before its end."""
        self.connection.is_answer_due = False

    def no_response(self) -> None:
        """End the request without an answer, as a produce with acks=0 wants it."""
        if self.close_reason:
            self.close_connection(self.close_reason)
            return
        self._check_not_ended()
        self._is_ended = True
        self.connection.no_response()
        if self.watch is not None:
            self.watch.end(None)

    def close_connection(self, reason: str) -> None:
        """Hang up instead of answering."""
        self._check_not_ended()
        self._is_ended = True
        self.connection.close(reason)

    def _check_not_ended(self) -> None:
        if self._is_ended:
            raise LocalProtocolError(f"{self.header} was answered twice")
