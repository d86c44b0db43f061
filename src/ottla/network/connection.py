"""A client's connection: the requests in flight, and the answers on their way out.

It moves no bytes itself. The processor that owns it receives into its `frames`, hands its
requests over and sends its `outgoing`; the connection knows its next step.

One request is handled at a time, and the next one is taken when it is answered. A produce whose
batches are appended, and which only waits for other replicas or for the disk, does not hold up the
produces behind it: they are appended meanwhile, so that one fetch of a follower gets all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ottla.errors import LocalProtocolError
from ottla.network.frame_buffer import FrameBuffer
from ottla.network.outgoing import Outgoing, Part
from ottla.network.request_watch import RequestWatch
from ottla.network.transport import Transport
from ottla.protocol.api_keys import ApiKey
from ottla.runtime import DelayedOperation, FileRegion, Timer
from ottla.security.principal import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from ottla.security.sasl import SaslAuthenticator

LetIn = Callable[[KafkaPrincipal], object]
Refuse = Callable[[str], object]
Identify = Callable[["Connection", LetIn, Refuse], object]
"""Gets a client, and two calls of which it makes one later: let it in, or refuse it."""


IN_FLIGHT = 1  # a handler owes an answer
"""Why a connection takes no more requests at present. It is muted while any of them holds."""
THROTTLED = 2  # a quota is exceeded
BLOCKED = 4  # the peer does not read its answers
CLOSING = 8
STOPPING = 16  # no more requests are taken, of this client or of any
WAITING = 32  # the next request is not taken before those that wait for an acknowledgement

MAX_UNACKNOWLEDGED: Final = 5
"""The produces of a client that may wait at a time: as many as an idempotent producer sends ahead
(KIP-98), and as many batches of it as a broker knows again."""

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


class Owed:
    """The answer to a produce that waits for an acknowledgement, or for the answers before it."""

    __slots__ = ("operation", "parts")

    def __init__(self, operation: DelayedOperation | None) -> None:
        self.operation = operation
        self.parts: Sequence[Part] | None = None


class Connection:
    """One client. Invariant: every request that is handed over ends in one `send` or `no_response`.

    Answers keep the order of the requests: `owed` has those that others have to wait for.
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
        "owed",
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
        self.owed: dict[object, Owed] = {}
        """The answers that wait, of the oldest request first, by their contexts."""
        # The client has closed its side: it sends no more, and may still read.
        self.is_half_closed = False
        self.has_begun_answer = False  # the first byte of the next answer is sent
        self.is_answer_due = True  # the request in flight will be answered
        # The processor's notes.
        self.interest = 0  # the events that the poller watches for
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
        """Closed, or about to be: bytes that are sent from now on go nowhere."""
        return bool(self.muted & CLOSING)

    @property
    def owes_answer(self) -> bool:
        """Whether a request has been handed over that is not answered yet."""
        return bool(self.muted & IN_FLIGHT or self.owed)

    def send(self, parts: Sequence[Part], request: object = None) -> None:
        """Answer `request`; where it is not known, or awaits no acknowledgement, the one in flight.

        The parts must not be views of its frame.
        """
        owed = self.owed.get(request) if self.owed else None
        if owed is None:
            self._end_request()
        if self.muted & CLOSING:
            return
        if not self.owed:
            self._queue(parts)
        else:
            if owed is None:
                owed = self.owed[request] = Owed(None)
            owed.parts = parts
            self._queue_answered()
        self._owner.has_output(self)

    def _queue(self, parts: Sequence[Part]) -> None:
        self.outgoing.extend(self._rest_of(parts) if self.has_begun_answer else parts)

    def _queue_answered(self) -> None:
        """Queue the answers that no other has to be sent before."""
        while self.owed:
            request, owed = next(iter(self.owed.items()))
            if owed.parts is None:
                break
            del self.owed[request]
            self._queue(owed.parts)
        self.muted &= ~WAITING

    def send_last(self, parts: Sequence[Part], reason: str) -> None:
        """Answer the request in flight, and close once the answer is sent."""
        self.muted |= STOPPING
        self.close_reason = reason
        self.send(parts)

    def finish(self, reason: str) -> None:
        """Take no more requests, and close once the answers to those before are sent."""
        if not self.owed and not self.outgoing:
            self.close(reason)
        elif not self.muted & CLOSING:
            self.muted = self.muted & ~IN_FLIGHT | STOPPING
            self.close_reason = reason

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

    def await_acknowledgement(self, request: object, operation: DelayedOperation) -> None:
        """The request in flight is done, but for this operation, which answers it.

        Its batches are appended, so the client's next produce need not wait for the answer.
        """
        if self.muted & CLOSING:
            operation.cancel()
        else:
            self._end_request()
            self.owed[request] = Owed(operation)
            self._owner.has_output(self)

    def must_wait(self, api_key: int) -> bool:
        """Whether the next request, of this API, is not taken before others are answered."""
        if api_key == ApiKey.PRODUCE and len(self.owed) < MAX_UNACKNOWLEDGED:
            return False
        self.muted |= WAITING
        return True

    def half_close(self) -> None:
        """The client has stopped sending; it may be gone, or still read its answers."""
        self.is_half_closed = True
        if self.owed:
            self.muted |= WAITING
        try:
            if not self.muted or (self._waits_for_nothing() and self.transport.has_ended()):
                self.close("the client has closed the connection")
                return
            self.transport.probe_peer()
        except OSError:
            self.close("the client has hung up")
        else:
            self.begin_answer()

    def _waits_for_nothing(self) -> bool:
        """Whether only a quota holds it: all is answered and sent, and no request has begun."""
        is_throttled = self.muted == THROTTLED and not self.owed
        return is_throttled and not self.outgoing and self.frames.is_empty()

    def begin_answer(self) -> None:
        """Send the first byte of the answer in flight, to hear whether the client is gone.

        TCP tells a client that is gone from one that still reads only when it is sent something:
        the system of the first one refuses it, and the poller reports a hang-up. An answer begins
        with its size, whose first byte is known before the answer.
        """
        is_due = bool(self.owed) or (self.muted & IN_FLIGHT and self.is_answer_due)
        if is_due and not self.muted & CLOSING and not self.has_begun_answer:
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
        """Close at the end of the turn; queued answers are dropped."""
        if not self.muted & CLOSING:
            self.muted |= CLOSING
            self.close_reason = reason
            self._owner.begin_close(self)
            if self.throttle_timer is not None:
                self.throttle_timer.cancel()
                self.throttle_timer = None
            if self.awaited is not None:
                self.awaited.cancel()
                self.awaited = None
            for owed in self.owed.values():
                if owed.operation is not None:
                    owed.operation.cancel()
            self.owed.clear()

    def _end_request(self) -> None:
        # After `close` no answer is due, and a handler that prepared one need not know.
        if not self.muted & (IN_FLIGHT | CLOSING):
            raise LocalProtocolError(f"{self.id} was sent an answer without a request in flight")
        self.muted &= ~IN_FLIGHT
        self.awaited = None
