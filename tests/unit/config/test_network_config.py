"""How the settings about listeners belong together."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError


def parsed(**settings: str) -> BrokerConfig:
    """Settings with underscores for dots."""
    return BrokerConfig.parse({}, **settings)


def shown(end_points) -> list[str]:
    """The end points as text."""
    return [str(end_point) for end_point in end_points]


def test_default_is_one_listener_for_this_machine_alone():
    """A broker that asks nobody who he is lets no other machine in before somebody says so."""
    config = BrokerConfig()

    assert shown(config.listeners) == ["PLAINTEXT://localhost:9092"]
    assert shown(config.advertised_listeners) == ["PLAINTEXT://localhost:9092"]
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert shown(parsed(port="19092").listeners) == ["PLAINTEXT://localhost:19092"]


@pytest.mark.parametrize(
    "settings",
    [
        {"advertised_listeners": "PLAINTEXT://broker.example:9092"},
        {"advertised_host_name": "broker.example"},
        {"host_name": ""},
    ],
)
def test_broker_that_is_advertised_listens_on_every_address(settings):
    """Clients are told to come to it from elsewhere."""
    assert shown(parsed(**settings).listeners) == ["PLAINTEXT://:9092"]


def test_old_form_names_host_and_port_apart():
    """host.name, port and their advertised twins, as before 0.9."""
    config = parsed(host_name="a", port="1", advertised_host_name="b", advertised_port="2")

    assert shown(config.listeners) == ["PLAINTEXT://a:1"]
    assert shown(config.advertised_listeners) == ["PLAINTEXT://b:2"]


def test_custom_listener_names_need_a_map():
    """The production sample with a listener for clients and one for replication."""
    config = parsed(
        listeners="CLIENT://0.0.0.0:9092,REPLICATION://localhost:9093",
        listener_security_protocol_map="CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT",
        inter_broker_listener_name="replication",
    )

    assert shown(config.advertised_listeners) == ["CLIENT://:9092", "REPLICATION://localhost:9093"]
    assert config.inter_broker_listener_name == "REPLICATION"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "can connect to"),
        (
            {
                "advertised_listeners": "OTHER://a:9092",
                "listener_security_protocol_map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "in listeners",
        ),
        ({"inter_broker_listener_name": "OTHER"}, "one of the advertised listeners"),
        ({"ottla_inter_broker_listener_names": "PLAINTEXT,OTHER"}, "OTHER: must be one of the adv"),
        ({"max_connections_per_ip_overrides": "10.0.0.1"}, "address:limit"),
        ({"max_connections_per_ip_overrides": "10.0.0.1:x"}, "address:limit"),
        ({"max_connections_per_ip_overrides": "10.0.0.1:-1"}, "address:limit"),
        ({"max_connections_per_ip_overrides": "10.0.0.1:99999999999"}, "address:limit"),
        ({"max_connections_per_ip_overrides": "localhost:5"}, "localhost must be an address"),
        ({"max_connections_per_ip": "0"}, "nobody could connect"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, reason):
    """The error names the setting that is wrong."""
    with pytest.raises(ConfigError, match=reason):
        parsed(**settings)


def test_connection_limits_are_by_address():
    """IPv6 addresses are in brackets."""
    config = parsed(max_connections_per_ip_overrides="10.0.0.1:5,[::1]:7")

    assert config.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 7}


def test_limit_of_an_address_counts_however_it_is_written():
    """Connections have their addresses in the shortest form."""
    text = "[0:0:0:0:0:0:0:1]:7"
    config = parsed(max_connections_per_ip="0", max_connections_per_ip_overrides=text)

    assert config.max_connections_per_ip_overrides == {"::1": 7}
