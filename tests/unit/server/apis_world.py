"""Clients without a socket, and requests that are handed to a table of APIs for them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

from ottla.network.connection import IN_FLIGHT, STOPPING, Connection
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.network.request_context import RequestContext
from ottla.protocol.header import RequestHeader, decode_response, encode_request
from ottla.protocol.message import Response, encode
from ottla.runtime import Buffer, File
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.security.sasl import SaslAuthenticator


class Client:
    """Owns one connection, and takes what is sent over it: the processor and the socket in one."""

    identify = None
    max_request_bytes = 2**31 - 1
    numbers = itertools.count(1)

    def __init__(
        self,
        principal: KafkaPrincipal = ANONYMOUS,
        *,
        host: str = "10.0.0.1",
        listener_name: str = "PLAINTEXT",
        authenticator: SaslAuthenticator | None = None,
    ) -> None:
        frames = FrameBuffer(self.max_request_bytes, BufferPool())
        name = f"client-{next(self.numbers)}"
        self.connection = Connection(
            self, self, frames, name, listener_name, (host, 1), authenticator
        )
        self.connection.principal = principal
        self.sent: list[bytes] = []
        """The answers, without their sizes."""
        self.ended = 0
        """How many requests have ended without an answer."""
        self.closed: str | None = None
        self.muted_until_ms = 0
        self.is_over = asyncio.Event()
        """Set with the first answer, or end without one."""
        self._taken = bytearray()

    def hand_over(self, apis: Any, frame: Buffer) -> None:
        """Have a request served, as if it had been received."""
        self.connection.muted |= IN_FLIGHT
        apis.on_request(self.connection, memoryview(frame))

    # The processor, as far as a connection knows it

    def has_output(self, connection: Connection) -> None:
        if connection.owed:
            return  # it may take requests again
        self._taken.clear()
        connection.outgoing.flush(self, self.max_request_bytes)
        if self._taken:
            self.sent.append(bytes(self._taken[4:]))
        else:
            self.ended += 1
        self.is_over.set()
        if connection.muted & STOPPING:
            connection.close(connection.close_reason)

    def throttle(self, connection: Connection, deadline_ms: int) -> None:
        self.muted_until_ms = deadline_ms

    def begin_close(self, connection: Connection) -> None:
        self.closed = connection.close_reason
        self.is_over.set()

    # Its socket

    def send(self, data: Buffer) -> int:
        self._taken += data
        return len(data)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        return sum(map(self.send, buffers))

    def send_file(self, file: File, position: int, count: int) -> int:
        return self.send(file.pread(count, position))


class Context(RequestContext):
    """The context of a request of which nobody is told how it ends.

    `answers` are the responses, which must have bytes in the version, and None for an end without.
    """

    def __init__(
        self, api_version: int = 0, *, listener_name: str = "PLAINTEXT", client_id: str = "app"
    ) -> None:
        connection = Client(listener_name=listener_name).connection
        super().__init__(connection, RequestHeader(0, api_version, 7, client_id), 0)
        self.answers: list[Response | None] = []
        self.waits: list[Any] = []
        self.closed: list[str] = []

    @property
    def answer(self) -> Response | None:
        """The answer, None while there is none."""
        return self.answers[0] if self.answers else None

    def respond(self, response: Response) -> None:
        assert not self.answers, "a request is answered once"
        encode(response, self.api_version)
        self.answers.append(response)

    def no_response(self) -> None:
        self.answers.append(None)

    def wait_for(self, operation: Any) -> None:
        self.waits.append(operation)

    def close_connection(self, reason: str) -> None:
        self.closed.append(reason)


class Family:
    """Serves one API with one handler."""

    def __init__(self, key, handler):
        self.served = {key: handler}

    def apis(self):
        return self.served


def ask(apis, client, request, version):
    """Hand one request over; returns the decoded answer, if one was sent at once."""
    before = len(client.sent)
    client.hand_over(apis, encode_request(version, 7, "test", request)[4:])
    if len(client.sent) == before:
        return None
    correlation_id, response = decode_response(type(request), version, client.sent[-1])
    assert correlation_id == 7
    return response
