"""The state machine of a SASL connection, frame by frame, and PLAIN."""

from __future__ import annotations

import pytest

from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import ConfigError, ErrorCode
from ottla.network.sasl_login import sasl_client
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.group import HeartbeatRequest
from ottla.protocol.header import SIZE, decode_response, encode_request
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.security.sasl import (
    MAX_TOKEN_BYTES,
    Action,
    PlainClient,
    PlainServer,
    SaslAuthenticator,
    SaslError,
    SaslListener,
    SaslServer,
    SaslState,
)
from ottla.testing import MockClock

USERS = {"alice": "secret", "bob": "other"}
ALICE = KafkaPrincipal.user("alice")
TOKEN = b"\0alice\0secret"


class TwoRounds(SaslServer):
    """Answers the name with `go on`; the second token completes, with an end at `expires_ms`."""

    def __init__(self, expires_ms: int | None = None) -> None:
        self._name = b""
        self.expires_ms = expires_ms

    def evaluate(self, token: bytes) -> bytes:
        if not self._name:
            self._name = token
            return b"go on"
        if token != b"please":
            raise SaslError("it did not say please")
        self.principal = KafkaPrincipal.user(self._name.decode())
        self.is_complete = True
        return b"welcome"


class Client:
    """A client without a socket: sends requests to an authenticator, reads what it answers."""

    def __init__(self, max_reauth_ms: int = 0, expires_ms: int | None = None, **mechanisms) -> None:
        self.clock = MockClock()
        every = {
            "PLAIN": lambda: PlainServer(USERS),
            "TWO": lambda: TwoRounds(expires_ms),
        } | mechanisms
        limits = dict.fromkeys(every, max_reauth_ms)
        listener = SaslListener(every, limits, 1000, 100)
        self.authenticator = SaslAuthenticator(listener, self.clock)

    @property
    def state(self) -> SaslState:
        return self.authenticator.state

    def give(self, data: bytes):
        return self.authenticator.receive(memoryview(data))

    def ask(self, request, version):
        """The verdict on a request, and its answer, if there is one."""
        verdict = self.give(encode_request(version, 7, "test", request)[4:])
        if verdict.answer is None:
            return verdict, None
        data = b"".join(map(bytes, verdict.answer))
        assert SIZE.unpack_from(data)[0] == len(data) - 4
        correlation_id, response = decode_response(type(request), version, data[4:])
        assert correlation_id == 7
        return verdict, response

    def versions(self, version=3, name="test", software="1.0"):
        request = ApiVersionsRequest()
        if version >= 3:
            request.client_software_name, request.client_software_version = name, software
        return self.ask(request, version)[0]

    def handshake(self, mechanism="PLAIN", version=1):
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token, version=1):
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)


@pytest.fixture
def client() -> Client:
    return Client()


# The way in


@pytest.mark.parametrize("asks_versions", [True, False])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_client_that_proves_its_name_has_it(client, asks_versions, version):
    """ApiVersions or not, handshake, one token; then requests are passed on."""
    if asks_versions:
        assert client.versions().action is Action.PASS_ON
    _, offer = client.handshake()
    assert (offer.error_code, offer.mechanisms) == (0, ["PLAIN", "TWO"])
    assert client.authenticator.principal == ANONYMOUS

    verdict, answer = client.token(TOKEN, version)

    assert verdict.action is Action.ANSWER
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert client.authenticator.principal == ALICE
    assert not client.authenticator.has_session_end
    assert client.ask(MetadataRequest(), 1)[0].action is Action.PASS_ON


def test_mechanism_of_two_rounds_gets_both(client):
    """The client is nobody in between."""
    client.handshake("TWO")

    assert client.token(b"carol")[1].auth_bytes == b"go on"
    assert client.authenticator.principal == ANONYMOUS
    assert client.token(b"please")[1].auth_bytes == b"welcome"
    assert client.authenticator.principal == KafkaPrincipal.user("carol")


def test_tokens_after_the_first_handshake_version_are_bare_frames(client):
    """Clients before Kafka 1.0 send such frames: PLAIN's success is an empty one."""
    client.handshake(version=0)

    verdict = client.give(TOKEN)

    assert (verdict.action, verdict.answer) == (Action.ANSWER, [b"\0\0\0\0"])
    assert client.authenticator.principal == ALICE


def test_bare_token_that_is_refused_is_not_answered(client):
    """That protocol has no place for an error."""
    client.handshake(version=0)

    verdict = client.give(b"\0alice\0wrong")

    assert (verdict.action, verdict.answer) == (Action.FAIL, None)


def test_first_frame_that_is_no_request_is_a_token_of_gssapi():
    """Clients of 0.9 send no handshake."""
    client = Client(GSSAPI=TwoRounds)

    assert client.give(b"\x60\x40\x02\x00dave").answer == [SIZE.pack(5) + b"go on"]
    assert client.give(b"please").action is Action.ANSWER
    assert client.state is SaslState.COMPLETE


def test_first_frame_that_is_no_request_fails_without_gssapi(client):
    """Nothing else speaks without a handshake."""
    assert client.give(b"\x60\x82\x02\x00dave").action is Action.FAIL


# What else comes


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0\x11\0\1\0\0\0\7\xff\xff"],
    ids=["nothing", "a byte", "HTTP", "TLS", "a handshake that ends early"],
)
def test_frame_that_is_no_request_fails(client, data):
    """The connection ends, and nothing is answered."""
    verdict = client.give(data)

    assert (verdict.action, verdict.answer) == (Action.FAIL, None)
    assert client.state is SaslState.FAILED


@pytest.mark.parametrize("asks_versions", [True, False])
def test_request_before_the_handshake_fails(client, asks_versions):
    """It is not even decoded."""
    if asks_versions:
        client.versions()

    verdict, answer = client.ask(MetadataRequest(), 1)

    assert (verdict.action, answer) == (Action.FAIL, None)
    assert "METADATA" in verdict.reason


def test_second_api_versions_fails(client):
    """The versions are told once."""
    client.versions()

    assert client.versions().action is Action.FAIL


@pytest.mark.parametrize(
    "refused", [{"version": 99}, {"name": "bad name"}, {"software": ""}], ids=str
)
def test_api_versions_that_is_refused_may_be_asked_again(client, refused):
    """A client that is too new tries an older version next (KIP-511)."""
    if "version" in refused:
        data = encode_request(3, 7, "test", ApiVersionsRequest())[4:]
        assert client.give(data[:2] + b"\0\x63" + data[4:]).action is Action.PASS_ON
    else:
        assert client.versions(**refused).action is Action.PASS_ON

    assert client.versions().action is Action.PASS_ON
    assert client.state is SaslState.HANDSHAKE_REQUEST


def test_mechanism_that_is_not_enabled_fails_with_those_that_are(client):
    """33, and the list."""
    verdict, offer = client.handshake("SCRAM-SHA-256")

    assert verdict.action is Action.FAIL
    assert offer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert offer.mechanisms == ["PLAIN", "TWO"]


@pytest.mark.parametrize("version", [-1, 2])
def test_version_of_the_handshake_that_is_not_there_fails(client, version):
    """There is no answer that such a client could read."""
    data = encode_request(1, 7, "test", SaslHandshakeRequest(mechanism="PLAIN"))[4:]
    verdict = client.give(data[:2] + version.to_bytes(2, "big", signed=True) + data[4:])

    assert (verdict.action, verdict.answer) == (Action.FAIL, None)


def test_other_request_within_the_exchange_gets_its_own_error(client):
    """34 in the answer of its kind."""
    client.handshake()

    verdict, answer = client.ask(HeartbeatRequest(group_id="g"), 0)

    assert verdict.action is Action.FAIL
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_other_request_without_a_place_for_an_error_is_not_answered(client):
    """Metadata has none at its top."""
    client.handshake()

    assert client.ask(MetadataRequest(), 1)[0][:2] == (Action.FAIL, None)


def test_nothing_is_read_after_a_failure(client):
    """A right password that comes too late changes nothing."""
    client.handshake()
    client.token(b"\0alice\0wrong")

    assert client.token(TOKEN)[0].action is Action.CLOSE
    assert client.authenticator.principal == ANONYMOUS


def test_cause_of_a_refusal_is_for_the_log(client):
    """The client gets the same sentence for each, unless the mechanism has one for it."""
    client.handshake("TWO")
    client.token(b"carol")

    verdict, answer = client.token(b"now")

    assert verdict.reason == "it did not say please"
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials "
        "with SASL mechanism TWO"
    )


# Sessions


@pytest.mark.parametrize(
    ("limit_ms", "expires_in_ms", "lifetime_ms"),
    [(0, None, 0), (5000, None, 5000), (0, 3000, 3000), (5000, 3000, 3000), (5000, 9000, 5000)],
)
def test_session_ends_with_the_credential_or_the_limit(limit_ms, expires_in_ms, lifetime_ms):
    """The earlier of the two counts; 0 is no end."""
    expires_ms = None if expires_in_ms is None else MockClock().now_ms() + expires_in_ms
    client = Client(limit_ms, expires_ms)
    client.handshake("TWO")
    client.token(b"carol")

    answer = client.token(b"please")[1]

    assert answer.session_lifetime_ms == lifetime_ms
    assert client.authenticator.has_session_end == bool(lifetime_ms)


def test_credential_that_has_ended_gives_a_session_that_has_ended():
    """The session has no time left, and not one without end or a negative one (KAFKA-13848)."""
    client = Client(expires_ms=MockClock().now_ms() - 1)
    client.handshake("TWO")
    client.token(b"carol")

    assert client.token(b"please")[1].session_lifetime_ms == 0
    assert client.ask(MetadataRequest(), 1)[0].action is Action.CLOSE


@pytest.mark.parametrize("version", [0, 1])
def test_session_that_has_ended_closes_at_the_next_request(version):
    """A client of SaslAuthenticate v0, which does not know the end, is closed too (KAFKA-9190)."""
    client = Client(5000)
    client.handshake()
    client.token(TOKEN, version)

    client.clock.advance(4999)
    assert client.ask(MetadataRequest(), 1)[0].action is Action.PASS_ON
    client.clock.advance(1)
    assert client.ask(MetadataRequest(), 1)[0].action is Action.CLOSE


def test_client_authenticates_again_also_after_the_end():
    """A SaslHandshake is let in, and a whole session begins (KIP-368)."""
    client = Client(5000)
    client.handshake()
    client.token(TOKEN)

    for _ in range(3):
        client.clock.advance(6000)
        assert client.handshake()[1].error_code == 0
        assert client.token(TOKEN)[1].session_lifetime_ms == 5000
        assert client.ask(MetadataRequest(), 1)[0].action is Action.PASS_ON


def test_handshake_too_soon_is_passed_on_to_be_refused():
    """Less than a second after the last one."""
    client = Client(5000)
    client.handshake()
    client.token(TOKEN)
    client.handshake()
    client.token(TOKEN)
    client.clock.advance(999)

    assert client.handshake()[0].action is Action.PASS_ON


def test_handshake_without_an_end_of_the_session_is_passed_on(client):
    """There is no reason to authenticate again."""
    client.handshake()
    client.token(TOKEN)

    assert client.handshake()[0].action is Action.PASS_ON


def test_request_while_authenticating_again_gets_its_error():
    """34: the client must finish first."""
    client = Client(5000)
    client.handshake()
    client.token(TOKEN)
    client.handshake()

    answer = client.ask(HeartbeatRequest(group_id="g"), 0)[1]

    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("mechanism", "token", "said"),
    [
        ("PLAIN", b"\0bob\0other", "Cannot change principals during re-authentication from"),
        ("TWO", b"alice", "is not supported for re-authentication of mechanism"),
    ],
)
def test_session_keeps_its_principal_and_mechanism(mechanism, token, said):
    """Anything else is 58, and the end."""
    client = Client(5000)
    client.handshake()
    client.token(TOKEN)
    client.handshake(mechanism)

    verdict, answer = client.token(token)

    assert verdict.action is Action.FAIL
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert said in answer.error_message
    assert client.authenticator.principal == ALICE


class Brief(TwoRounds):
    """Has a limit of its own."""

    max_token_bytes = 100


@pytest.mark.parametrize(
    ("mechanism", "limit"), [("PLAIN", MAX_TOKEN_BYTES), ("TWO", MAX_TOKEN_BYTES), ("BRIEF", 100)]
)
@pytest.mark.parametrize("version", [0, 1])
def test_token_that_is_too_long_reaches_no_mechanism(mechanism, limit, version):
    """To read it would hold others up, bare or in a request; one of the limit's size is read."""
    read: list[int] = []

    class Reader(Brief if mechanism == "BRIEF" else TwoRounds):  # type: ignore[misc]
        def evaluate(self, token: bytes) -> bytes:
            read.append(len(token))
            raise SaslError("no")

    for size in (limit, limit + 1, 10 * limit):
        client = Client(**{mechanism: Reader})
        client.handshake(mechanism, version)
        token = bytes(size)
        verdict = client.token(token)[0] if version else client.give(token)
        assert verdict.action is Action.FAIL

    assert read == [limit]


def test_token_of_a_renewal_is_as_short_as_that_of_a_login():
    """Though the client's requests may be as large as requests are by then."""
    client = Client(5000)
    client.handshake()
    client.token(TOKEN)
    client.handshake()

    verdict, answer = client.token(TOKEN + bytes(4_000_000))

    assert verdict.reason == f"a token of 4000013 bytes: it may have {MAX_TOKEN_BYTES}"
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# PLAIN


@pytest.mark.parametrize("token", [TOKEN, b"alice\0alice\0secret"])
def test_plain_accepts_the_password(token):
    """An authorization id may be left out, or must be the name."""
    server = PlainServer(USERS)

    assert server.evaluate(token) == b""
    assert (server.is_complete, server.principal) == (True, ALICE)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0eve\0secret", "Authentication failed: Invalid username or password"),
        (b"\0eve\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"bob\0alice\0secret", "authorization id that is different from username"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0\xff\0secret", "not UTF-8"),
    ],
)
def test_plain_refuses(token, said):
    """The sentences are Kafka's; an unknown name and a wrong password have the same."""
    server = PlainServer(USERS)

    with pytest.raises(SaslError, match=said) as caught:
        server.evaluate(token)

    assert caught.value.shown == str(caught.value)
    assert not server.is_complete
    assert "secret" not in str(caught.value)


def test_plain_name_without_a_password_lets_nobody_in():
    """An empty password in the settings is not one that a client may give."""
    with pytest.raises(SaslError, match="password not specified"):
        PlainServer({"alice": ""}).evaluate(b"\0alice\0")


def test_client_of_plain_says_it_at_once():
    """One token, and no answer is waited for."""
    login = SaslLogin("PLAIN", {"username": "alice", "password": "secret"})
    client = sasl_client(login)

    assert isinstance(client, PlainClient)
    assert (client.first(), client.is_complete) == (TOKEN, True)
    assert client.evaluate(b"") is None


def test_mechanism_that_is_not_there_is_refused():
    """The error names the mechanism."""
    with pytest.raises(ConfigError, match="DIGEST"):
        sasl_client(SaslLogin("DIGEST", {}))


# Messages


def test_token_is_not_shown():
    """A request in a log line gives no password away."""
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=TOKEN))
