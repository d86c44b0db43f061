"""SASL requests where no exchange is under way, and the answers of a refused login."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.header import encode_request
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.security.sasl import PlainServer, SaslAuthenticator, SaslListener
from ottla.server.apis import Apis
from ottla.server.handlers.sasl import SaslHandlers
from ottla.testing import mock_runtime

DELAY_MS = 100
USERS = {"alice": "secret"}


class Connection:
    """Keeps what a real connection would send, and when it would end."""

    id = "fake"
    client_host = "10.0.0.1"
    listener_name = "SASL_PLAINTEXT"

    def __init__(self, runtime, max_reauth_ms: int = 0) -> None:
        listener = SaslListener(
            {"PLAIN": lambda: PlainServer(USERS)}, {"PLAIN": max_reauth_ms}, 1000, DELAY_MS
        )
        self.authenticator = SaslAuthenticator(listener, runtime.clock)
        self.principal = ANONYMOUS
        self.sent: list[bytes] = []
        self.closed = ""

    def send(self, parts) -> None:
        self.sent.append(b"".join(map(bytes, parts)))

    def send_last(self, parts, reason: str) -> None:
        self.send(parts)
        self.close(reason)

    def authenticated(self, authenticator) -> None:
        self.principal = authenticator.principal
        if not authenticator.has_session_end:
            self.authenticator = None

    def close(self, reason: str) -> None:
        self.closed = reason


@pytest.fixture
def runtime():
    return mock_runtime()


@pytest.fixture
def apis(runtime) -> Apis:
    return Apis(runtime, [SaslHandlers()])


def ask(apis, connection, request, version=1) -> None:
    apis.on_request(connection, memoryview(encode_request(version, 7, "test", request)[4:]))


def test_both_requests_are_refused_where_nobody_logs_in():
    """34, as on a listener without SASL."""
    handlers, context = SaslHandlers(), SimpleNamespace(api_version=1)

    handshake = handlers.handle_sasl_handshake(context, SaslHandshakeRequest())
    token = handlers.handle_sasl_authenticate(context, SaslAuthenticateRequest())

    assert handshake.error_code == token.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert token.error_message


def test_connection_is_told_whom_it_serves(apis, runtime):
    """Then its requests are not shown to the authenticator any longer."""
    connection = Connection(runtime)
    ask(apis, connection, SaslHandshakeRequest(mechanism="PLAIN"))
    ask(apis, connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))

    assert len(connection.sent) == 2
    assert connection.principal == KafkaPrincipal.user("alice")
    assert connection.authenticator is None


def test_refused_login_is_answered_after_the_delay(apis, runtime, caplog):
    """Nothing is sent, and nothing is closed, before; the log has a line without the password."""
    connection = Connection(runtime)
    ask(apis, connection, SaslHandshakeRequest(mechanism="PLAIN"))
    with caplog.at_level(logging.INFO):
        ask(apis, connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0SESAME"))

    runtime.scheduler.advance(DELAY_MS - 1)
    assert (len(connection.sent), connection.closed) == (1, "")
    runtime.scheduler.advance(1)
    assert len(connection.sent) == 2
    assert connection.closed == "Authentication failed: Invalid username or password"
    assert "Failed authentication with /10.0.0.1" in caplog.text
    assert "SESAME" not in caplog.text


def test_request_without_a_login_is_closed_after_the_delay(apis, runtime):
    """There is no answer to it."""
    connection = Connection(runtime)
    ask(apis, connection, MetadataRequest())

    assert connection.closed == ""
    runtime.scheduler.advance(DELAY_MS)
    assert (connection.sent, connection.closed) == ([], "METADATA before SaslHandshake")


def test_session_that_has_ended_is_closed_at_once(apis, runtime):
    """It was told when it would end."""
    connection = Connection(runtime, max_reauth_ms=1000)
    ask(apis, connection, SaslHandshakeRequest(mechanism="PLAIN"))
    ask(apis, connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    runtime.scheduler.advance(1000)
    ask(apis, connection, MetadataRequest())

    assert connection.closed == "its session has ended"
