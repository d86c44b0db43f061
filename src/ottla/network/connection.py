"""A client's connection: one request in flight, and the answers on their way out.

It moves no bytes itself. The processor that owns it receives into its `frames`, hands its
requests over and sends its `outgoing`; the connection knows what it may do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.errors import LocalProtocolError
from ottla.network.frame_buffer import FrameBuffer
from ottla.network.outgoing import Outgoing, Part
from ottla.network.transport import Transport
from ottla.runtime import DelayedOperation

# Why a connection takes no more requests at present. It is muted while any of them holds.
IN_FLIGHT = 1  # a handler owes an answer
THROTTLED = 2  # a quota is exceeded
BLOCKED = 4  # the peer does not read its answers
CLOSING = 8
STOPPING = 16  # the broker takes no more requests


class ConnectionOwner(Protocol):
    """The processor, as far as a connection knows it."""

    def has_output(self, connection: Connection) -> None:
        """Something is to be sent, or the connection may take requests again."""
        ...

    def throttle(self, connection: Connection, deadline_ms: int) -> None: ...

    def begin_close(self, connection: Connection) -> None: ...


class Connection:
    """One client. Invariant: every request that is handed over ends in one `send` or `no_response`.

    No further request is handed over before that, so answers keep the order of the requests.
    """

    __slots__ = (
        "_owner",
        "awaited",
        "client_host",
        "client_port",
        "close_reason",
        "frames",
        "id",
        "interest",
        "is_half_closed",
        "is_queued_to_send",
        "is_ready",
        "last_active_ms",
        "listener_name",
        "muted",
        "outgoing",
        "throttled_until_ms",
        "transport",
    )

    def __init__(
        self,
        owner: ConnectionOwner,
        transport: Transport,
        frames: FrameBuffer,
        id: str,
        listener_name: str,
        client: tuple[str, int],
    ) -> None:
        self._owner = owner
        self.transport = transport
        self.frames = frames
        self.outgoing = Outgoing()
        self.id = id
        self.listener_name = listener_name
        self.client_host, self.client_port = client
        self.muted = 0
        self.close_reason = ""
        self.awaited: DelayedOperation | None = None
        # The client has closed its side: it sends no more, and may still read.
        self.is_half_closed = False
        # The processor's notes.
        self.interest = 0  # what epoll watches for
        self.is_ready = False  # in the list of those with requests to be handled
        self.is_queued_to_send = False
        self.last_active_ms = 0
        self.throttled_until_ms = 0

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
        if not self.muted & CLOSING:
            self.outgoing.extend(parts)
            self._owner.has_output(self)

    def no_response(self) -> None:
        """End the request in flight without an answer, as acks=0 does."""
        self._end_request()
        if not self.muted & CLOSING:
            self._owner.has_output(self)

    def wait_for(self, operation: DelayedOperation) -> None:
        """The request in flight is answered by this operation, which ends with the client."""
        if self.muted & CLOSING:
            operation.cancel()
        elif self.is_half_closed:
            operation.end_early()
        else:
            self.awaited = operation

    def half_close(self) -> None:
        """The client sends no more; it may be gone, or still read its answer.

        TCP tells the two apart only when something is sent to the client.
        """
        self.is_half_closed = True
        if self.awaited is not None:
            self.awaited.end_early()

    def mute_until(self, deadline_ms: int) -> None:
        """Take no more requests before the monotonic clock reaches `deadline_ms` (throttling)."""
        if not self.muted & CLOSING:
            self._owner.throttle(self, deadline_ms)

    def close(self, reason: str) -> None:
        """Close at the end of the turn; what is queued to be sent is dropped."""
        if not self.muted & CLOSING:
            self.muted |= CLOSING
            self.close_reason = reason
            if self.awaited is not None:
                self.awaited.cancel()
                self.awaited = None
            self._owner.begin_close(self)

    def _end_request(self) -> None:
        # After `close` nobody is owed an answer, and whoever prepared one need not know.
        if not self.muted & (IN_FLIGHT | CLOSING):
            raise LocalProtocolError(f"{self.id} was sent an answer without a request in flight")
        self.muted &= ~IN_FLIGHT
        self.awaited = None
