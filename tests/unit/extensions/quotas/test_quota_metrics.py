"""What quotas show of themselves, read over HTTP while clients use the broker."""

from __future__ import annotations

import pytest
from http_pages import metrics_of, scrape

import ottla
from ottla.extensions.quotas.quota_metrics import entity_tags
from ottla.structs import ClientEntity
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def broker():
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        yield running


def test_entity_with_a_limit_has_its_rate_and_its_delay(broker):
    """Over its limit it is a throttled entity; clients without a limit are not measured."""
    url = str(metrics_of(broker.broker).end_point)
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
    url = str(metrics_of(broker.broker).end_point)
    entity = ClientEntity(client_id="maker")
    with ottla.Admin(broker.bootstrap_servers, client_id="maker") as admin:
        admin.alter_client_quotas({entity: {"controller_mutation_rate": 5}})
        admin.create_topics([ottla.NewTopic("made", 3, 1)])
    found = scrape(url)

    assert 0 < found["kafka_server_controllermutation_tokens", (("client_id", "maker"),)] < 55
