"""SASL requests where no exchange is under way, refused logins, and the users of SCRAM."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from apis_world import Client, ask

from ottla.errors import ErrorCode
from ottla.extensions.logins.sasl_handlers import SaslHandlers, ScramUsersHandler
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import PlainServer, SaslAuthenticator, SaslListener
from ottla.security.scram import ScramCredential, salted_password
from ottla.server.apis import Apis
from ottla.structs import ClientEntity
from ottla.testing import mock_runtime

DELAY_MS = 100
USERS = {"alice": "secret"}


def client_of(runtime, max_reauth_ms: int = 0) -> Client:
    """A client that has to log in."""
    listener = SaslListener(
        {"PLAIN": lambda: PlainServer(USERS)}, {"PLAIN": max_reauth_ms}, 1000, DELAY_MS
    )
    authenticator = SaslAuthenticator(listener, runtime.clock)
    return Client(listener_name="SASL_PLAINTEXT", authenticator=authenticator)


@pytest.fixture
def runtime():
    return mock_runtime()


@pytest.fixture
def apis(runtime) -> Apis:
    return Apis(runtime, [SaslHandlers()])


def test_both_requests_are_refused_where_nobody_logs_in():
    """34, as on a listener without SASL."""
    handlers, context = SaslHandlers(), SimpleNamespace(api_version=1)

    handshake = handlers.handle_sasl_handshake(context, SaslHandshakeRequest())
    token = handlers.handle_sasl_authenticate(context, SaslAuthenticateRequest())

    assert handshake.error_code == token.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert token.error_message


def test_connection_is_told_whom_it_serves(apis, runtime):
    """Then its requests are not shown to the authenticator any longer."""
    client = client_of(runtime)
    ask(apis, client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    ask(apis, client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)

    assert [len(answer) > 0 for answer in client.sent] == [True, True]
    assert client.connection.principal == KafkaPrincipal.user("alice")
    assert client.connection.authenticator is None


def test_refused_login_is_answered_after_the_delay(apis, runtime, caplog):
    """Nothing is sent, and nothing is closed, before; the log has a line without the password."""
    client = client_of(runtime)
    ask(apis, client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    with caplog.at_level(logging.INFO):
        ask(apis, client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0SESAME"), 1)

    runtime.scheduler.advance(DELAY_MS - 1)
    assert (len(client.sent), client.closed) == (1, None)
    runtime.scheduler.advance(1)
    assert len(client.sent) == 2
    assert client.closed == "Authentication failed: Invalid username or password"
    assert "Failed authentication with /10.0.0.1" in caplog.text
    assert "SESAME" not in caplog.text


def test_request_without_a_login_is_closed_after_the_delay(apis, runtime):
    """There is no answer to it."""
    client = client_of(runtime)
    ask(apis, client, MetadataRequest(), 1)

    assert client.closed is None
    runtime.scheduler.advance(DELAY_MS)
    assert (client.sent, client.closed) == ([], "METADATA before SaslHandshake")


def test_session_that_has_ended_is_closed_at_once(apis, runtime):
    """It was told when it would end."""
    client = client_of(runtime, max_reauth_ms=1000)
    ask(apis, client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    ask(apis, client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
    runtime.scheduler.advance(1000)
    ask(apis, client, MetadataRequest(), 1)

    assert client.closed == "its session has ended"


# The users of SCRAM


class Entities:
    """The registry's users, in a dict."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, str]] = {}

    async def client_entities(self):
        return [ClientEntity(user=name) for name in self.users] + [ClientEntity(client_id="c")]

    async def read_client(self, entity):
        return self.users.get(entity.user, {})

    async def change_client(self, entity, change):
        self.users[entity.user] = dict(change(dict(self.users.get(entity.user, {}))))


@pytest.fixture
def entities() -> Entities:
    return Entities()


@pytest.fixture
def users(entities) -> ScramUsersHandler:
    return ScramUsersHandler(SimpleNamespace(entities=entities), lambda: True)


def upsertion(name="alice", mechanism=2, iterations=8192, salted=b"salted", salt=b"salt"):
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )


def alter(users, deletions=(), upsertions=()) -> dict[str, int]:
    """The error of each user."""
    body = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=n, mechanism=m) for n, m in deletions],
        upsertions=list(upsertions),
    )
    answer = asyncio.run(users.handle_alter(SimpleNamespace(api_version=0), body))
    return {each.user: each.error_code for each in answer.results}


def describe(users, *names):
    body = DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in names] or None
    )
    answer = asyncio.run(users.handle_describe(SimpleNamespace(api_version=0), body))
    return {
        each.user: (
            each.error_code,
            [(info.mechanism, info.iterations) for info in each.credential_infos],
        )
        for each in answer.results
    }


def test_refused_login_is_told_to_whoever_listens(apis, runtime):
    """With the mechanism and the reason, such as to a log of what was denied."""
    told = []
    apis.on_refused_login = lambda *refusal: told.append(refusal)
    client = client_of(runtime)
    ask(apis, client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    ask(apis, client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1)
    ((who, mechanism, reason),) = told

    assert (who, mechanism) == (client.connection, "PLAIN")
    assert reason


def test_client_that_has_logged_in_for_a_while_is_served(apis, runtime):
    """Its session ends one day, so that its frames are still shown to what judges logins."""
    client = client_of(runtime, max_reauth_ms=10**9)
    ask(apis, client, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    ask(apis, client, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1)
    assert client.connection.authenticator is not None
    ask(apis, client, MetadataRequest(topics=None), 9)

    assert client.closed.startswith("unsupported API key 3")


def test_credential_is_stored_as_kafka_stores_it(users, entities):
    """It lets the one in who knows the password, and stands beside the user's quotas."""
    entities.users["alice"] = {"producer_byte_rate": "1000"}
    salted = salted_password("SCRAM-SHA-512", "secret", b"salt", 8192)

    assert alter(users, upsertions=[upsertion(salted=salted)]) == {"alice": 0}

    stored = entities.users["alice"]
    assert stored["producer_byte_rate"] == "1000"
    assert ScramCredential.parse(stored["SCRAM-SHA-512"]) == ScramCredential.of_password(
        "SCRAM-SHA-512", "secret", 8192, b"salt"
    )


def test_users_are_described_without_their_keys(users, entities):
    """All that have credentials, or those that are named."""
    alter(users, upsertions=[upsertion(), upsertion(mechanism=1), upsertion("bob")])
    entities.users["limited"] = {"producer_byte_rate": "1000"}

    assert describe(users) == {"alice": (0, [(1, 8192), (2, 8192)]), "bob": (0, [(2, 8192)])}
    assert describe(users, "bob", "limited", "") == {
        "bob": (0, [(2, 8192)]),
        "limited": (ErrorCode.RESOURCE_NOT_FOUND, []),
        "": (ErrorCode.RESOURCE_NOT_FOUND, []),
    }
    assert describe(users, "bob", "bob") == {"bob": (ErrorCode.DUPLICATE_RESOURCE, [])}


def test_reason_stands_beside_the_user_who_is_not_described(users, entities):
    """An administrator sees which of the names was wrong."""
    alter(users, upsertions=[upsertion("bob")])
    body = DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in ("bob", "bob", "eve")]
    )
    answer = asyncio.run(users.handle_describe(SimpleNamespace(api_version=0), body))

    assert [each.error_message for each in answer.results] == [
        "user bob is named more than once",
        "user eve has no SCRAM credentials",
    ]


@pytest.mark.parametrize(
    ("deletions", "upsertions", "error"),
    [
        ([("", 1)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(""), upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([("alice", 0)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [upsertion(mechanism=3, iterations=1)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [upsertion(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([("alice", 2)], [upsertion()], ErrorCode.DUPLICATE_RESOURCE),
        ([], [upsertion(), upsertion()], ErrorCode.DUPLICATE_RESOURCE),
        ([("alice", 1)], [], ErrorCode.RESOURCE_NOT_FOUND),
        ([("alice", 1)], [upsertion()], ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_entry_that_is_refused_refuses_its_user_only(users, entities, deletions, upsertions, error):
    """Nothing of that user is changed, all of the others is."""
    outcome = alter(users, deletions, [*upsertions, upsertion("bob")])

    name = [*(name for name, _ in deletions), *(each.name for each in upsertions)][0]
    assert outcome == {name: error, "bob": 0}
    assert list(entities.users) == ["bob"]


def test_credential_is_removed(users, entities):
    """The other one stays."""
    alter(users, upsertions=[upsertion(), upsertion(mechanism=1)])

    assert alter(users, deletions=[("alice", 2)]) == {"alice": 0}
    assert list(entities.users["alice"]) == ["SCRAM-SHA-256"]


def test_only_the_controller_changes_users(entities):
    """Others say so, and a client asks again elsewhere."""
    users = ScramUsersHandler(SimpleNamespace(entities=entities), lambda: False)

    assert alter(users, upsertions=[upsertion()]) == {"alice": ErrorCode.NOT_CONTROLLER}
    assert not entities.users


def test_salted_password_is_not_shown():
    """With it one could log in."""
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion(salted=b"SESAME")])

    assert "SESAME" not in repr(request)
