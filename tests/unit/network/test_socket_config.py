"""What the network layer is told of listeners, and what keeps a broker from starting."""

from __future__ import annotations

import asyncio
import re

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.network.broker_tls import BrokerTls
from ottla.network.listener_security import BrokerLogins
from ottla.network.socket_config import NO_LIMIT, network_config
from ottla.testing import mock_runtime

NO_TLS, NO_LOGINS = BrokerTls(BrokerConfig()), BrokerLogins(BrokerConfig())
TWO = {"listeners": "PLAINTEXT://:9092,SSL://:9093"}


def test_only_listeners_of_the_protocol_ssl_have_tls(certificates) -> None:
    """Others stay as they are."""
    config = BrokerConfig.parse(TWO | {"ssl.keystore.location": certificates.server})

    assert list(BrokerTls(config).listeners) == ["SSL"]
    assert BrokerTls(BrokerConfig()).listeners == {}


def test_backlog_is_the_systems_unless_it_is_set() -> None:
    """Kafka's default of 50 made 3,000 clients that came back wait for 40 seconds."""
    given = BrokerConfig.parse({"socket.listen.backlog.size": "50"})

    assert network_config(BrokerConfig(), NO_TLS, NO_LOGINS).socket_listen_backlog_size == NO_LIMIT
    assert network_config(given, NO_TLS, NO_LOGINS).socket_listen_backlog_size == 50


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
        BrokerTls(BrokerConfig.parse(TWO | settings))


def test_brokers_connect_as_their_listener_says(certificates) -> None:
    """In the clear on a plain one; else with its certificate, trusting whom it trusts."""
    settings = {
        "zookeeper.connect": "here:2181",
        "ssl.keystore.location": certificates.server,
        "listener.name.ssl.ssl.truststore.location": certificates.ca,
    }
    secure = BrokerTls(
        BrokerConfig.parse(TWO | settings | {"security.inter.broker.protocol": "SSL"})
    )

    assert BrokerTls(BrokerConfig.parse(TWO | settings)).of_brokers is None
    outgoing = asyncio.run(secure.of_brokers.current(mock_runtime().background))
    assert len(outgoing.get_ca_certs()) == 1
    assert outgoing.check_hostname


def test_listeners_may_limit_how_fast_clients_come() -> None:
    """Each for itself, beside the limit of all (KIP-612)."""
    key = "listener.name.client.max.connection.creation.rate"
    config = BrokerConfig.parse({key: "5", "max.connection.creation.rate": "9"})
    changed = config.with_listener_settings({"listener.name.b.max.connection.creation.rate": "7"})
    network = network_config(config, NO_TLS, NO_LOGINS)
    later = network_config(changed, NO_TLS, NO_LOGINS)
    assert network.connection_creation_rates == {"CLIENT": 5}
    assert network.max_connection_creation_rate == 9
    assert later.connection_creation_rates == {"CLIENT": 5, "B": 7}
    assert changed.replace(num_partitions=3).connection_creation_rates == {"CLIENT": 5, "B": 7}
    with pytest.raises(ConfigError, match=f"{key}=0: must be at least 1"):
        BrokerConfig.parse({key: "0"})
