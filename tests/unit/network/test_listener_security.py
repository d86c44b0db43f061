"""Listeners get TLS and logins by their security protocol."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.network_config import SUPPORTED_PROTOCOLS, is_sasl
from ottla.errors import ConfigError
from ottla.network.listener_security import LAYERS, NO_USERS, BrokerLogins, Layers
from ottla.testing import mock_runtime

MECHANISM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}


def new_login(config, listener_name, users):
    """Stands for a login; it notes with which runtime it was started."""
    found = SimpleNamespace(users=users, started=[])
    found.on_start = [found.started.append]
    return found


@pytest.fixture
def login(monkeypatch):
    """Has logins made by the function of this file."""
    monkeypatch.setitem(LAYERS, "SASL_PLAINTEXT", Layers(login=f"{__name__}:new_login"))


def settings(listeners: str) -> BrokerConfig:
    protocols = {"listener.security.protocol.map": "P:PLAINTEXT,A:SASL_PLAINTEXT,B:SASL_PLAINTEXT"}
    return BrokerConfig.parse(
        MECHANISM | protocols | {"listeners": listeners, "inter.broker.listener.name": "A"}
    )


@pytest.mark.parametrize("protocol", SUPPORTED_PROTOCOLS)
def test_every_security_protocol_has_its_layers(protocol):
    """They are those that its settings are asked for."""
    assert bool(LAYERS[protocol].tls) is protocol.endswith("SSL")
    assert bool(LAYERS[protocol].login) is is_sasl(protocol)


def test_listeners_without_a_login_have_none():
    """Most brokers have none at all."""
    assert BrokerLogins(BrokerConfig()).listeners == {}


def test_logins_come_and_go_with_their_listeners(login):
    """One that stays is the same login, and is started once."""
    runtime = mock_runtime()
    logins = BrokerLogins(settings("A://:0,P://:0"))
    first = logins.listeners["A"]
    logins.start(runtime)
    logins.follow_listeners(settings("A://:0,B://:0"))
    logins.start(runtime)

    assert first.users is NO_USERS
    assert logins.listeners["A"] is first
    assert [each.started for each in logins.listeners.values()] == [[runtime], [runtime]]
    logins.follow_listeners(settings("A://:0"))
    assert logins.listeners == {"A": first}


def test_login_whose_feature_is_deleted_is_named_by_its_listener(monkeypatch):
    """A broker does not let clients in without the login that its file asks for."""
    gone = Layers(login="ottla.extensions.gone.gone:new_login")
    monkeypatch.setitem(LAYERS, "SASL_PLAINTEXT", gone)

    with pytest.raises(ConfigError, match=r"listener A needs ottla\.extensions\.gone\.gone"):
        BrokerLogins(settings("A://:0"))
