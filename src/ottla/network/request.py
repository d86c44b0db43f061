"""One request, as its handler sees it."""

from __future__ import annotations

from ottla.errors import LocalProtocolError
from ottla.network.connection import Connection
from ottla.protocol.header import RequestHeader, encode_response
from ottla.protocol.message import Response
from ottla.runtime import DelayedOperation


class RequestContext:
    """What a handler gets beside the decoded body: who asks, and how to answer.

    Invariant: a request ends once, by `respond`, `no_response` or `close_connection`.
    """

    __slots__ = ("_is_ended", "connection", "header", "received_ms")

    def __init__(self, connection: Connection, header: RequestHeader, received_ms: int) -> None:
        self.connection = connection
        self.header = header
        self.received_ms = received_ms
        self._is_ended = False

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

    def respond(self, response: Response) -> None:
        """Send the answer. It may come in a later turn than the request."""
        self._check_not_ended()
        parts = encode_response(self.header, response)
        self._is_ended = True  # not before: a response that cannot be encoded is no answer
        self.connection.send(parts)

    def wait_for(self, operation: DelayedOperation | None) -> None:
        """`operation` gives the answer, unless it was given at once (None).

        It is cancelled when the connection ends, and asked to end early when the client has closed
        its side.
        """
        if operation is not None and not self._is_ended:
            self.connection.wait_for(operation)

    def no_response(self) -> None:
        """End the request without an answer, as a produce with acks=0 wants it."""
        self._check_not_ended()
        self._is_ended = True
        self.connection.no_response()

    def close_connection(self, reason: str) -> None:
        """Hang up instead of answering."""
        self._check_not_ended()
        self._is_ended = True
        self.connection.close(reason)

    def _check_not_ended(self) -> None:
        if self._is_ended:
            raise LocalProtocolError(f"{self.header} was answered twice")
