"""One request, as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ottla.compiled import mypyc_attr
from ottla.errors import LocalProtocolError
from ottla.network.connection import Connection
from ottla.network.outgoing import Part
from ottla.network.request_watch import RequestWatch
from ottla.protocol.header import RequestHeader, encode_response, encode_response_in_slices
from ottla.protocol.message import Response
from ottla.protocol.wire import records_size
from ottla.runtime import DelayedOperation, Slices
from ottla.runtime.scheduler import Work, at_once
from ottla.security.principal import KafkaPrincipal

T = TypeVar("T")


@mypyc_attr(allow_interpreted_subclasses=True)  # quotas are a feature
class RequestQuota:
    """The verdict of quotas on one request. This one is that of a client without limits."""

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


@mypyc_attr(allow_interpreted_subclasses=True)  # features charge for requests, or hold answers
class RequestContext:
    """The context of a request beside its decoded body: the client, and the way to answer.

    Invariant: a request ends once, by `respond`, `no_response` or `close_connection`.
    """

    __slots__ = (
        "_is_ended",
        "amend",
        "close_reason",
        "connection",
        "header",
        "in_sight",
        "quota",
        "received_ms",
        "watch",
    )

    def __init__(self, connection: Connection, header: RequestHeader, received_ms: int) -> None:
        self.connection = connection
        self.header = header
        self.received_ms = received_ms
        self.quota: RequestQuota = NO_QUOTA
        self.watch: RequestWatch | None = None
        self._is_ended = False
        self.amend: Callable[[Any], Work[None]] | None = None
        """Changes the response before it is sent; a later one does that of before first."""
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
        """The client's principal, as far as the listener has found out."""
        return self.connection.principal

    def respond(self, response: Response) -> None:
        """Send the answer. It may come in a later turn than the request."""
        self._check_not_ended()
        if self.amend is not None:
            at_once(self.amend(response))
        parts = encode_response(self.header, response)
        self._is_ended = True  # not before: a response that cannot be encoded is no answer
        self.connection.send(parts, self)
        if self.watch is not None:
            self.watch.end(response)

    async def respond_in_slices(self, response: Response, slices: Slices) -> int:
        """The same, encoded in slices; returns how many bytes the answer has."""
        self._check_not_ended()
        parts = await slices.do(self._encoded(response))
        self._check_not_ended()
        self._is_ended = True
        size = records_size(parts)
        self.connection.send(parts, self)
        return size

    def _encoded(self, response: Response) -> Work[list[Part]]:
        if self.amend is not None:
            yield from self.amend(response)
        parts = yield from encode_response_in_slices(self.header, response)
        if self.watch is not None:
            yield from self.watch.end_in_slices(response)
        return parts

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

    def await_acknowledgement(self, operation: DelayedOperation) -> None:
        """The same, of a produce that is appended: the client's next one need not wait for it."""
        if not self._is_ended:
            self.connection.await_acknowledgement(self, operation)

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
        self.connection.finish(reason)

    def _check_not_ended(self) -> None:
        if self._is_ended:
            raise LocalProtocolError(f"{self.header} was answered twice")
