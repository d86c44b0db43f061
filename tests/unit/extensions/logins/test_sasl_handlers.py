"""SASL requests where nobody logs in, and the users of SCRAM."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.extensions.logins.sasl_handlers import SaslHandlers, ScramUsersHandler
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.runtime import Slices
from ottla.security.scram import ScramCredential, salted_password
from ottla.structs import ClientEntity


def test_both_requests_are_refused_where_nobody_logs_in():
    """34, as on a listener without SASL."""
    handlers, context = SaslHandlers(), SimpleNamespace(api_version=1)

    handshake = handlers.handle_sasl_handshake(context, SaslHandshakeRequest())
    token = handlers.handle_sasl_authenticate(context, SaslAuthenticateRequest())

    assert handshake.error_code == token.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert token.error_message


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
    return ScramUsersHandler(SimpleNamespace(entities=entities), lambda: True, Slices())


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
    users = ScramUsersHandler(SimpleNamespace(entities=entities), lambda: False, Slices())

    assert alter(users, upsertions=[upsertion()]) == {"alice": ErrorCode.NOT_CONTROLLER}
    assert not entities.users


def test_salted_password_is_not_shown():
    """With it one could log in."""
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion(salted=b"SESAME")])

    assert "SESAME" not in repr(request)
