"""What the network layer is told of listeners, and what keeps a broker from starting."""

from __future__ import annotations

import re

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.network.acceptor import NO_LIMIT, inter_broker_tls, network_config

TWO = {"listeners": "PLAINTEXT://:9092,SSL://:9093"}


def test_only_listeners_of_the_protocol_ssl_have_tls(certificates) -> None:
    """Others stay as they are."""
    config = BrokerConfig.parse(TWO | {"ssl.keystore.location": certificates.server})

    assert list(network_config(config).tls) == ["SSL"]
    assert network_config(BrokerConfig()).tls == {}


def test_backlog_is_the_systems_unless_it_is_set() -> None:
    """Kafka's default of 50 made 3,000 clients that came back wait for 40 seconds."""
    given = BrokerConfig.parse({"socket.listen.backlog.size": "50"})

    assert network_config(BrokerConfig()).socket_listen_backlog_size == NO_LIMIT
    assert network_config(given).socket_listen_backlog_size == 50


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "listener SSL://:9093: ssl.keystore.location: must be set"),
        ({"ssl.keystore.location": "/no/such.pem"}, "location=/no/such.pem: No such file"),
        (
            {"listener.name.ssl.ssl.principal.mapping.rules": "RULE:a"},
            "listener SSL://:9093: ssl.principal.mapping.rules=RULE:a: must be DEFAULT and",
        ),
    ],
)
def test_listener_that_cannot_serve_tls_is_refused(settings, reason) -> None:
    """By the name of the listener and the setting, before the broker begins anything."""
    with pytest.raises(ConfigError, match=re.escape(reason)):
        network_config(BrokerConfig.parse(TWO | settings))


def test_brokers_connect_as_their_listener_says(certificates) -> None:
    """In the clear on a plain one; else with its certificate, trusting whom it trusts."""
    settings = {
        "ssl.keystore.location": certificates.server,
        "listener.name.ssl.ssl.truststore.location": certificates.ca,
    }
    secure = inter_broker_tls(
        BrokerConfig.parse(TWO | settings | {"security.inter.broker.protocol": "SSL"})
    )

    assert inter_broker_tls(BrokerConfig.parse(TWO | settings)) is None
    assert len(secure.get_ca_certs()) == 1
