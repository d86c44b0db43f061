"""Logins of listeners, made from the settings of a broker."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from http_pages import metrics_of, scrape

from ottla.config.broker_config import BrokerConfig
from ottla.network.listener_security import BrokerLogins
from ottla.testing import InProcessBroker, wait_until

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="sesame";'
LOGINS = "kafka_server_socket_server_metrics_{}"


@pytest.mark.parametrize(
    ("limit_ms", "is_too_short"), [("1000", True), ("1500", False), ("0", False)]
)
def test_session_that_is_too_short_to_be_renewed_is_warned_of(limit_ms, is_too_short, caplog):
    """A client may log in again once a second, and does so after 85 % of its session."""
    config = BrokerConfig.parse(
        {
            "listeners": "SASL_PLAINTEXT://:0",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "connections.max.reauth.ms": limit_ms,
        }
    )
    BrokerLogins(config)

    assert ("connections.max.reauth.ms=1000" in caplog.text) is is_too_short
    assert ("SCRAM-SHA-256 of listener SASL_PLAINTEXT" in caplog.text) is is_too_short


def test_logins_are_counted_by_listener():
    """Those that succeed and those that fail, as rates and totals."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
        "metrics.listener": "http://127.0.0.1:0",
    }
    tags = (("listener", "SASL_PLAINTEXT"), ("networkProcessor", "0"))
    with InProcessBroker(**settings) as running:
        url = str(metrics_of(running.broker).end_point)
        (end_point,) = (
            each for each in running.broker.end_points if each.listener_name == "SASL_PLAINTEXT"
        )
        login = {
            "bootstrap.servers": f"{end_point.host}:{end_point.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "log_level": 0,
        }
        AdminClient({**login, "sasl.password": "sesame"}).list_topics(timeout=60)
        let_in = scrape(url)

        assert let_in[LOGINS.format("successful_authentication_total"), tags] >= 1
        assert let_in[LOGINS.format("failed_authentication_total"), tags] == 0
        refused = AdminClient({**login, "sasl.password": "wrong"})
        wait_until(
            lambda: (
                refused.poll(0)
                or scrape(url)[LOGINS.format("failed_authentication_total"), tags] >= 1
            ),
            "a login that fails",
        )
        assert scrape(url)[LOGINS.format("failed_authentication_rate"), tags] > 0
        plain = (("listener", "PLAINTEXT"), ("networkProcessor", "0"))
        assert (LOGINS.format("failed_authentication_total"), plain) not in scrape(url)
