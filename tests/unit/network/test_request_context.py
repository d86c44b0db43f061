"""A request ends once, in one of three ways."""

from __future__ import annotations

import pytest

from ottla.errors import LocalProtocolError
from ottla.network.connection import IN_FLIGHT, Connection
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.network.request_context import RequestContext
from ottla.protocol.api_versions import ApiVersionsResponse
from ottla.protocol.header import RequestHeader


class Owner:
    """Notes what the connection asks for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def has_output(self, connection: Connection) -> None:
        self.asked.append("output")

    def throttle(self, connection: Connection, deadline_ms: int) -> None:
        self.asked.append("throttle")

    def begin_close(self, connection: Connection) -> None:
        self.asked.append("close")


class Wire:
    """Takes everything."""

    sent = b""

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def context(owner: Owner) -> RequestContext:
    """A request that has just been handed over."""
    frames = FrameBuffer(1000, BufferPool())
    connection = Connection(owner, None, frames, "id", "INTERNAL", ("10.0.0.7", 1234))
    connection.muted = IN_FLIGHT
    return RequestContext(connection, RequestHeader(18, 0, 7, None), received_ms=5)


def test_context_tells_who_asks(context: RequestContext) -> None:
    """A client without a name has an empty one."""
    assert context.api_version == 0
    assert context.client_id == ""
    assert context.client_host == "10.0.0.7"
    assert context.listener_name == "INTERNAL"


def test_respond_sends_the_encoded_response(context: RequestContext, owner: Owner) -> None:
    """Size, correlation id, body."""
    wire = Wire()
    context.respond(ApiVersionsResponse(error_code=35))
    context.connection.outgoing.flush(wire, 1000)

    assert wire.sent[:10] == b"\0\0\0\x0a\0\0\0\x07\0\x23"
    assert owner.asked == ["output"]


def test_request_cannot_be_answered_twice(context: RequestContext) -> None:
    """Whatever the first and the second way are."""
    context.no_response()
    endings = [
        lambda: context.respond(ApiVersionsResponse()),
        context.no_response,
        lambda: context.close_connection("why not"),
    ]

    for end in endings:
        with pytest.raises(LocalProtocolError, match="answered twice"):
            end()


def test_response_that_cannot_be_encoded_is_no_answer(context: RequestContext) -> None:
    """Another one can still be given."""
    with pytest.raises(LocalProtocolError):
        context.respond(ApiVersionsResponse(error_code=10**6))
    context.respond(ApiVersionsResponse(error_code=35))


def test_close_connection_hangs_up(context: RequestContext, owner: Owner) -> None:
    """Later answers go nowhere, and are no mistake."""
    context.close_connection("bad manners")
    context.connection.send([b"late"])
    context.connection.no_response()

    assert owner.asked == ["close"]
    assert context.connection.close_reason == "bad manners"
    assert not context.connection.outgoing


def test_request_without_an_answer_says_so_for_itself_alone(context: RequestContext) -> None:
    """Before its end: nothing of an answer may be sent ahead to a client that has closed."""
    context.expect_no_response()
    context.connection.begin_answer()
    assert not context.connection.outgoing
    context.no_response()

    assert context.connection.is_answer_due


def test_answer_without_a_request_is_our_mistake(context: RequestContext) -> None:
    """It would be taken for the answer to the next request."""
    context.no_response()
    with pytest.raises(LocalProtocolError, match="without a request in flight"):
        context.connection.send([b"surprise"])
