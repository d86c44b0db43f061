"""Clients that log in: whom a connection serves, and how a login is refused."""

from __future__ import annotations

import logging

import pytest
from apis_world import Client, ask

from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import PlainServer, SaslAuthenticator, SaslListener
from ottla.server.apis import Apis
from ottla.testing import mock_runtime

DELAY_MS = 100
USERS = {"alice": "secret"}


@pytest.fixture
def runtime():
    return mock_runtime()


@pytest.fixture
def apis(runtime) -> Apis:
    return Apis(runtime)


def client_of(runtime, max_reauth_ms: int = 0) -> Client:
    """A client that has to log in."""
    listener = SaslListener(
        {"PLAIN": lambda: PlainServer(USERS)}, {"PLAIN": max_reauth_ms}, 1000, DELAY_MS
    )
    authenticator = SaslAuthenticator(listener, runtime.clock)
    return Client(listener_name="SASL_PLAINTEXT", authenticator=authenticator)


def log_in(apis, client, password: bytes = b"secret") -> None:
    ask(apis, client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    ask(apis, client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password), 1)


def test_connection_is_told_whom_it_serves(apis, runtime):
    """Then its requests are not shown to the authenticator any longer."""
    client = client_of(runtime)
    log_in(apis, client)

    assert [len(answer) > 0 for answer in client.sent] == [True, True]
    assert client.connection.principal == KafkaPrincipal.user("alice")
    assert client.connection.authenticator is None


def test_refused_login_is_answered_after_the_delay(apis, runtime, caplog):
    """Nothing is sent, and nothing is closed, before; the log has a line without the password."""
    client = client_of(runtime)
    with caplog.at_level(logging.INFO):
        log_in(apis, client, b"SESAME")

    runtime.scheduler.advance(DELAY_MS - 1)
    assert (len(client.sent), client.closed) == (1, None)
    runtime.scheduler.advance(1)
    assert len(client.sent) == 2
    assert client.closed == "Authentication failed: Invalid username or password"
    assert "Failed authentication with /10.0.0.1" in caplog.text
    assert "SESAME" not in caplog.text


def test_line_of_a_refused_login_is_short(apis, runtime, caplog):
    """Names of who is not logged in yet may have half a megabyte."""
    client = client_of(runtime)
    authenticator = client.connection.authenticator
    with caplog.at_level(logging.INFO):
        apis.logins._refuse(client.connection, authenticator, authenticator.refuse("x" * 500_000))

    (line,) = [each.message for each in caplog.records if "Failed auth" in each.message]
    assert len(line) < 1_000


def test_refused_login_is_told_to_whoever_listens(apis, runtime):
    """With the mechanism and the reason, such as to a log of what was denied."""
    told = []
    apis.logins.on_refused = lambda *refusal: told.append(refusal)
    client = client_of(runtime)
    log_in(apis, client, b"wrong")
    ((who, mechanism, reason),) = told

    assert (who, mechanism) == (client.connection, "PLAIN")
    assert reason


def test_request_without_a_login_is_closed_after_the_delay(apis, runtime):
    """There is no answer to it."""
    client = client_of(runtime)
    ask(apis, client, MetadataRequest(), 1)

    assert client.closed is None
    runtime.scheduler.advance(DELAY_MS)
    assert (client.sent, client.closed) == ([], "METADATA before SaslHandshake")


def test_client_that_has_logged_in_for_a_while_is_served(apis, runtime):
    """Its session ends one day, so that its frames are still shown to what judges logins."""
    client = client_of(runtime, max_reauth_ms=10**9)
    log_in(apis, client)
    assert client.connection.authenticator is not None
    ask(apis, client, MetadataRequest(topics=None), 9)

    assert client.closed.startswith("unsupported API key 3")


def test_session_that_has_ended_is_closed_at_once(apis, runtime):
    """It was told when it would end."""
    client = client_of(runtime, max_reauth_ms=1000)
    log_in(apis, client)
    runtime.scheduler.advance(1000)
    ask(apis, client, MetadataRequest(), 1)

    assert client.closed == "its session has ended"


def test_client_is_served_under_the_name_that_it_gets(apis, runtime):
    """Nothing is answered before; the name may take a while."""
    waiting = []
    apis.logins.identify = lambda connection, let_in, refuse: waiting.append(let_in)
    client = client_of(runtime)
    log_in(apis, client)
    assert len(client.sent) == 1
    waiting[0](KafkaPrincipal("Team", "a"))

    assert client.connection.principal == KafkaPrincipal("Team", "a")
    assert len(client.sent) == 2
    assert client.connection.authenticator is None


def test_client_without_a_name_is_refused(apis, runtime):
    """As one whose password is wrong."""
    apis.logins.identify = lambda connection, let_in, refuse: refuse("nobody of that name")
    client = client_of(runtime)
    log_in(apis, client)
    assert len(client.sent) == 1
    runtime.scheduler.advance(DELAY_MS)

    assert len(client.sent) == 2
    assert client.closed == "nobody of that name"


@pytest.mark.parametrize("is_same", [True, False])
def test_name_does_not_change_with_another_login(apis, runtime, is_same):
    """Rights were given to the connection under its name (KIP-368)."""
    names = iter([KafkaPrincipal("Team", "a"), KafkaPrincipal("Team", "a" if is_same else "b")])
    apis.logins.identify = lambda connection, let_in, refuse: let_in(next(names))
    client = client_of(runtime, max_reauth_ms=1000)
    log_in(apis, client)
    log_in(apis, client)
    runtime.scheduler.advance(DELAY_MS)

    assert client.connection.principal == KafkaPrincipal("Team", "a")
    assert len(client.sent) == 4
    refusal = "Cannot change principals during re-authentication from Team:a"
    assert client.closed == (None if is_same else refusal)
