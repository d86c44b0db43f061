"""The producer of the 0.7 design: whom it sends to, how often, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from old_world import OldWorld, produced

from ottla import KafkaError
from ottla.clients.legacy import Producer, ProducerData, StringEncoder
from ottla.errors import ErrorCode
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.produce import ProduceRequest
from ottla.registry import paths
from ottla.registry.znodes import BrokerNode
from ottla.structs import Node


class KeyIsThePlace:
    """The key says which of the sorted partitions."""

    def partition(self, key: int, num_partitions: int) -> int:
        return key


def producer_of(world: OldWorld, **settings: Any) -> Producer:
    """One that knows the brokers from the registry."""
    return Producer(
        {
            "zk.connect": "zookeeper:2181",
            "serializer.class": StringEncoder,
            "partitioner.class": KeyIsThePlace,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@pytest.fixture
def producer(old_world) -> Iterator[Producer]:
    with producer_of(old_world) as producer:
        yield producer


def test_data_go_to_the_leaders_of_their_partitions(producer, old_world):
    """The partitioner chooses by the key; the data of a partition are one batch, in order."""
    producer.send(
        ProducerData("pages", 1, ["a", "b"]),
        [ProducerData("pages", 0, ["c"]), ProducerData("pages", 1, ["d"])],
    )

    assert old_world.sent() == [
        (0, "pages", 0, [b"c"]),
        (1, "pages", 1, [b"a", b"b", b"d"]),
    ]


def test_partitioner_counts_the_partitions_in_the_order_of_their_brokers(producer, old_world):
    """As it did in 0.7: the first replica's broker comes first."""
    old_world.add_topic("turned", {0: 1, 1: 0})
    producer.send(ProducerData("turned", 0, ["a"]))

    assert old_world.sent() == [(0, "turned", 1, [b"a"])]


@pytest.mark.parametrize("place", [-1, 2])
def test_partitioner_must_give_a_partition_that_there_is(producer, old_world, place):
    """The error names what it gave, the key and the count."""
    with pytest.raises(KafkaError, match=f"gave {place} for key {place}; topic pages has 2"):
        producer.send(ProducerData("pages", place, ["a"]))

    assert old_world.sent() == []


def test_without_a_key_any_partition_that_has_a_leader_gets_the_data(producer, old_world):
    """Each of them now and then; a partition without a leader never."""
    old_world.add_topic("wide", {0: 0, 1: -1, 2: 1, 3: 1})
    for _ in range(30):
        producer.send(ProducerData("wide", None, ["a"]))

    assert {row[:3] for row in old_world.sent()} == {
        (0, "wide", 0),
        (1, "wide", 2),
        (1, "wide", 3),
    }


def test_partition_without_a_leader_is_an_error_after_the_retries(producer, old_world):
    """It is looked up again before each."""
    old_world.add_topic("half", {0: 0, 1: -1})
    with pytest.raises(KafkaError, match="half-1 has no leader"):
        producer.send(ProducerData("half", 1, ["a"]), ProducerData("half", 0, ["b"]))

    assert old_world.sent() == [(0, "half", 0, [b"b"])]


def test_new_leader_gets_what_the_old_one_has_refused(producer, old_world):
    """Only that, after the backoff; the registry says who it is."""

    def move(request, version):
        old_world.soon(old_world.lead("pages", 1, 0))
        return produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request, version)

    old_world.cluster[1].on(ProduceRequest, move)
    before_ms = old_world.runtime.clock.monotonic_ms()
    producer.send(ProducerData("pages", 0, ["a"]), ProducerData("pages", 1, ["b"]))

    assert old_world.sent() == [
        (0, "pages", 0, [b"a"]),
        (0, "pages", 1, [b"b"]),
        (1, "pages", 1, [b"b"]),
    ]
    assert old_world.runtime.clock.monotonic_ms() - before_ms >= 100


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (2, 3)])
def test_number_of_retries_is_a_setting(old_world, retries, attempts):
    """num.retries; the last error is raised."""
    old_world.cluster[0].on(ProduceRequest, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with (
        producer_of(old_world, num_retries=retries) as producer,
        pytest.raises(KafkaError, match="pages-0 at"),
    ):
        producer.send(ProducerData("pages", 0, ["a"]))

    assert len(old_world.sent()) == attempts


def test_error_that_does_not_pass_is_raised_at_once(producer, old_world):
    """Nothing is sent twice for it."""
    old_world.cluster[0].on(ProduceRequest, produced(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaError) as caught:
        producer.send(ProducerData("pages", 0, ["a"]))

    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(old_world.sent()) == 1


def test_known_topic_is_not_looked_up_again(producer, old_world):
    """No broker is asked for a topic that it did not have to create."""
    for _ in range(3):
        producer.send(ProducerData("pages", 0, ["a"]))

    assert not any(b.sent(MetadataRequest) for b in old_world.cluster.brokers.values())


def test_topic_that_there_is_not_is_made_by_a_broker(producer, old_world):
    """It is asked for once, and waited for."""
    brokers = old_world.cluster.brokers.values()

    def make(request, version):
        old_world.soon(old_world.make_topic("made", {0: 0}))
        return old_world.cluster.metadata(request)

    for broker in brokers:
        broker.on(MetadataRequest, make)
    old_world.cluster.errors["made"] = ErrorCode.LEADER_NOT_AVAILABLE
    producer.send(ProducerData("made", 0, ["a"]))

    assert old_world.sent() == [(0, "made", 0, [b"a"])]
    assert sum(len(broker.sent(MetadataRequest)) for broker in brokers) == 1


def test_topic_that_may_not_be_is_an_error(producer, old_world):
    """That of the broker that was asked to make it."""
    old_world.cluster.errors["bad"] = ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match="topic bad"):
        producer.send(ProducerData("bad", 0, ["a"]))


def test_topic_that_was_deleted_meanwhile_is_an_error(producer, old_world):
    """It is that of the topic; what is for others has been sent."""
    old_world.add_topic("orders", {0: 0})

    def vanish(request, version):
        old_world.soon(old_world.remove_topic("pages"))
        return produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request, version)

    old_world.cluster[1].on(ProduceRequest, vanish)
    with pytest.raises(KafkaError, match="topic pages: ") as caught:
        producer.send(ProducerData("pages", 1, ["a"]), ProducerData("orders", 0, ["b"]))

    assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert old_world.sent() == [(0, "orders", 0, [b"b"]), (1, "pages", 1, [b"a"])]


def test_broker_that_has_moved_is_sent_to_at_its_new_address(producer, old_world):
    """Its id stays; the old connection is closed."""
    producer.send(ProducerData("pages", 0, ["a"]))
    broker = old_world.cluster[0]
    broker.stop()
    broker.port = 9500
    broker.start()
    old_world.remove_broker(0)
    old_world.add_broker(0, 9500)
    old_world.advance()
    producer.send(ProducerData("pages", 0, ["b"]))

    assert old_world.sent() == [(0, "pages", 0, [b"a"]), (0, "pages", 0, [b"b"])]


def test_connection_to_a_broker_that_has_left_is_closed(producer, old_world):
    """Those to the others stay."""
    producer.send(ProducerData("pages", 0, ["a"]), ProducerData("pages", 1, ["b"]))
    connections = [old_world.cluster[n].connections[:] for n in (0, 1)]
    old_world.remove_broker(1)
    old_world.advance()

    assert old_world.cluster[0].connections == connections[0]
    assert old_world.cluster[1].connections == []
    with pytest.raises(KafkaError, match="there is no broker 1"):
        producer.send(ProducerData("pages", 1, ["b"]))


def test_new_partition_is_learned_from_the_registry(producer, old_world):
    """As soon as the topic's node says so."""
    producer.send(ProducerData("pages", 0, ["a"]))
    old_world.add_topic("pages", {0: 0, 1: 1, 2: 1})
    old_world.advance()
    producer.send(ProducerData("pages", 2, ["b"]))

    assert old_world.sent() == [(0, "pages", 0, [b"a"]), (1, "pages", 2, [b"b"])]


def test_session_that_has_expired_is_followed_by_a_look_at_everything(producer, old_world):
    """What changed meanwhile was not told."""
    producer.send(ProducerData("pages", 0, ["a"]))
    (registry,) = old_world.registries
    watches, registry._watches = registry._watches, {}
    old_world.add_topic("pages", {0: 0, 1: 1, 2: 1})
    registry.expire()
    old_world.advance()
    registry._watches = watches
    producer.send(ProducerData("pages", 2, ["b"]))

    assert old_world.sent()[-1] == (1, "pages", 2, [b"b"])


def test_connection_to_the_old_address_of_a_broker_is_closed(producer, old_world):
    """As soon as the brokers are looked at again, and not when something is sent."""
    producer.send(ProducerData("pages", 0, ["a"]), ProducerData("pages", 1, ["b"]))
    node = BrokerNode(("PLAINTEXT://mock:9500",), {}, "mock", 9500, 0)
    old_world.run(old_world.registry.set(paths.broker(0), node.encode()))
    old_world.add_broker(7, 9007)
    old_world.advance()

    assert [len(old_world.cluster[n].connections) for n in (0, 1)] == [0, 1]


def test_topics_that_are_known_are_not_read_again(producer, old_world, monkeypatch):
    """Several beside each other; one that is deleted is known no longer."""
    (registry,) = old_world.registries
    reads, get = [], registry.get

    async def count(path: str):
        reads.append(path)
        return await get(path)

    old_world.add_topic("orders", {0: 0})
    monkeypatch.setattr(registry, "get", count)
    for _ in range(3):
        producer.send(ProducerData("pages", 0, ["a"]), ProducerData("orders", 0, ["b"]))
    assert reads.count(paths.topic("pages")) == reads.count(paths.topic("orders")) == 1

    old_world.run(old_world.remove_topic("orders"))
    old_world.advance()
    producer.send(ProducerData("pages", 0, ["c"]))
    with pytest.raises(KafkaError, match="topic orders"):
        producer.send(ProducerData("orders", 0, ["d"]))


def test_brokers_of_the_list_are_asked_in_any_order(old_world):
    """They share the questions of all producers."""
    for _ in range(10):
        with Producer({"broker.list": "0:mock:9000,1:mock:9001"}) as producer:
            producer.send(ProducerData("pages", None, [b"a"]))

    assert all(broker.sent(MetadataRequest) for broker in old_world.cluster.brokers.values())


def test_closed_producer_leaves_nothing_behind(producer, old_world):
    """No connection and no session; it takes nothing any more, and may be closed again."""
    producer.send(ProducerData("pages", 0, ["a"]))
    producer.close()
    producer.close()
    old_world.advance()

    assert not any(broker.connections for broker in old_world.cluster.brokers.values())
    assert len(old_world.tree.sessions) == 1
    with pytest.raises(RuntimeError, match="the producer is closed"):
        producer.send(ProducerData("pages", 0, ["a"]))


class Handler:
    """Writes down the events, and whether it was closed."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.is_closed = False

    def handle(self, events, producer, encoder) -> None:
        self.events += events
        producer.send("pages", [encoder.to_message(event.data) for event in events], 0)

    def close(self) -> None:
        self.is_closed = True


def test_handler_of_the_application_takes_the_place_of_the_default(old_world):
    """It is given the pool and the encoder, and is closed with the producer."""
    handler = Handler()
    with producer_of(old_world, event_handler=handler) as producer:
        producer.send(ProducerData("pages", 1, ["a", "b"]))

    assert [(e.data, e.topic, e.partition) for e in handler.events] == [
        ("a", "pages", 1),
        ("b", "pages", 1),
    ]
    assert old_world.sent() == [(0, "pages", 0, [b"a", b"b"])]
    assert handler.is_closed


def queued_producer(broker, **settings) -> Producer:
    """An async one of a real broker: its queue has a thread."""
    return Producer(
        {
            "broker.list": f"0:{broker.bootstrap_servers}",
            "producer.type": "async",
            "serializer.class": StringEncoder,
            "queue.time": 60_000,
            **settings,
        }
    )


def test_queue_is_sent_when_the_producer_is_closed(broker, unique):
    """All of it, in order; a full batch does not wait for that."""
    topic = unique("queued")
    broker.create_topic(topic, 1)
    with queued_producer(broker, **{"batch.size": 20}) as producer:
        producer.send([ProducerData(topic, None, [str(number)]) for number in range(45)])
        assert len(broker.wait_for_records(topic, 40)) == 40

    assert [record.value for record in broker.records(topic)] == [b"%d" % n for n in range(45)]
    assert producer.failed_count == 0


def test_events_that_could_not_be_sent_are_counted(broker, unique):
    """Nobody else hears of them."""

    class Broken(Handler):
        """Sends nothing."""

        def handle(self, events, producer, encoder) -> None:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    topic = unique("refused")
    broker.create_topic(topic, 1)
    with queued_producer(broker, **{"event.handler": Broken}) as producer:
        producer.send(ProducerData(topic, None, ["a", "b"]))

    assert producer.failed_count == 2
    assert broker.records(topic) == []


def test_sync_producer_has_failed_at_nothing(producer):
    """The sync producer raises errors, and lists no failures."""
    assert producer.failed_count == 0


def test_data_of_another_type_are_refused(producer):
    """The error says what it must be."""
    with pytest.raises(TypeError, match="'v' is a str: it must be ProducerData"):
        producer.send(["v"])


@pytest.fixture
def listed(old_world) -> Iterator[Producer]:
    """One that has the list of brokers: the first alone."""
    config = {"broker.list": "0:mock:9000", "serializer.class": StringEncoder, "num.retries": 0}
    with Producer(config) as producer:
        yield producer


def test_brokers_of_the_list_alone_are_sent_to(listed, old_world):
    """The key does not count there, as in 0.7."""
    for _ in range(10):
        listed.send(ProducerData("pages", "key", ["a"]))

    assert {row[:3] for row in old_world.sent()} == {(0, "pages", 0)}
    assert len(old_world.cluster[0].sent(MetadataRequest)) == 1


def test_producer_with_a_list_goes_on_when_its_broker_is_back(listed, old_world):
    """While it is away, sending is an error."""
    broker = old_world.cluster[0]
    listed.send(ProducerData("pages", None, ["a"]))
    broker.stop()
    old_world.advance()
    with pytest.raises(KafkaError, match="mock:9000"):
        listed.send(ProducerData("pages", None, ["b"]))
    broker.start()
    old_world.advance(5000)
    listed.send(ProducerData("pages", None, ["c"]))

    assert [row[3] for row in old_world.sent()] == [[b"a"], [b"c"]]


def test_pool_keeps_one_connection_for_each_broker(producer, old_world):
    """However often it is sent to."""
    for _ in range(3):
        producer.send(ProducerData("pages", 0, ["a"]))
    link = producer._core.link_to(0)

    assert producer._core.link_to(0) is link
    assert link.node == Node(0, "mock", 9000)
    assert len(old_world.cluster[0].connections) == 1
