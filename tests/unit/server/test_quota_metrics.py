"""What quotas and logins show of themselves, read over HTTP while clients use the broker."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from http_pages import scrape

import ottla
from ottla.server.quota_metrics import entity_tags
from ottla.structs import ClientEntity
from ottla.testing import InProcessBroker, wait_until

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="sesame";'
LOGINS = "kafka_server_socket_server_metrics_{}"


@pytest.fixture(scope="module")
def broker():
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        yield running


def test_entity_with_a_limit_has_its_rate_and_its_delay(broker):
    """Over its limit it is a throttled entity; clients without a limit are not measured."""
    url = str(broker.broker.metrics.end_point)
    entity = ClientEntity(client_id="held")
    tags = (("client_id", "held"),)
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({entity: {"producer_byte_rate": 10_000}})
    with (
        ottla.Producer(broker.bootstrap_servers, client_id="held") as held,
        ottla.Producer(broker.bootstrap_servers, client_id="free") as free,
    ):
        held.send("quotas", bytes(150_000)).result(60)
        free.send("quotas", bytes(150_000)).result(60)
        found = scrape(url)

        assert found["kafka_server_produce_byte_rate", tags] > 10_000
        assert found["kafka_server_produce_throttle_time", tags] > 0
        assert found["kafka_server_clientquotamanager_throttledentities", ()] == 1
        assert not [tags for _, tags in found if ("client_id", "free") in tags]
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.alter_client_quotas({entity: {"producer_byte_rate": None}})


def test_limit_of_a_user_is_named_by_the_user():
    """Of both together, the two names stand side by side."""
    assert entity_tags(ClientEntity(user="ann")) == (("user", "ann"),)
    assert entity_tags(ClientEntity(user="ann", client_id="app")) == (
        ("user", "ann"),
        ("client-id", "app"),
    )


def test_tokens_of_a_mutation_quota_are_shown(broker):
    """They are what is left of its bucket."""
    url = str(broker.broker.metrics.end_point)
    entity = ClientEntity(client_id="maker")
    with ottla.Admin(broker.bootstrap_servers, client_id="maker") as admin:
        admin.alter_client_quotas({entity: {"controller_mutation_rate": 5}})
        admin.create_topics([ottla.NewTopic("made", 3, 1)])
    found = scrape(url)

    assert 0 < found["kafka_server_controllermutation_tokens", (("client_id", "maker"),)] < 55


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
        url = str(running.broker.metrics.end_point)
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
