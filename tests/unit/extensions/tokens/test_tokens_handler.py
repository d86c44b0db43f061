"""Delegation tokens by request: who gets one, who may renew and end it, and who sees it."""

from __future__ import annotations

import pytest
from apis_world import Context

from ottla.errors import ErrorCode
from ottla.extensions.tokens.token_store import TokenStore
from ottla.extensions.tokens.tokens_handler import DelegationTokensHandler, described
from ottla.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    TokenOwner,
    TokenRenewer,
)
from ottla.protocol.message import encode
from ottla.registry.embedded import EmbeddedRegistry
from ottla.security.delegation_tokens import TokenTable
from ottla.security.principal import ANONYMOUS, KafkaPrincipal, TokenPrincipal
from ottla.testing import mock_runtime

ALICE, BOB, EVE = map(KafkaPrincipal.user, ("alice", "bob", "eve"))
MAX_MS, EXPIRY_MS = 10_000, 1_000


class World:
    """One broker's handler; whoever asks has logged in as `ask` says."""

    def __init__(self, *, has_secret: bool = True) -> None:
        self.runtime = mock_runtime()
        self.run = self.runtime.scheduler.run
        self.store = None
        if has_secret:
            registry = EmbeddedRegistry(self.runtime, "/data/registry")
            self.run(registry.start())
            table = TokenTable(b"secret", self.runtime.clock)
            self.store = TokenStore(self.runtime, registry, table)
            self.run(self.store.start())
        self.handler = DelegationTokensHandler(self.store, self.runtime, MAX_MS, EXPIRY_MS)

    @property
    def now_ms(self) -> int:
        return self.runtime.clock.now_ms()

    def create(self, principal: KafkaPrincipal = ALICE, lifetime_ms: int = -1, **fields):
        request = CreateDelegationTokenRequest(
            renewers=[TokenRenewer(principal_type="User", principal_name="bob")],
            max_lifetime_ms=lifetime_ms,
            **fields,
        )
        return self.run(self.handler.handle_create(self.context(principal), request))

    def renew(self, hmac: bytes, period_ms: int = -1, principal: KafkaPrincipal = ALICE):
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.run(self.handler.handle_renew(self.context(principal), request))

    def expire(self, hmac: bytes, period_ms: int = -1, principal: KafkaPrincipal = ALICE):
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return self.run(self.handler.handle_expire(self.context(principal), request))

    def describe(self, *owners: str, principal: KafkaPrincipal = ALICE, everybody: bool = False):
        named = [TokenOwner(principal_type="User", principal_name=name) for name in owners]
        request = DescribeDelegationTokenRequest(owners=None if everybody else named)
        return self.handler.handle_describe(self.context(principal), request)

    def context(self, principal: KafkaPrincipal) -> Context:
        context = Context()
        context.connection.principal = principal
        return context


@pytest.fixture
def world() -> World:
    """No tokens yet."""
    return World()


def test_token_is_made_for_who_asks(world):
    """Its end is that of the settings, or what is asked for if that is sooner."""
    made = world.create()

    assert made.error_code == ErrorCode.NONE
    assert (made.principal_type, made.principal_name) == ALICE
    assert (made.token_requester_principal_type, made.token_requester_principal_name) == ALICE
    assert made.expiry_timestamp_ms == made.issue_timestamp_ms + EXPIRY_MS
    assert made.max_timestamp_ms == made.issue_timestamp_ms + MAX_MS
    (token,) = world.store.table
    assert (token.token_id, token.hmac, token.renewers) == (made.token_id, made.hmac, (BOB,))

    short = world.create(lifetime_ms=10)
    assert short.expiry_timestamp_ms == short.max_timestamp_ms == short.issue_timestamp_ms + 10
    assert world.create(lifetime_ms=MAX_MS + 1).max_timestamp_ms == made.max_timestamp_ms


@pytest.mark.parametrize("limit_ms", [MAX_MS, 2**31, 2**63 - 2, 2**63 - 1])
@pytest.mark.parametrize("asked_ms", [-(2**63), -1, 0, 1, 2**31 - 1, 2**63 - 2, 2**63 - 1])
def test_times_of_any_token_have_room_in_answers(world, limit_ms, asked_ms):
    """One without was kept, its answer refused, and no answer could show it from then on."""
    world.handler.max_lifetime_ms = world.handler.expiry_time_ms = limit_ms
    made = world.create(lifetime_ms=asked_ms)

    assert encode(made, 3)
    assert encode(world.renew(made.hmac, 2**63 - 1), 2)
    assert encode(world.expire(made.hmac, 2**63 - 1), 2)
    (token,) = world.store.table
    assert encode(DescribeDelegationTokenResponse(tokens=[described(token)]), 3)


@pytest.mark.parametrize(
    "names", [["x"] * 127, ["x" * 8_065], ["x" * 4_000, "y" * 4_065]], ids=["many", "long", "both"]
)
def test_names_in_a_token_are_bounded(world, names):
    """Every broker keeps them for a week, and any client that has logged in may ask for tokens."""

    def made_for(renewers: list[str]) -> int:
        request = CreateDelegationTokenRequest(
            renewers=[TokenRenewer(principal_type="User", principal_name=n) for n in renewers],
            max_lifetime_ms=-1,
        )
        return world.run(world.handler.handle_create(world.context(ALICE), request)).error_code

    assert made_for([*names, "x"]) == ErrorCode.INVALID_REQUEST
    assert len(world.store.table) == 0
    assert made_for(names) == ErrorCode.NONE


def test_tokens_of_a_requester_are_bounded(world, monkeypatch):
    """Whoever owns them; those of others are not, and one that has ended makes room."""
    monkeypatch.setattr("ottla.security.delegation_tokens.MAX_TOKENS", 2)
    world.create()
    second = world.create(owner_principal_type="User", owner_principal_name="eve")
    assert second.error_code == ErrorCode.NONE

    assert world.create().error_code == ErrorCode.POLICY_VIOLATION
    assert world.create(BOB).error_code == ErrorCode.NONE
    assert world.renew(second.hmac).error_code == ErrorCode.NONE
    assert world.create().error_code == ErrorCode.POLICY_VIOLATION, "renewed, it is the same one"
    world.expire(second.hmac)
    assert world.create().error_code == ErrorCode.NONE


def test_token_is_made_for_another_owner(world):
    """Who has asked for it is kept, and may use it as the owner may (KIP-373)."""
    made = world.create(owner_principal_type="User", owner_principal_name="eve")

    (token,) = world.store.table
    assert (token.owner, token.requester) == (EVE, ALICE)
    assert made.token_requester_principal_name == "alice"
    assert world.renew(made.hmac).error_code == ErrorCode.NONE


@pytest.mark.parametrize("principal", [ANONYMOUS, TokenPrincipal(*ALICE)])
def test_who_has_not_proved_who_it_is_may_not_ask(world, principal):
    """A client without a proved name, or with a token, may make none of the four requests."""
    hmac = world.create().hmac
    refused = {
        world.create(principal).error_code,
        world.renew(hmac, principal=principal).error_code,
        world.expire(hmac, principal=principal).error_code,
        world.describe("alice", principal=principal).error_code,
    }

    assert refused == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
    assert len(world.store.table) == 1


def test_without_a_secret_there_are_no_tokens():
    """All four say so."""
    world = World(has_secret=False)

    assert {
        world.create().error_code,
        world.renew(b"x").error_code,
        world.expire(b"x").error_code,
        world.describe("alice").error_code,
    } == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}


@pytest.mark.parametrize("field", ["owner_principal_type", "renewers"])
def test_owner_and_renewers_must_be_users(world, field):
    """No token is made."""
    group = {"owner_principal_type": "Group", "owner_principal_name": "g"}
    if field == "renewers":
        request = CreateDelegationTokenRequest(
            renewers=[TokenRenewer(principal_type="Group", principal_name="g")]
        )
        refused = world.run(world.handler.handle_create(world.context(ALICE), request))
    else:
        refused = world.create(**group)

    assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (refused.issue_timestamp_ms, refused.hmac) == (-1, b"")
    assert len(world.store.table) == 0


def test_renewal_moves_the_end(world):
    """By the period that is asked for, or the broker's, up to the longest life."""
    hmac = world.create().hmac
    world.runtime.scheduler.advance(500)

    assert world.renew(hmac, 200).expiry_timestamp_ms == world.now_ms + 200
    other = world.create().hmac
    assert world.renew(other, 0).expiry_timestamp_ms == world.now_ms
    assert world.renew(hmac, principal=BOB).expiry_timestamp_ms == world.now_ms + EXPIRY_MS
    assert world.renew(hmac, 10 * MAX_MS).expiry_timestamp_ms == world.now_ms - 500 + MAX_MS


def test_only_its_own_people_renew_and_end_a_token(world):
    """One that is not known, and one that has ended, cannot be renewed."""
    hmac = world.create().hmac

    assert world.renew(hmac, principal=EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert world.expire(hmac, principal=EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert world.renew(b"x").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert world.expire(b"x").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    world.runtime.scheduler.advance(EXPIRY_MS)
    assert world.renew(hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert world.renew(hmac).expiry_timestamp_ms == -1
    assert world.expire(hmac, 5).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert world.expire(hmac).error_code == ErrorCode.NONE


def test_token_is_ended(world):
    """Within a time, or at once: then it is gone."""
    hmac = world.create().hmac

    assert world.expire(hmac, 100).expiry_timestamp_ms == world.now_ms + 100
    assert world.expire(hmac, principal=BOB).expiry_timestamp_ms == world.now_ms
    assert len(world.store.table) == 0


def test_token_that_ends_within_no_time_is_not_removed_yet(world):
    """Only a negative period removes it at once; it may still be removed when it has ended."""
    hmac = world.create().hmac

    assert world.expire(hmac, 0).expiry_timestamp_ms == world.now_ms
    assert len(world.store.table) == 1
    assert world.expire(hmac).error_code == ErrorCode.NONE
    assert len(world.store.table) == 0


def test_tokens_are_described_by_owner(world):
    """Owners and renewers are named alike; null is everybody, and nobody named is nobody."""
    made = world.create()
    world.create(EVE)

    def described(*owners: str, **options: bool) -> list[str]:
        return [each.principal_name for each in world.describe(*owners, **options).tokens]

    assert described("alice") == ["alice"]
    assert described("bob") == described(everybody=True) == ["alice", "eve"]
    assert described() == []
    (token,) = world.describe("alice").tokens
    assert (token.token_id, token.hmac) == (made.token_id, made.hmac)
    assert [each.principal_name for each in token.renewers] == ["bob"]
