"""Delegation tokens in the registry, as Kafka has them there."""

from __future__ import annotations

import json

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.tokens.token_store import (
    CHANGES,
    TokenStore,
    decode_token,
    encode_token,
    token_path,
)
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import NoNodeError
from ottla.security.delegation_tokens import DelegationToken, TokenTable
from ottla.security.principal import KafkaPrincipal
from ottla.structs import replace
from ottla.testing import mock_runtime

ALICE, BOB = KafkaPrincipal.user("alice"), KafkaPrincipal.user("CN=bob,O=x")
SECRET = b"of all brokers"
SWEEP_MS = 500


class World:
    """A registry, and the tokens of two brokers that share it."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.run = self.runtime.scheduler.run
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.run(self.registry.start())
        self.store, self.other = (self.new_store() for _ in range(2))
        self.run(self.store.start())
        self.run(self.other.start())

    def new_store(self) -> TokenStore:
        return TokenStore(self.runtime, self.registry, TokenTable(SECRET, self.runtime.clock))

    def create(self, token_id: str = "one", life_ms: int = 1000) -> DelegationToken:
        now_ms = self.runtime.clock.now_ms()
        token = DelegationToken(
            token_id,
            ALICE,
            ALICE,
            (BOB,),
            now_ms,
            now_ms + life_ms,
            now_ms + 10 * life_ms,
            self.store.table.hmac_of(token_id),
        )
        self.run(self.store.create(token))
        self.runtime.scheduler.run_ready()
        return token


@pytest.fixture
def world() -> World:
    """No tokens yet."""
    return World()


def test_nodes_are_those_of_kafka(world):
    """Paths, JSON with sanitized principals, and the notification; the HMAC is not stored."""
    token = world.create()
    data, _ = world.run(world.registry.get("/delegation_token/tokens/one"))

    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3ACN%3Dbob%2CO%3Dx"],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": "one",
    }
    change, _ = world.run(
        world.registry.get("/delegation_token/token_changes/token_change_0000000000")
    )
    assert change == b"one"


def test_node_of_an_older_kafka_is_read(world):
    """Version 1 has no requester: that is the owner."""
    data = (
        b'{"version":1,"owner":"User%3Aalice","renewers":[],"issueTimestamp":1,'
        b'"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"old"}'
    )
    token = decode_token("x", data, world.store.table.hmac_of)

    assert (token.owner, token.requester, token.renewers) == (ALICE, ALICE, ())
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (1, 2, 3)
    assert token.hmac == world.store.table.hmac_of("old")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"version":4}', b'{"version":1,"owner":"nobody"}']
)
def test_node_that_is_no_token_is_an_error(data):
    """It is named."""
    with pytest.raises(KafkaError, match="not readable"):
        decode_token("/delegation_token/tokens/x", data, lambda token_id: b"")


def test_other_brokers_follow(world):
    """What is made, renewed and removed."""
    token = world.create()
    assert list(world.other.table) == [token]

    world.run(world.store.end_at("one", token.expiry_ms + 1))
    world.runtime.scheduler.run_ready()
    assert list(world.other.table) == [replace(token, expiry_ms=token.expiry_ms + 1)]

    world.run(world.store.remove("one"))
    world.runtime.scheduler.run_ready()
    assert len(world.other.table) == len(world.store.table) == 0


def test_broker_that_starts_later_has_all(world):
    """One whose node cannot be used is left out, and keeps no other from being used."""
    token = world.create()
    world.run(world.registry.create(token_path("bad"), b"?"))
    late = world.new_store()
    world.run(late.start())

    assert list(late.table) == [token]


def test_no_renewal_goes_beyond_the_longest_life(world):
    """However long it asks for."""
    token = world.create()

    assert world.run(world.store.end_at("one", token.max_ms + 1)).expiry_ms == token.max_ms


def test_token_that_was_removed_meanwhile_is_not_made_again(world):
    """By a renewal on a broker that has not heard of it yet."""
    token = world.create()
    world.run(world.registry.delete(token_path("one")))

    with pytest.raises(KafkaError) as caught:
        world.run(world.store.end_at("one", token.max_ms))
    assert caught.value.error is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert len(world.store.table) == 0
    world.run(world.store.remove("one"))


def test_renewal_keeps_what_another_broker_has_written(world):
    """Its write is on top of the newest version."""
    token = world.create()
    path = token_path("one")
    world.run(world.registry.set(path, encode_token(replace(token, renewers=()))))

    assert world.run(world.other.end_at("one", token.max_ms)).renewers == ()


def test_tokens_that_have_ended_are_removed(world):
    """By the broker that does it, at the interval, on all brokers."""
    kept, ended = world.create("kept", 10_000), world.create("ended", 100)
    is_ours = False
    world.store.sweep_every(SWEEP_MS, lambda: is_ours)
    world.runtime.scheduler.advance(SWEEP_MS)
    assert ended in world.store.table

    is_ours = True
    world.runtime.scheduler.advance(SWEEP_MS)
    world.runtime.scheduler.run_ready()

    assert list(world.other.table) == [kept]
    with pytest.raises(NoNodeError):
        world.run(world.registry.get(token_path("ended")))


def test_nothing_is_read_after_the_stop(world):
    """Neither changes nor the clock."""
    world.store.sweep_every(SWEEP_MS, lambda: True)
    world.other.stop()
    world.create()
    assert len(world.other.table) == 0

    world.store.stop()
    world.runtime.scheduler.advance(10 * SWEEP_MS)
    assert len(world.run(world.registry.children(CHANGES))) == 1
