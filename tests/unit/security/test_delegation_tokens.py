"""Delegation tokens: their HMAC, who may use them, and logins with them."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.security.delegation_tokens import (
    DelegationToken,
    TokenTable,
    check_users,
    may_ask,
)
from ottla.security.principal import ANONYMOUS, KafkaPrincipal, TokenPrincipal
from ottla.security.sasl import SaslError
from ottla.security.scram import ScramClient, ScramCredential, ScramServer, UserCredentials
from ottla.structs import replace
from ottla.testing import mock_runtime

ALICE, BOB, CAROL, DAVE = map(KafkaPrincipal.user, ("alice", "bob", "carol", "dave"))
SECRET = b"of all brokers"
NO_USERS = UserCredentials("SCRAM-SHA-256", lambda name: {})
LIFE_MS = 1000


class World:
    """A table with one token of alice, which carol has asked for and bob may renew."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.table = TokenTable(SECRET, self.runtime.clock)
        now_ms = self.runtime.clock.now_ms()
        token_id = self.table.new_id()
        self.token = DelegationToken(
            token_id,
            ALICE,
            CAROL,
            (BOB,),
            now_ms,
            now_ms + LIFE_MS,
            now_ms + 2 * LIFE_MS,
            self.table.hmac_of(token_id),
        )
        self.table.put(self.token)

    def log_in(self, password: str, *, says_so: bool = True, name: str = "") -> ScramServer:
        server = ScramServer("SCRAM-SHA-256", NO_USERS, find_token=self.table.login)
        extensions = ",tokenauth=true" if says_so else ""
        client = ScramClient("SCRAM-SHA-256", name or self.token.token_id, password, extensions)
        proof = client.evaluate(server.evaluate(client.first()))
        client.evaluate(server.evaluate(proof))
        return server


@pytest.fixture
def world() -> World:
    return World()


def test_hmac_is_that_of_kafka(world):
    """HMAC-SHA512 of the id by the secret, in base64 the password; ids are 22 letters."""
    token = world.token

    expected = hmac.new(SECRET, token.token_id.encode(), hashlib.sha512).digest()
    assert token.hmac == expected
    assert token.password == base64.b64encode(expected).decode()
    assert len(token.token_id) == 22
    assert world.table.new_id() != world.table.new_id()


def test_token_does_not_show_its_password(world):
    """The password is neither in a log nor in an error."""
    assert str(world.token.hmac) not in repr(world.token)
    assert world.token.password not in repr(world.token)


def test_owner_requester_and_renewers_may_use_it(world):
    """Other principals may not use the token."""
    who = [each for each in (ALICE, BOB, CAROL, DAVE) if world.token.belongs_to(each)]

    assert who == [ALICE, BOB, CAROL]


@pytest.mark.parametrize("says_so", [True, False])
def test_client_logs_in_as_the_owner(world, says_so):
    """The extension of KIP-48 makes no difference; the session ends with the token."""
    server = world.log_in(world.token.password, says_so=says_so)

    assert server.principal == ALICE
    assert isinstance(server.principal, TokenPrincipal)
    assert server.expires_ms == world.token.expiry_ms


def test_wrong_password_is_refused(world):
    """A wrong password is refused as that of any user."""
    with pytest.raises(SaslError, match="wrong password"):
        world.log_in("guessed")


def test_unknown_token_is_refused_at_the_proof(world):
    """The first answer does not tell that there is none."""
    with pytest.raises(SaslError, match="nor a token"):
        world.log_in(world.token.password, name="unknown")


def test_token_is_refused_after_its_end(world):
    """The end counts to the millisecond, though the token is still in the table."""
    world.runtime.scheduler.advance(LIFE_MS - 1)
    world.log_in(world.token.password)
    world.runtime.scheduler.advance(1)

    with pytest.raises(SaslError):
        world.log_in(world.token.password)
    assert world.table.ended() == [world.token]


def test_token_that_ends_during_the_login_is_refused(world):
    """It is looked at again with the proof."""
    server = ScramServer("SCRAM-SHA-256", NO_USERS, find_token=world.table.login)
    token = world.token
    client = ScramClient("SCRAM-SHA-256", token.token_id, token.password, ",tokenauth=true")
    proof = client.evaluate(server.evaluate(client.first()))
    world.runtime.scheduler.advance(LIFE_MS)

    with pytest.raises(SaslError, match="has ended"):
        server.evaluate(proof)
    assert server.principal == ANONYMOUS


def test_user_is_no_token_where_the_client_asks_for_one():
    """`tokenauth=true` never takes the password of a user of the same name."""
    credential = ScramCredential.of_password("SCRAM-SHA-256", "secret")
    server = ScramServer(
        "SCRAM-SHA-256",
        UserCredentials(
            "SCRAM-SHA-256", {"alice": {"SCRAM-SHA-256": credential.format()}}.__getitem__
        ),
    )
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", ",tokenauth=true")
    proof = client.evaluate(server.evaluate(client.first()))

    with pytest.raises(SaslError):
        server.evaluate(proof)


def test_table_finds_a_token_by_its_hmac_until_it_is_removed(world):
    """Its credentials go as well."""
    world.log_in(world.token.password)
    later = replace(world.token, expiry_ms=world.token.max_ms)
    world.table.put(later)

    assert world.table.of_hmac(world.token.hmac) == later
    assert world.table.of_hmac(b"another") is None
    world.table.replace([])
    assert world.table.of_hmac(world.token.hmac) is None
    assert world.table.login("SCRAM-SHA-256", world.token.token_id) is None
    assert len(world.table) == 0


@pytest.mark.parametrize(
    ("principal", "allowed"), [(ALICE, True), (ANONYMOUS, False), (TokenPrincipal(*ALICE), False)]
)
def test_only_clients_that_proved_who_they_are_may_ask(principal, allowed):
    """A token does not beget tokens, though it is the owner's in all other ways."""
    assert may_ask(principal) is allowed
    assert TokenPrincipal(*ALICE) == ALICE


def test_owners_and_renewers_are_users():
    """Other types of principals log in by no means."""
    check_users([ALICE, BOB])
    with pytest.raises(KafkaError) as caught:
        check_users([ALICE, KafkaPrincipal("Group", "admins")])

    assert caught.value.error is ErrorCode.INVALID_PRINCIPAL_TYPE
