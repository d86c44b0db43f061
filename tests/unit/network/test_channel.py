"""The outbound channel against a scripted server, in virtual time."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.errors import ErrorCode, KafkaError, NotKafkaError, TlsError
from ottla.network.channel import FIRST_CORRELATION_ID, Channel
from ottla.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
    encode_response,
)
from ottla.runtime import real_runtime
from ottla.structs import replace
from ottla.testing import MockRuntime, mock_runtime

VERSION = 2


class Server(asyncio.Protocol):
    """Keeps the requests that it gets, and answers when the test says so."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.headers: list[RequestHeader] = []
        self.bodies: list[object] = []
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def data_received(self, data: bytes) -> None:
        header, position = decode_request_header(memoryview(data)[4:])
        self.headers.append(header)
        self.bodies.append(decode_request(header, memoryview(data)[4:], position))

    def answer(self, header: RequestHeader, throttle_time_ms: int = 0) -> None:
        response = ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)],
            throttle_time_ms=throttle_time_ms,
        )
        self.write(b"".join(bytes(part) for part in encode_response(header, response)))

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class ChannelWorld:
    """A channel and the server at its other end."""

    def __init__(self) -> None:
        self.runtime: MockRuntime = mock_runtime()
        self.server = Server()
        self.runtime.network.serve("broker", 9092, lambda: self.server)
        self.channel = self.run(
            Channel.connect(self.runtime, "broker", 9092, client_id="tester", timeout_ms=1000)
        )

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runtime.scheduler.run(coroutine)

    def send(self) -> asyncio.Future[Any]:
        future = self.channel.send(ApiVersionsRequest(), VERSION)
        self.runtime.scheduler.run_ready()
        return future

    def turn(self) -> None:
        self.runtime.scheduler.run_ready()


@pytest.fixture
def world() -> ChannelWorld:
    return ChannelWorld()


def test_request_carries_client_id_and_counted_correlation_ids(world: ChannelWorld) -> None:
    """The server sees what was asked, in which version, by whom."""
    world.send()
    world.send()

    assert [header.correlation_id for header in world.server.headers] == [
        FIRST_CORRELATION_ID,
        FIRST_CORRELATION_ID + 1,
    ]
    assert {header.client_id for header in world.server.headers} == {"tester"}
    assert {header.api_version for header in world.server.headers} == {VERSION}
    world.channel.close()


def test_answers_reach_their_requests_in_order(world: ChannelWorld) -> None:
    """Three requests are on their way before the first answer comes."""
    futures = [world.send() for _ in range(3)]
    assert not any(future.done() for future in futures)
    for number, header in enumerate(world.server.headers):
        world.server.answer(header, throttle_time_ms=number)
    world.turn()

    assert [future.result().throttle_time_ms for future in futures] == [0, 1, 2]
    assert futures[0].result().api_keys[0].max_version == 3


def test_request_without_response_waits_for_none(world: ChannelWorld) -> None:
    """The next answer belongs to the next request."""
    world.channel.send_without_response(ApiVersionsRequest(), VERSION)
    future = world.send()
    assert not future.done()
    world.server.answer(world.server.headers[1])
    world.turn()

    assert future.result().error_code == 0


def test_answer_to_another_request_ends_the_channel(world: ChannelWorld) -> None:
    """A wrong correlation id means that the stream cannot be trusted: all requests fail."""
    futures = [world.send(), world.send()]
    world.server.answer(world.server.headers[1])
    world.turn()

    for future in futures:
        error = future.exception()
        assert isinstance(error, KafkaError)
        assert error.error is ErrorCode.NETWORK_EXCEPTION
        first = FIRST_CORRELATION_ID
        assert f"ApiVersionsRequest has correlation id {first + 1} and not {first}" in str(error)
    assert world.channel.is_closed
    assert world.server.lost


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff", struct.pack(">ii", 4, 0), struct.pack(">i", 0)],
    ids=["negative size", "no body", "no correlation id"],
)
def test_answer_that_is_none_ends_the_channel(world: ChannelWorld, garbage: bytes) -> None:
    """It says which broker it was."""
    future = world.send()
    world.server.write(garbage)
    world.turn()

    assert "broker:9092" in str(future.exception())
    assert world.channel.is_closed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Kafka's protocol"),
        (b"220 mail ready\r\n", "does not speak Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS: security.protocol must be SSL"),
    ],
)
def test_port_of_another_server_is_told_apart_by_its_first_bytes(
    world: ChannelWorld, answer: bytes, said: str
) -> None:
    """They would be the size of a gigabyte, and the wait for it would end with the deadline."""
    future = world.send()
    world.server.write(answer)
    world.turn()

    error = future.exception()
    assert isinstance(error, NotKafkaError)
    assert not error.retriable
    assert error.message.startswith(f"broker:9092 {said}")


def test_first_request_ends_a_line(world: ChannelWorld) -> None:
    """A server of a protocol of lines answers it, and does not wait for the rest of the line."""
    world.send()

    assert world.server.headers[0].correlation_id.to_bytes(4) == b"\r\n\r\n"


def test_answer_that_nobody_asked_for_ends_the_channel(world: ChannelWorld) -> None:
    """There is no request that it could belong to."""
    world.server.write(struct.pack(">ii", 4, 0))
    world.turn()

    assert world.channel.close_reason == "a response although no request waits for one"


def test_close_by_the_server_fails_what_waits(world: ChannelWorld) -> None:
    """The error can be retried, elsewhere."""
    future = world.send()
    assert world.server.transport is not None
    world.server.transport.close()
    world.turn()

    error = future.exception()
    assert isinstance(error, KafkaError)
    assert error.retriable
    assert "the broker has closed it" in str(error)


@pytest.mark.parametrize(
    ("reason", "is_refusal"),
    [("TLSV13_ALERT_CERTIFICATE_REQUIRED", True), ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", False)],
)
def test_peer_that_sends_an_alert_refuses_for_good(
    world: ChannelWorld, reason: str, is_refusal: bool
) -> None:
    """To ask again would not help; after bytes that were damaged on the way it may."""
    error = ssl.SSLError()
    error.reason = reason
    future = world.send()
    world.channel.connection_lost(error)

    failure = future.exception()
    assert isinstance(failure, TlsError) is is_refusal
    assert failure.retriable is not is_refusal
    assert reason.replace("_", " ").lower() in str(failure)


def test_closed_channel_refuses_requests_with_its_reason(world: ChannelWorld) -> None:
    """At once, and without an exception where a future can carry it."""
    world.channel.close("not needed any more")
    world.channel.close("again")

    assert "not needed any more" in str(world.send().exception())
    with pytest.raises(KafkaError, match="not needed any more"):
        world.channel.send_without_response(ApiVersionsRequest(), VERSION)
    world.turn()
    assert world.server.lost


def test_answer_for_a_caller_that_has_given_up_is_dropped(world: ChannelWorld) -> None:
    """The one behind it is delivered."""
    first, second = world.send(), world.send()
    first.cancel()
    for header in world.server.headers:
        world.server.answer(header)
    world.turn()

    assert second.result().error_code == 0
    assert not world.channel.is_closed


def test_nobody_at_the_address_is_a_network_error(world: ChannelWorld) -> None:
    """The text names the address."""
    connecting = Channel.connect(world.runtime, "nowhere", 1, timeout_ms=1000)
    with pytest.raises(KafkaError, match="cannot connect to nowhere:1") as failed:
        world.run(connecting)

    assert failed.value.error is ErrorCode.NETWORK_EXCEPTION


def test_connecting_ends_at_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that swallows everything does not hold the caller."""
    runtime = mock_runtime()

    async def connect(*_: object, **__: object) -> object:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(runtime.network, "connect", connect)
    with pytest.raises(KafkaError, match="no connection to broker:9092 within 1500 ms"):
        runtime.scheduler.run(Channel.connect(runtime, "broker", 9092, timeout_ms=1500))

    assert runtime.clock.monotonic_ms() == 1500


def test_request_without_response_is_done_when_it_has_left_the_process(world: ChannelWorld) -> None:
    """At once where the system takes it; else when asyncio says that its buffer is empty."""
    request = ApiVersionsRequest()
    assert world.channel.send_without_response(request, VERSION) is None
    world.channel.pause_writing()
    first = world.channel.send_without_response(request, VERSION)
    assert first is not None
    assert not first.done()
    world.channel.resume_writing()
    assert first.result() is None
    world.channel.pause_writing()
    second = world.channel.send_without_response(request, VERSION)
    world.channel.close("the peer is too slow")

    assert second is not None
    assert "the peer is too slow" in str(second.exception())


def test_task_that_is_cancelled_as_its_connection_is_made_ends() -> None:
    """It went on, and connected anew for ever: a broker that had been stopped did not end."""

    class OpensAtOnce:
        def __init__(self) -> None:
            self.may_open = asyncio.Event()

        async def connect(self, *_: object, **__: object) -> object:
            await self.may_open.wait()
            return None, None

    async def test() -> None:
        network = OpensAtOnce()
        runtime = replace(real_runtime(asyncio.get_running_loop()), network=network)
        task = asyncio.create_task(Channel.connect(runtime, "host", 9092))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        network.may_open.set()
        await asyncio.sleep(0)
        was_cancelled = task.cancel()  # False: there is a connection, and nothing to cancel
        await asyncio.wait([task])
        assert task.cancelled() == was_cancelled
        await runtime.close()

    asyncio.run(test())


def test_stream_that_is_made_as_the_caller_gives_up_is_torn_down() -> None:
    """With TLS a goodbye would have to be waited for, and the loop may end before."""

    class OpensAndWaits:
        def __init__(self) -> None:
            self.transport = Mock(spec=asyncio.Transport)

        async def connect(self, factory: Callable[[], Channel], *_: object) -> object:
            factory().connection_made(self.transport)
            await asyncio.Event().wait()

    async def test() -> None:
        network = OpensAndWaits()
        runtime = replace(real_runtime(asyncio.get_running_loop()), network=network)
        task = asyncio.create_task(Channel.connect(runtime, "host", 9092))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        network.transport.abort.assert_called_once_with()
        await runtime.close()

    asyncio.run(test())
