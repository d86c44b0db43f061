"""The login of a client: before its first request, and again before its session ends."""

from __future__ import annotations

import pytest
from mock_kafka import MockCluster

from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, SaslAuthenticationError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


@pytest.fixture
def client(runtime, cluster) -> NetworkClient:
    settings = {"bootstrap.servers": cluster.bootstrap_servers} | LOGIN
    return NetworkClient(runtime, AdminConfig.parse(settings))


@pytest.fixture(autouse=True)
def broker(cluster: MockCluster):
    """A broker that lets everybody in, without an end."""
    cluster[0].on(SaslHandshakeRequest, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    cluster[0].on(SaslAuthenticateRequest, SaslAuthenticateResponse())
    cluster[0].on(HeartbeatRequest, HeartbeatResponse())
    return cluster[0]


def connect(runtime, client):
    return runtime.scheduler.run(client.any_ready(Deadline(runtime.clock, 1000)))


def kinds(broker) -> list[str]:
    return [type(request).__name__.removesuffix("Request") for request, _ in broker.requests]


def test_client_logs_in_after_it_has_asked_for_the_versions(runtime, client, broker):
    """Versions, handshake, token; all in the highest versions that both know."""
    connection = connect(runtime, client)

    assert kinds(broker) == ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]
    assert broker.sent(SaslAuthenticateRequest)[0].auth_bytes == b"\0alice\0secret"
    assert [version for _, version in broker.requests] == [4, 1, 2]
    assert connection.is_ready


def test_refused_password_is_an_error_at_once(runtime, client, broker):
    """The error has the broker's sentence; the login is not tried again."""
    broker.on(
        SaslAuthenticateRequest,
        SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user"
        ),
    )

    with pytest.raises(SaslAuthenticationError, match="no such user") as caught:
        connect(runtime, client)

    assert caught.value.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not caught.value.retriable
    assert len(broker.sent(SaslAuthenticateRequest)) == 1
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("offer", "error", "said"),
    [
        (
            SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "OAUTHBEARER"]),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "sasl.mechanism=PLAIN: it has GSSAPI, OAUTHBEARER",
        ),
        (
            SaslHandshakeResponse(error_code=34),
            ErrorCode.ILLEGAL_SASL_STATE,
            "security.protocol must be without SASL_",
        ),
    ],
)
def test_broker_that_cannot_log_us_in_says_why(runtime, client, broker, offer, error, said):
    """Another mechanism, or a listener without a login; no password is sent."""
    broker.on(SaslHandshakeRequest, offer)

    with pytest.raises(SaslAuthenticationError, match=said) as caught:
        connect(runtime, client)

    assert caught.value.error is error
    assert not broker.sent(SaslAuthenticateRequest)


def test_broker_without_sasl_authenticate_is_refused(runtime, client, broker):
    """It would want bare tokens, and could not say why it refuses one."""
    broker.versions[ApiKey.SASL_HANDSHAKE] = (0, 0)

    with pytest.raises(SaslAuthenticationError, match="no SaslAuthenticate"):
        connect(runtime, client)


def test_client_logs_in_again_before_its_session_ends(runtime, client, broker):
    """The login is on the same connection, at 85 to 95 % of the lifetime (KIP-368)."""
    broker.on(SaslAuthenticateRequest, SaslAuthenticateResponse(session_lifetime_ms=10_000))
    connection = connect(runtime, client)
    channel = connection.channel

    def beat():
        async def send():
            await client.send_on(connection, HeartbeatRequest(), 0)

        runtime.scheduler.run(send())

    runtime.scheduler.advance(8_400)
    beat()
    assert kinds(broker)[3:] == ["Heartbeat"]
    runtime.scheduler.advance(1_200)
    beat()
    beat()

    assert connection.channel is channel
    assert kinds(broker)[4:] == ["SaslHandshake", "SaslAuthenticate", "Heartbeat", "Heartbeat"]


def test_requests_that_wait_for_a_login_keep_their_order(runtime, client, broker):
    """Requests without a response keep their order as well."""
    broker.on(SaslAuthenticateRequest, SaslAuthenticateResponse(session_lifetime_ms=1_000))
    connection = connect(runtime, client)
    runtime.scheduler.advance(990)

    async def use():
        first = client.send_on(connection, HeartbeatRequest(group_id="1"), 0)
        connection.send_without_response(HeartbeatRequest(group_id="2"), 0, 1_000)
        third = client.send_on(connection, HeartbeatRequest(group_id="3"), 0)
        await first
        third.cancel()

    broker.on(
        HeartbeatRequest, HeartbeatResponse(), lambda request, version: None, HeartbeatResponse()
    )
    runtime.scheduler.run(use())
    runtime.scheduler.run_ready()

    assert [each.group_id for each in broker.sent(HeartbeatRequest)] == ["1", "2", "3"]
    assert len(broker.sent(SaslHandshakeRequest)) == 2


def test_login_waits_for_what_is_under_way(runtime, client, broker):
    """A request in the middle of the exchange would be refused, and the connection closed."""
    broker.on(SaslAuthenticateRequest, SaslAuthenticateResponse(session_lifetime_ms=1_000))
    connection = connect(runtime, client)
    broker.on(HeartbeatRequest, "hold")

    async def use():
        beat = client.send_on(connection, HeartbeatRequest(), 0)
        await pause(runtime.scheduler, 990)
        again = runtime.scheduler.spawn(connection.ready(), "log in again")
        await pause(runtime.scheduler, 10)
        assert len(broker.sent(SaslHandshakeRequest)) == 1
        broker.held.pop().answer(HeartbeatResponse())
        await beat
        await again

    runtime.scheduler.run(use())

    assert len(broker.sent(SaslHandshakeRequest)) == 2


def test_password_that_is_no_longer_right_ends_the_connection(runtime, client, broker):
    """The session's end is not waited for."""
    refused = SaslAuthenticateResponse(error_code=58, error_message="no more")
    broker.on(SaslAuthenticateRequest, SaslAuthenticateResponse(session_lifetime_ms=1_000), refused)
    connection = connect(runtime, client)
    runtime.scheduler.advance(990)

    with pytest.raises(SaslAuthenticationError, match="no more"):
        runtime.scheduler.run(connection.ready())

    assert connection.channel is None


@pytest.mark.parametrize("lifetime_ms", [1, 2, 100])
def test_request_goes_out_however_short_sessions_are(runtime, client, broker, lifetime_ms):
    """A broker whose sessions are over at once would have the client log in without an end."""
    answer = SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)
    broker.on(SaslAuthenticateRequest, answer)
    connection = connect(runtime, client)

    async def beat():
        await client.send_on(connection, HeartbeatRequest(), 0)

    runtime.scheduler.run(beat())
    runtime.scheduler.advance(600)
    runtime.scheduler.run(beat())

    assert kinds(broker)[1:] == [*["SaslHandshake", "SaslAuthenticate", "Heartbeat"] * 2]
