"""An outbound connection to a broker: requests go out at once, answers come back in order."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import cast

from ottla.errors import (
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    NotKafkaError,
    RemoteProtocolError,
    TlsError,
)
from ottla.network.response_reader import ResponseReader
from ottla.protocol.header import SIZE, decode_response, encode_request
from ottla.protocol.message import Request, Response
from ottla.runtime import Runtime
from ottla.runtime.network import DEFAULT_OPTIONS, StreamOptions
from ottla.runtime.scheduler import within
from ottla.structs import NamedTuple

MAX_CORRELATION_ID = 2**31 - 1
# Two line ends as a number: a server of a protocol of lines (HTTP, SMTP, Redis) takes the first
# request for a bad line and says so at once, where it would wait for the end of the line forever.
FIRST_CORRELATION_ID = int.from_bytes(b"\r\n\r\n")
MAX_ANSWER_BYTES = 2**31 - 1
MAX_FIRST_ANSWER_BYTES = 1 << 20  # ApiVersions takes a few hundred; "HTTP" as a size is a GB
TLS_ALERT = b"\x15\x03"


class PendingRequest(NamedTuple):
    """A request whose answer is still to come."""

    correlation_id: int
    request_class: type[Request]
    api_version: int
    future: asyncio.Future[Response]


class Channel(asyncio.BufferedProtocol):
    """One connection to one broker, for use on its loop.

    Several requests may be on their way; brokers answer in order, so the answer must carry the
    correlation id of the oldest. When the channel ends, all requests that still wait fail with
    NETWORK_EXCEPTION, with TlsError where the peer has said that it does not trust us, or with
    NotKafkaError where its first bytes are no answer. Time limits are the caller's: an answer that
    no caller waits for is read and dropped.
    """

    def __init__(self, peer: str, client_id: str | None) -> None:
        self.peer = peer
        self.client_id = client_id
        self.close_reason: str | None = None
        self._is_refused = False
        self._has_answered = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader(MAX_FIRST_ANSWER_BYTES)
        self._pending: deque[PendingRequest] = deque()
        self._last_correlation_id = FIRST_CORRELATION_ID - 1
        self._drained: asyncio.Future[None] | None = None

    @classmethod
    async def connect(
        cls,
        runtime: Runtime,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        timeout_ms: int = 10_000,
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> Channel:
        """A channel to `host:port`; KafkaError NETWORK_EXCEPTION when there is none to be had.

        TlsError when the two cannot agree, or the peer is not to be trusted.
        """
        peer = f"{host}:{port}"
        channel, is_connected = cls(peer, client_id), False
        connecting = runtime.network.connect(lambda: channel, host, port, options)
        try:
            await within(runtime.scheduler, timeout_ms, connecting, f"no connection to {peer}")
            is_connected = True
        except KafkaTimeoutError as error:
            raise _network_error(error.message) from None
        except ssl.SSLError as error:
            raise TlsError(f"cannot connect to {peer}: {_reason(error)}") from error
        except OSError as error:
            raise _network_error(f"cannot connect to {peer}: {error}") from error
        finally:
            if not is_connected and channel._transport is not None:
                channel._transport.abort()  # nobody would wait for its goodbye to the peer
        return channel

    @property
    def is_closed(self) -> bool:
        return self.close_reason is not None

    def send(self, request: Request, version: int) -> asyncio.Future[Response]:
        """Send the request; the future is its answer, or the reason why there will be none."""
        future: asyncio.Future[Response] = self._loop.create_future()
        if self.close_reason is not None:
            future.set_exception(self._closed_error())
            return future
        correlation_id = self._write(request, version)
        self._pending.append(PendingRequest(correlation_id, type(request), version, future))
        return future

    def send_without_response(self, request: Request, version: int) -> asyncio.Future[None] | None:
        """Send what is not answered, Produce with acks=0; done when it has left this process."""
        if self.close_reason is not None:
            raise self._closed_error()
        cast(asyncio.Transport, self._transport).set_write_buffer_limits(high=0)
        self._write(request, version)
        return self._drained

    def close(self, reason: str = "closed by the client") -> None:
        """Close. Written requests still go out; those that wait for an answer fail."""
        if self._end(reason) and self._transport is not None:
            self._transport.close()

    def _write(self, request: Request, version: int) -> int:
        correlation_id = (self._last_correlation_id + 1) & MAX_CORRELATION_ID
        frame = encode_request(version, correlation_id, self.client_id, request)
        self._last_correlation_id = correlation_id
        cast(asyncio.Transport, self._transport).write(frame)
        return correlation_id

    def _deliver(self, frame: memoryview) -> None:
        if not self._pending:
            raise RemoteProtocolError("a response although no request waits for one")
        pending = self._pending.popleft()
        try:
            (correlation_id,) = SIZE.unpack_from(frame) if len(frame) >= SIZE.size else (None,)
            if correlation_id != pending.correlation_id:
                raise RemoteProtocolError(
                    f"the answer to {pending.request_class.__name__} has correlation id "
                    f"{correlation_id} and not {pending.correlation_id}"
                )
            _, response = decode_response(pending.request_class, pending.api_version, frame)
        except RemoteProtocolError as error:
            if not pending.future.done():
                pending.future.set_exception(self._wrong_answer(error))
            raise
        if not self._has_answered:
            self._has_answered = True
            self._reader.max_bytes = MAX_ANSWER_BYTES
        if not pending.future.done():
            pending.future.set_result(response)

    def _fail_first(self, error: RemoteProtocolError) -> None:
        """Where nothing was answered yet, the oldest request gets the error."""
        if self._pending and not self._has_answered:
            future = self._pending.popleft().future
            if not future.done():
                future.set_exception(self._wrong_answer(error))

    def _wrong_answer(self, error: RemoteProtocolError) -> KafkaError:
        if self._has_answered:
            return _network_error(f"{self.peer}: {error.message}")
        if self._reader.beginning.startswith(TLS_ALERT):
            return NotKafkaError(f"{self.peer} speaks TLS: security.protocol must be SSL")
        return NotKafkaError(f"{self.peer} does not speak Kafka's protocol: {error.message}")

    def _end(self, reason: str) -> bool:
        """Fail the waiting requests, once; was it this call that ended the channel?"""
        if self.close_reason is not None:
            return False
        self.close_reason = reason
        if self._drained is not None:
            self._drained.set_exception(self._closed_error())
            self._drained.exception()  # mark as retrieved: no call may be waiting
            self._drained = None
        while self._pending:
            future = self._pending.popleft().future
            if not future.done():
                future.set_exception(self._closed_error())
        return True

    def _closed_error(self) -> KafkaError:
        message = f"the connection to {self.peer} is closed: {self.close_reason}"
        return TlsError(message) if self._is_refused else _network_error(message)

    # The callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            # With TLS 1.3 a client is refused after it has taken the handshake for done.
            self._is_refused = "ALERT" in str(exc.reason)
            self._end(_reason(exc))
        else:
            self._end(str(exc) if exc else "the broker has closed it")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.received(nbytes):
                self._deliver(frame)
        except RemoteProtocolError as error:
            # The rest of the stream cannot be trusted either.
            self._fail_first(error)
            if self._end(error.message) and self._transport is not None:
                self._transport.abort()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None


def _reason(error: ssl.SSLError) -> str:
    """The reason in OpenSSL's words, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message}"
    return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _network_error(message: str) -> KafkaError:
    return KafkaError.of(ErrorCode.NETWORK_EXCEPTION, message)
