"""The clients of the 0.7 design on a real ZooKeeper server and a broker."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla import KafkaError
from ottla import Producer as ModernProducer
from ottla.clients.legacy import (
    Consumer,
    ConsumerConnector,
    FetchRequest,
    KafkaStream,
    Producer,
    ProducerData,
    SimpleConsumer,
    StringDecoder,
    StringEncoder,
    Whitelist,
)
from ottla.mirror.mirror_maker import MirrorMaker, open_source
from ottla.runtime import SystemClock
from ottla.testing import InProcessBroker, wait_until
from ottla.testing.processes import BrokerProcess

PARTITIONS = 6
SESSION_MS = 5000  # one that waits for a processor must not lose its own
LIMIT_S = 60
A_CONSUMER = """
import sys
from ottla.clients.legacy import Consumer, StringDecoder
connector = Consumer.create({"zk.connect": sys.argv[1], "groupid": "g", "consumerid": "child",
    "zk.sessiontimeout.ms": sys.argv[2], "autocommit.interval.ms": 100})
(stream,) = connector.create_message_streams({"pages": 1}, StringDecoder())["pages"]
print("joined", flush=True)
for message in stream:
    print(message.message, flush=True)
"""


class Gathered:
    """What a stream hands out, read by a thread of its own."""

    def __init__(self, stream: KafkaStream) -> None:
        self.messages: list = []
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream: KafkaStream) -> None:
        for message in stream:
            self.messages.append(message)

    @property
    def values(self) -> set[str]:
        return {message.message for message in self.messages}


class Shared(NamedTuple):
    """A broker that tests share: they use topics and groups of their own."""

    connect: str
    broker: BrokerProcess


@pytest.fixture(scope="module")
def shared(zookeeper, tmp_path_factory) -> Iterator[Shared]:
    """Six partitions a topic, small segments."""
    connect = f"{zookeeper.connect}/legacy/shared"
    broker = BrokerProcess(
        tmp_path_factory.mktemp("legacy") / "data",
        zookeeper_connect=connect,
        num_partitions=PARTITIONS,
        log_segment_bytes=2000,
    )
    yield Shared(connect, broker.start())
    broker.stop()


@pytest.fixture
def cluster(start_broker, znodes):
    """A broker for one test, below the chroot of that test."""
    return start_broker(zookeeper_connect=znodes.connect, num_partitions=PARTITIONS)


@pytest.fixture
def connect() -> Iterator:
    """Makes connectors of a group; they are shut down in the end."""
    made: list[ConsumerConnector] = []

    def make(address: str, group: str = "g", **settings) -> ConsumerConnector:
        made.append(
            Consumer.create(
                {
                    "zk.connect": address,
                    "groupid": group,
                    "zk.sessiontimeout.ms": SESSION_MS,
                    "rebalance.backoff.ms": 500,
                    **{name.replace("_", "."): value for name, value in settings.items()},
                }
            )
        )
        return made[-1]

    yield make
    for connector in made:
        connector.shutdown()


def send(address: str, topic: str, values: list[str], **settings) -> None:
    """Sync, one record for each value, its number the key."""
    config = {"zk.connect": address, "serializer.class": StringEncoder}
    config.update((name.replace("_", "."), value) for name, value in settings.items())
    with Producer(config) as producer:
        producer.send(*(ProducerData(topic, n, [value]) for n, value in enumerate(values)))


@pytest.fixture
def start_child() -> Iterator:
    """Starts a consumer in a process of its own; it is gone in the end."""
    started: list[subprocess.Popen[str]] = []

    def start(address: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", A_CONSUMER, address, str(SESSION_MS)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.communicate()


def owners(znodes) -> list[str | None]:
    """Which streams own the partitions of `pages`."""
    found = [znodes.get(f"/consumers/g/owners/pages/{n}")[0] for n in range(PARTITIONS)]
    return [None if owner is None else owner.decode() for owner in found]


def offsets(znodes, group: str, topic: str) -> list[int]:
    """The offsets in the group's nodes, by partition."""
    names = znodes.names(f"/consumers/{group}/offsets/{topic}")
    return [int(znodes.get(f"/consumers/{group}/offsets/{topic}/{n}")[0]) for n in names]


def test_a_group_reads_everything_though_one_of_it_is_killed(cluster, znodes, connect, start_child):
    """Two go on with the partitions of the third; offsets and owners are in Kafka's nodes."""
    before, after = [f"before-{n}" for n in range(300)], [f"after-{n}" for n in range(300)]
    send(znodes.connect, "pages", before)
    readers = []
    connectors = [
        connect(znodes.connect, autocommit_interval_ms=100, queuedchunks_max=1, fetch_size=100)
        for _ in range(2)
    ]
    for connector in connectors:
        (stream,) = connector.create_message_streams({"pages": 1}, StringDecoder())["pages"]
        readers.append(Gathered(stream))
    child = start_child(znodes.connect)
    assert child.stdout is not None
    assert child.stdout.readline() == "joined\n"
    assert len(znodes.names("/consumers/g/ids")) == 3
    wait_until(lambda: sorted(Counter(owners(znodes)).values()) == [2, 2, 2], "each has two")
    assert "g_child-0" in owners(znodes)

    child.kill()
    wait_until(
        lambda: znodes.names("/consumers/g/ids") == sorted(c.consumer_id for c in connectors),
        "the others are registered",
    )
    rest = set(child.stdout.read().splitlines())
    send(znodes.connect, "pages", after)
    wait_until(lambda: rest.union(*(r.values for r in readers)) >= {*before, *after}, "all is read")
    registration = znodes.json(f"/consumers/g/ids/{connectors[0].consumer_id}")
    for connector in connectors:
        connector.shutdown()

    for reader in readers:
        reader.thread.join(LIMIT_S)
    assert registration["subscription"] == {"pages": 1}
    assert (registration["version"], registration["pattern"]) == (1, "static")
    assert offsets(znodes, "g", "pages") == [100] * PARTITIONS
    assert znodes.names("/consumers/g/ids") == znodes.names("/consumers/g/owners/pages") == []


def test_reading_goes_on_where_it_was_committed(shared, connect):
    """By hand; what was not committed comes again, and other groups get everything."""
    send(shared.connect, "committed", ["a"])
    connector = connect(shared.connect, autocommit_enable=False, consumer_timeout_ms=LIMIT_S * 1000)
    (stream,) = connector.create_message_streams({"committed": 1}, StringDecoder())["committed"]
    assert next(stream).message == "a"
    connector.commit_offsets()
    send(shared.connect, "committed", ["b"])
    assert next(stream).message == "b"
    connector.shutdown()
    assert list(stream) == []

    connector = connect(shared.connect, autocommit_enable=False, consumer_timeout_ms=LIMIT_S * 1000)
    (stream,) = connector.create_message_streams({"committed": 1}, StringDecoder())["committed"]
    assert next(stream).message == "b"
    with pytest.raises(KafkaError, match="only once"):
        connector.create_message_streams({"committed": 1})

    other = connect(shared.connect, "other", consumer_timeout_ms=LIMIT_S * 1000)
    (stream,) = other.create_message_streams({"committed": 1}, StringDecoder())["committed"]
    assert {next(stream).message, next(stream).message} == {"a", "b"}


def test_a_filter_reads_topics_that_are_made_later(shared, connect):
    """One rebalance after the topic is there; others are passed over."""
    connector = connect(shared.connect, "filters")
    streams = connector.create_message_streams_by_filter(Whitelist("web-.*"), 2, StringDecoder())
    readers = [Gathered(stream) for stream in streams]

    send(shared.connect, "mail", ["no"])
    send(shared.connect, "web-a", [f"v{n}" for n in range(12)])

    wait_until(lambda: len(readers[0].values | readers[1].values) == 12, "all is read")
    assert {m.topic for reader in readers for m in reader.messages} == {"web-a"}
    assert [len({m.partition for m in reader.messages}) for reader in readers] == [3, 3]


def test_a_broker_may_move_to_another_port(cluster, znodes, connect, start_broker):
    """Its id stays: producer and consumer find it through ZooKeeper."""
    connector = connect(znodes.connect, consumer_timeout_ms=LIMIT_S * 1000, backoff_increment_ms=50)
    config = {"zk.connect": znodes.connect, "serializer.class": StringEncoder}
    with Producer({**config, "num.retries": 50}) as producer:
        producer.send(ProducerData("pages", None, ["here"]))
        (stream,) = connector.create_message_streams({"pages": 1}, StringDecoder())["pages"]
        assert next(stream).message == "here"
        assert cluster.stop() == 0

        moved = start_broker(cluster.data_dir, zookeeper_connect=znodes.connect)
        producer.send(ProducerData("pages", None, ["there"]))

        assert moved.port != cluster.port
        assert next(stream).message == "there"


class LastPartition:
    """Everything with a key goes to the last of the sorted partitions."""

    def partition(self, key: object, num_partitions: int) -> int:
        return num_partitions - 1


def test_producers_send_at_once_and_by_a_queue(shared):
    """Sync with a partitioner, async with broker.list, both compressed; all of it arrives."""
    send(
        shared.connect,
        "sync",
        [f"v{n}" for n in range(100)],
        partitioner_class=LastPartition,
        compression_codec="1",
    )
    config = {
        "broker.list": f"0:127.0.0.1:{shared.broker.port}",
        "producer.type": "async",
        "serializer.class": "ottla.clients.legacy.StringEncoder",
        "compression.codec": "gzip",
        "compressed.topics": "elsewhere",
        "queue.enqueueTimeout.ms": -1,
        "queue.size": 1000,
    }
    with Producer(config) as producer:
        for number in range(4900):
            producer.send(ProducerData("async", None, [f"v{number}"]))
        producer.send([ProducerData("async", None, [f"v{n}"]) for n in range(4900, 5000)])
        with pytest.raises(TypeError, match="'v' is a str: it must be ProducerData"):
            producer.send(["v"])
    assert producer.failed_count == 0

    with SimpleConsumer("127.0.0.1", shared.broker.port) as consumer:

        def values(topic: str, partition: int) -> list[bytes]:
            found, offset = [], 0
            while chunk := list(consumer.fetch(FetchRequest(topic, partition, offset))):
                found += [message.payload for message, _ in chunk]
                offset = chunk[-1].next_offset
            return found

        assert values("sync", PARTITIONS - 1) == [b"v%d" % n for n in range(100)]
        spread = [values("async", partition) for partition in range(PARTITIONS)]
        assert all(spread)
        assert {v for part in spread for v in part} == {b"v%d" % n for n in range(5000)}


def test_mirror_of_07_reads_and_commits_through_zookeeper(shared, unique):
    """A mirror whose consumer file has zk.connect copies, and goes on where it has committed."""
    topic, group = unique("mirrored"), unique("mirror")
    settings = {"zk.connect": shared.connect, "groupid": group, "auto.commit.enable": "true"}
    with InProcessBroker() as centre:
        for first in (0, 20):
            with Producer({"zk.connect": shared.connect, "serializer.class": StringEncoder}) as out:
                out.send(ProducerData(topic, "k", [str(first + n) for n in range(20)]))
            source = open_source(settings, Whitelist(topic), 0)
            target = ModernProducer(centre.bootstrap_servers)
            with MirrorMaker([source], target, SystemClock()) as maker:
                thread = threading.Thread(target=maker.run)
                thread.start()
                copied = centre.wait_for_records(topic, first + 20)
                maker.stop()
                thread.join(LIMIT_S)

    assert sorted(int(each.value) for each in copied) == list(range(40))
