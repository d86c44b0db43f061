"""Who is to push what, what is refused, and what is shown of it (KIP-714)."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from otlp_data import attribute, metrics_data, number_metric

from ottla.config.metrics_config import ClientMetricsConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.metrics.otlp import MAX_ATTRIBUTES, MAX_POINTS, MAX_TEXT_BYTES, points
from ottla.record.compression import CompressionType, compress
from ottla.server.handlers import telemetry
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
        self.context = self.connection("one")

    def connection(self, name):
        """A client of this connection."""
        connection = SimpleNamespace(id=name, software=("librdkafka", "2.16.1"), client_port=5)
        return SimpleNamespace(connection=connection, client_id="app", client_host="127.0.0.1")

    def subscribe_to(self, **settings):
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        self.subscriptions = {"one": ClientMetricsConfig.of(overrides)}

    def ask(self, client=NO_UUID):
        return self.telemetry.subscribe(self.context, client)

    def push(self, client, subscription_id, data=DATA, codec=0, is_last=False):
        push = Push(subscription_id, is_last, int(codec), data)
        self.runtime.scheduler.run(self.telemetry.push(self.context, client, push))

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


def tagged(name, *attributes):
    return metrics_data(number_metric(name, 5, 1.0, *(attribute(*each) for each in attributes)))


def tags_of(world):
    return [dict(tags) for family, tags, _ in world.registry.read() if family.name.type == "client"]


def test_client_that_nobody_wants_to_hear_from_is_refused(world):
    """Without a subscription nothing is kept; what a subscription does not want is left out."""
    world.subscriptions = {}
    client, subscription = world.ask()
    assert world.refusal(client, subscription.id) is ErrorCode.INVALID_REQUEST

    world.subscribe_to(metrics="org.apache.kafka.producer", interval_ms="1000")
    client, subscription = world.ask()
    world.push(client, subscription.id, DATA + metrics_data(number_metric("other", 5, 1.0)))
    assert list(world.shown()) == [("producer_connection_creation_total", "app")]


def test_attributes_never_stand_for_the_names_of_the_client(world):
    """Names that labels cannot have become such, or are left out; the first of equals counts."""
    client, subscription = world.ask()
    named = [("client_id", "x"), ("client-instance-id", "y"), ("9a", "1"), ("", "2"), ("__b", "3")]
    world.push(client, subscription.id, tagged("m", *named, ("c-d", "4"), ("c_d", "5")))

    assert tags_of(world) == [
        {"client_id": "app", "client_instance_id": str(client), "_9a": "1", "b": "3", "c_d": "4"}
    ]


def test_connection_has_one_instance(world):
    """A client that makes up ids has what it pushed last; other connections keep theirs."""
    others = World.connection(world, "two")
    mine, world.context = world.context, others
    client, subscription = world.ask()
    world.push(client, subscription.id)
    world.context = mine
    for _ in range(50):
        client, subscription = world.ask()
        world.push(client, subscription.id)

    assert len(tags_of(world)) == 2
    assert len(world.telemetry._instances) == 2


def test_points_have_a_limit(world, monkeypatch):
    """Of one push, and of all: those that have not pushed for longest lose theirs."""
    monkeypatch.setattr(telemetry, "MAX_POINTS_KEPT", 2_500)
    many = metrics_data(*(number_metric("m", 5, 1.0, attribute("k", str(n))) for n in range(1_500)))
    world.telemetry.max_bytes = len(many)
    for number in range(4):
        world.context = world.connection(str(number))
        client, subscription = world.ask()
        world.push(client, subscription.id, many)

    assert world.telemetry._point_count == 2 * MAX_POINTS
    assert sum(len(each.values) for each in world.telemetry._instances.values()) == 2


def test_texts_and_attributes_have_a_limit():
    """What is beyond is left out: a push is small when it is kept, whatever it unpacks to."""
    (point,) = points(tagged("n" * 10_000, *((f"k{n}" + "x" * 999, "v" * 999) for n in range(99))))

    assert len(point.name) == len(point.attributes[0][1]) == MAX_TEXT_BYTES
    assert len(point.attributes) == MAX_ATTRIBUTES


def test_names_that_differ_in_their_letters_case_are_one(world):
    """The page has each name once."""
    client, subscription = world.ask()
    world.push(client, subscription.id, metrics_data(*(number_metric(n, 5, 1.0) for n in "aA")))

    assert list(world.shown()) == [("a", "app")]
