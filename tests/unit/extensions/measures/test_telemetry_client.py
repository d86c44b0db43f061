"""Who is to push what, what is refused, and what is shown of it (KIP-714)."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from otlp_data import attribute, metrics_data, number_metric

from ottla.config.metrics_config import ClientMetricsConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.measures import telemetry
from ottla.extensions.measures.telemetry import (
    CODECS,
    MIN_EXPIRY_MS,
    SWEEP_MS,
    ClientTelemetry,
    Push,
    TelemetryHandler,
)
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.metrics.otlp import MAX_ATTRIBUTES, MAX_POINTS, MAX_TEXT_BYTES, points
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.message import encode
from ottla.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from ottla.record.compression import CompressionType, compress
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
            for family, tags, value in filter(None, self.registry.read())
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
    """It has pushed, and the interval is not over; at any hour."""
    world.runtime.clock.advance(10**7)
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
    """Bytes that are no metrics, or too many once decompressed, are refused."""
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


@pytest.mark.parametrize("most", [2 * MAX_POINTS, 2_500])
def test_points_have_a_limit(world, monkeypatch, most):
    """Of one push, and of all: those that have not pushed for longest lose theirs."""
    monkeypatch.setattr(telemetry, "MAX_POINTS_KEPT", most)
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


def may_ask(world, client, connection):
    """Whether a client of this connection is told its subscription now."""
    world.context = world.connection(connection)
    try:
        world.ask(client)
    except KafkaError as error:
        if error.error is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            raise
        return False
    return True


def test_subscription_is_told_once_in_an_interval(world):
    """A client gets its subscription once in an interval, also if it pushes nothing."""
    world.runtime.clock.advance(10**7)
    client, _ = world.ask()
    assert not may_ask(world, client, "one")
    world.runtime.clock.advance(299_999)
    assert not may_ask(world, client, "one")
    world.runtime.clock.advance(1)

    assert may_ask(world, client, "one")


def test_client_that_has_asked_anew_pushes_at_once(world):
    """The subscription has changed, and its interval with it."""
    world.runtime.clock.advance(10**7)
    client, subscription = world.ask()
    world.push(client, subscription.id)
    world.subscribe_to(metrics="*", interval_ms="1000")
    world.runtime.clock.advance(1_000_000)
    assert world.refusal(client, subscription.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, subscription = world.ask(client)
    world.runtime.clock.advance(1)
    for _ in range(3):
        world.push(client, subscription.id)
        world.runtime.clock.advance(999)
        assert world.refusal(client, subscription.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        world.runtime.clock.advance(1)
    world.push(client, subscription.id)
    world.runtime.clock.advance(1_000)
    world.subscribe_to(metrics="*", interval_ms="2000")
    assert world.refusal(client, subscription.id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, subscription = world.ask(client)

    world.push(client, subscription.id)


def test_client_of_another_broker_pushes_here_without_asking(world):
    """It has moved; the brokers of a cluster have the same subscriptions."""
    client, subscription = world.ask()
    here = World()
    here.runtime.clock.advance(1)
    here.push(client, subscription.id)

    assert here.shown()
    here.runtime.clock.advance(299_999)
    assert here.refusal(client, subscription.id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    here.runtime.clock.advance(1)
    here.push(client, subscription.id)


def test_metrics_of_the_last_push_take_the_place_of_those_before(world):
    """What a client no longer measures is not shown any longer."""
    client, subscription = world.ask()
    for name in "ab":
        world.push(client, subscription.id, metrics_data(number_metric(name, 5, 1.0)))
        world.runtime.clock.advance(300_000)

    assert list(world.shown()) == [("b", "app")]


def test_names_have_a_limit_and_say_what_they_are(world, monkeypatch):
    """Clients make them up, and their descriptions."""
    monkeypatch.setattr(telemetry, "MAX_FAMILIES", 2)
    client, subscription = world.ask()
    silent = metrics_data(number_metric("b", 5, 1.0).replace(b"What it is.", b"           "))
    named = metrics_data(*(number_metric(name, 5, 1.0) for name in "ac"))
    world.push(client, subscription.id, silent + named)

    docs = {each.name.name: each.doc for each in world.registry.families.values()}
    assert docs == {"a": "What it is.", "b": "Pushed by clients."}


# Clients that are forgotten


def test_clients_have_a_limit(world, monkeypatch):
    """The one that was heard of first is forgotten, and may ask again."""
    monkeypatch.setattr(telemetry, "MAX_INSTANCES", 3)
    world.runtime.clock.advance(10**7)
    clients = []
    for number in range(4):
        world.context = world.connection(str(number))
        clients.append(world.ask()[0])

    assert [may_ask(world, clients[n], str(n)) for n in (3, 2, 1, 0)] == [False] * 3 + [True]


def test_clients_that_are_gone_make_room_first(world, monkeypatch):
    """They were silent for three intervals; the oldest one is still there."""
    monkeypatch.setattr(telemetry, "MAX_INSTANCES", 3)
    world.runtime.clock.advance(10**7)
    oldest = world.ask()[0]
    world.context = world.connection("silent")
    world.ask()
    world.runtime.clock.advance(620_000)
    assert may_ask(world, oldest, "one")
    world.runtime.clock.advance(275_000)
    world.context = world.connection("third")
    third = world.ask()[0]
    world.runtime.clock.advance(5_000)
    world.context = world.connection("fourth")
    fourth = world.ask()[0]

    assert not may_ask(world, oldest, "one")
    assert not may_ask(world, third, "third")
    assert not may_ask(world, fourth, "fourth")


def test_clients_that_are_gone_are_looked_for_at_times(world):
    """One that has ended is known as such until then."""
    world.subscribe_to(metrics="*", interval_ms="1000")
    world.runtime.clock.advance(10**7)
    client, subscription = world.ask()
    world.push(client, subscription.id, is_last=True)

    def another():
        world.context = world.connection(str(world.runtime.clock.now_ms()))
        world.ask()

    world.runtime.clock.advance(MIN_EXPIRY_MS - 5_000)
    another()  # looked for now
    world.runtime.clock.advance(5_000)
    another()
    assert world.refusal(client, subscription.id) is ErrorCode.INVALID_REQUEST
    world.runtime.clock.advance(SWEEP_MS - 5_001)
    another()
    assert world.refusal(client, subscription.id) is ErrorCode.INVALID_REQUEST
    world.runtime.clock.advance(1)
    another()

    world.push(client, subscription.id)


def test_client_is_not_forgotten_a_moment_too_early(world):
    """It is silent for one of its intervals, or two."""
    world.subscribe_to(metrics="*", interval_ms="1000")
    world.runtime.clock.advance(10**7)
    client, subscription = world.ask()
    world.push(client, subscription.id, is_last=True)
    world.runtime.clock.advance(MIN_EXPIRY_MS - 1)
    world.context = world.connection("two")
    world.ask()

    assert world.refusal(client, subscription.id) is ErrorCode.INVALID_REQUEST


def test_client_that_comes_again_by_another_connection_is_that_ones(world, monkeypatch):
    """The connection by which it came first may have another client then."""
    monkeypatch.setattr(telemetry, "MAX_INSTANCES", 2)
    world.runtime.clock.advance(10**7)
    client = world.ask()[0]
    for name in ("two", "three"):
        world.context = world.connection(name)
        world.ask()
    assert may_ask(world, client, "four")
    world.context = world.connection("one")
    world.ask()

    assert not may_ask(world, client, "four")


# The requests


def test_requests_are_answered_in_the_words_of_the_protocol(world):
    """Errors too: neither of them closes the connection."""
    handler = TelemetryHandler(world.telemetry)
    ask = handler.apis()[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS]
    push = handler.apis()[ApiKey.PUSH_TELEMETRY]
    answer = ask(world.context, GetTelemetrySubscriptionsRequest())
    assert encode(answer, 0)
    assert (answer.error_code, answer.push_interval_ms) == (0, 300_000)
    assert (answer.telemetry_max_bytes, answer.requested_metrics) == (1_000, [""])
    assert answer.accepted_compression_types == [int(codec) for codec in CODECS]
    client = answer.client_instance_id
    again = ask(world.context, GetTelemetrySubscriptionsRequest(client_instance_id=client))
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def pushed(data):
        body = PushTelemetryRequest(
            client_instance_id=client, subscription_id=answer.subscription_id, metrics=data
        )
        found = world.runtime.scheduler.run(push(world.context, body))
        assert encode(found, 0)
        return found.error_code

    assert (pushed(b"\x0a\x7f"), pushed(DATA)) == (ErrorCode.INVALID_RECORD, 0)
    assert world.shown()


@pytest.mark.parametrize(("length", "is_asked"), [(256, True), (257, False), (30_000, False)])
def test_expressions_match_no_name_that_is_longer_than_texts_are(length, is_asked):
    """Python's matcher takes the square of a name for two stars, and clients make names up."""
    world = World(match="client_id=.*-.*")
    world.context.client_id = "-" * length
    _, subscription = world.ask()

    assert subscription.metrics == (("",) if is_asked else ())


def test_name_of_a_client_is_shown_up_to_the_length_of_texts(world):
    """It stands beside each of a thousand numbers on the page of all metrics."""
    world.context.client_id = "x" * 30_000
    client, subscription = world.ask()
    world.push(client, subscription.id)

    assert [name for _, name in world.shown()] == ["x" * MAX_TEXT_BYTES]
