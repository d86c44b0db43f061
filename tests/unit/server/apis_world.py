"""Clients without a socket, and requests that are handed to a table of APIs for them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

from ottla.network.connection import IN_FLIGHT, STOPPING, Connection
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.protocol.header import decode_response, encode_request
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
