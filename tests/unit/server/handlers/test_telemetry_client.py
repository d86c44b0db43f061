"""Who is to push what, what is refused, and what is shown of it (KIP-714)."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from otlp_data import metrics_data, number_metric

from ottla.config.metrics_config import ClientMetricsConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.record.compression import CompressionType, compress
from ottla.server.handlers.telemetry import ClientTelemetry, Push
from ottla.structs import NO_UUID
from ottla.testing.runtime import mock_runtime

NAME = "org.apache.kafka.producer.connection.creation.total"
DATA = metrics_data(number_metric(NAME, 7, 5.0))


class World:
    """A broker with one subscription, and a client."""

    def __init__(self, **settings):
        self.runtime = mock_runtime()
        self.registry = MetricsRegistry(self.runtime, 1_000)
        self.subscriptions = {}
        self.subscribe_to(metrics="*", **settings)
        self.telemetry = ClientTelemetry(
            self.runtime, self.registry, lambda: self.subscriptions, 1_000
        )
        connection = SimpleNamespace(software=("librdkafka", "2.16.1"), client_port=5)
        self.context = SimpleNamespace(
            connection=connection, client_id="app", client_host="127.0.0.1"
        )

    def subscribe_to(self, **settings):
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        self.subscriptions = {"one": ClientMetricsConfig.of(overrides)}

    def ask(self, client=NO_UUID):
        return self.telemetry.subscribe(self.context, client)

    def push(self, client, subscription_id, data=DATA, codec=0, is_last=False):
        push = Push(subscription_id, is_last, int(codec), data)
        self.telemetry.push(self.context, client, push)

    def refusal(self, *arguments, **keywords):
        """The code with which a push is refused."""
        with pytest.raises(KafkaError) as caught:
            self.push(*arguments, **keywords)
        return caught.value.error

    def shown(self):
        """What a scrape of the broker would show of clients."""
        return {
            (family.name.name, dict(tags)["client_id"]): value
            for family, tags, value in self.registry.read()
            if family.name.type == "client"
        }


@pytest.fixture
def world():
    return World()


def test_client_gets_an_id_and_what_to_push(world):
    """One empty text stands for all metrics."""
    client, subscription = world.ask()

    assert client != NO_UUID
    assert subscription.metrics == ("",)
    assert subscription.interval_ms == 300_000


def test_what_is_pushed_is_shown_until_the_client_ends(world):
    """Under its name, with the names of the client."""
    client, subscription = world.ask()
    world.push(client, subscription.id)
    assert world.shown() == {("producer_connection_creation_total", "app"): 5.0}

    world.push(client, subscription.id, is_last=True)
    assert world.shown() == {}
    assert world.refusal(client, subscription.id) is ErrorCode.INVALID_REQUEST


def test_client_that_is_silent_is_shown_no_longer(world):
    """After three intervals without a push."""
    client, subscription = world.ask()
    world.push(client, subscription.id)
    world.runtime.clock.advance(3 * 300_000)

    assert world.shown() == {}


@pytest.mark.parametrize("codec", list(CompressionType))
def test_metrics_may_be_compressed(world, codec):
    """By each of Kafka's codecs."""
    client, subscription = world.ask()
    data = DATA if codec is CompressionType.NONE else compress(codec, DATA)
    world.push(client, subscription.id, data, codec)

    assert world.shown()


@pytest.mark.parametrize(
    ("match", "is_meant"),
    [
        ("client_id=app", True),
        ("client_id=ap", False),
        ("client_software_name=librdkafka,client_software_version=2[.].*", True),
        ("client_source_address=10[.].*", False),
        ("client_source_port=5", True),
    ],
)
def test_subscription_is_for_those_that_match(match, is_meant):
    """The whole value, and all of them."""
    _, subscription = World(match=match).ask()

    assert bool(subscription.metrics) == is_meant


def test_change_of_the_subscription_is_told(world):
    """The client asks again at once, and pushes what is wanted now."""
    client, before = world.ask()
    world.subscribe_to(metrics="org.apache.kafka.producer", interval_ms="1000")
    assert world.refusal(client, before.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID

    _, now = world.ask(client)
    assert (now.metrics, now.interval_ms) == (("org.apache.kafka.producer",), 1000)
    world.push(client, now.id)


def test_client_that_comes_too_early_waits(world):
    """It has pushed, and the interval is not over."""
    client, subscription = world.ask()
    world.runtime.clock.advance(1)
    world.push(client, subscription.id)
    assert world.refusal(client, subscription.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with pytest.raises(KafkaError) as caught:
        world.ask(client)
    assert caught.value.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED

    world.runtime.clock.advance(300_000)
    world.push(client, subscription.id)


@pytest.mark.parametrize(
    ("data", "codec", "code"),
    [
        (DATA, 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(1_001), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\x0a\x7f", 0, ErrorCode.INVALID_RECORD),
        (compress(CompressionType.GZIP, bytes(100_000)), 1, ErrorCode.INVALID_RECORD),
        (b"no gzip", 1, ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_no_metrics_is_refused(world, data, codec, code):
    """Also what would be too large once it is decompressed."""
    client, subscription = world.ask()

    assert world.refusal(client, subscription.id, data, codec) is code


def test_client_without_an_id_is_refused(world):
    """It has to ask first."""
    _, subscription = world.ask()

    assert world.refusal(NO_UUID, subscription.id) is ErrorCode.INVALID_REQUEST
    assert world.refusal(UUID(int=1), 0) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
