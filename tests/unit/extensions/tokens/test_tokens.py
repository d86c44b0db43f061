"""Tokens of a broker: they end, and they are known after a restart."""

from __future__ import annotations

from broker_world import BrokerWorld

from ottla.extensions.tokens.tokens import Tokens
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.principal import KafkaPrincipal

EVE = KafkaPrincipal.user("eve")


def test_tokens_that_have_ended_are_removed_by_the_controller():
    """At the interval that is set."""
    world = BrokerWorld(
        delegation_token_secret_key="secret",
        delegation_token_expiry_check_interval_ms=2_000,
    ).start()
    now_ms = world.runtime.clock.now_ms()
    token = DelegationToken("x", EVE, EVE, (), now_ms, now_ms + 500, now_ms + 500, b"hmac")
    world.run(world.broker.find(Tokens).store.create(token))
    world.broker.controller.resign()
    world.runtime.advance(5_000)
    assert len(world.broker.find(Tokens).table) == 1
    world.run(world.broker.controller.startup())
    world.runtime.advance(2_100)

    assert len(world.broker.find(Tokens).table) == 0


def test_token_of_another_life_of_the_broker_lets_its_owner_in():
    """Tokens are read before clients come; the listeners judge by the same table."""
    settings = {
        "delegation_token_secret_key": "secret",
        "listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
    }
    world = BrokerWorld(**settings).start()
    now_ms = world.runtime.clock.now_ms()
    token = DelegationToken("x", EVE, EVE, (), now_ms, now_ms + 10**8, now_ms + 10**8, b"hmac")
    world.run(world.broker.find(Tokens).store.create(token))
    world = world.again(**settings)

    assert [each.token_id for each in world.broker.find(Tokens).table] == ["x"]
