"""librdkafka pushes its metrics to a broker that has somewhere to show them (KIP-714)."""

from __future__ import annotations

import confluent_kafka
import pytest
from http_pages import metrics_of, scrape

import ottla
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import ConfigResourceType
from ottla.testing import InProcessBroker, wait_until

RESOURCE = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all-of-app")


@pytest.fixture(scope="module")
def broker():
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        yield running


def subscribe(broker, **settings):
    """Change the subscription; None takes a setting away."""
    changes = [AlterConfigOp(name.replace("_", "."), value) for name, value in settings.items()]
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs({RESOURCE: changes})


def apis_of(broker):
    return {key for key, _, _ in broker.broker.apis.supported()}


def test_librdkafka_pushes_what_is_subscribed_to(broker):
    """Each 100 ms, compressed; of a client that does not match there is nothing."""
    subscribe(broker, metrics="org.apache.kafka.producer", interval_ms="100", match="client_id=app")
    url = str(metrics_of(broker.broker).end_point)
    common = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    app = confluent_kafka.Producer({**common, "client.id": "app"})
    other = confluent_kafka.Producer({**common, "client.id": "other"})
    for producer in (app, other):
        producer.produce("t", b"x")
        producer.flush(60)

    def pushed():
        found = scrape(url).items()
        return {(name, dict(labels).get("client_id")): value for (name, labels), value in found}

    name = "kafka_client_producer_connection_creation_total"
    wait_until(lambda: pushed().get((name, "app"), 0) > 0, "metrics of the client", seen=pushed)
    assert (name, "other") not in pushed()


def test_subscription_is_shown_and_kept(broker):
    """As every other resource that has settings."""
    subscribe(broker, metrics="a.,b.", interval_ms="500")
    with ottla.Admin(broker.bootstrap_servers) as admin:
        entries = admin.describe_configs([RESOURCE])[RESOURCE]

    assert entries["metrics"].value == "a.,b."
    assert entries["interval.ms"].value == "500"
    assert not entries["interval.ms"].is_default
    wait_until(
        lambda: broker.broker.dynamic_config.client_metrics["all-of-app"].interval_ms == 500,
        "the broker to follow",
    )


def test_bad_subscription_is_refused(broker):
    """With the rule, and nothing is changed."""
    with pytest.raises(KafkaError, match="match=rack=a"):
        subscribe(broker, match="rack=a")


def test_broker_that_cannot_show_them_does_not_ask_for_them(ottla_fresh_broker):
    """What is not served is not advertised: clients push nothing then."""
    telemetry = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}

    assert not telemetry & apis_of(ottla_fresh_broker)


def test_subscriptions_are_listed_wherever_they_were_made(ottla_fresh_broker):
    """Subscriptions are listed also where nothing is pushed; one without settings is none."""
    with ottla.Admin(ottla_fresh_broker.bootstrap_servers) as admin:
        assert admin.list_client_metrics() == []
        for name in ("b", "a", "gone"):
            change = [AlterConfigOp("interval.ms", "500")]
            admin.incremental_alter_configs({ConfigResource.client_metrics(name): change})
        undo = [AlterConfigOp("interval.ms", None, "DELETE")]
        admin.incremental_alter_configs({ConfigResource.client_metrics("gone"): undo})
        assert admin.list_client_metrics() == ["a", "b"]
