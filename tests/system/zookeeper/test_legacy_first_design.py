"""The old clients on brokers of the first design, which they find in ZooKeeper."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from ottla import Admin, TopicPartition
from ottla import Consumer as ModernConsumer
from ottla import Producer as ModernProducer
from ottla.clients.legacy import (
    Consumer,
    Producer,
    ProducerData,
    StringDecoder,
    StringEncoder,
    Whitelist,
)
from ottla.mirror.mirror_maker import MirrorMaker, open_source
from ottla.runtime import SystemClock
from ottla.structs import ElectionType
from ottla.testing import InProcessBroker, wait_until

LIMIT_S = 60
SETTINGS = {
    "first_design_listener": ":0",
    "first_design_flush_interval_messages": 1,
    "num_partitions": 2,
    "log_segment_bytes": 100,
    "log_retention_check_interval_ms": 50,
}


@pytest.fixture
def brokers(znodes) -> Iterator[list[InProcessBroker]]:
    """Two of them, each with partitions of its own."""
    made = [
        InProcessBroker(**SETTINGS, zookeeper_connect=znodes.connect, broker_id=number)
        for number in (0, 1)
    ]
    for broker in made:
        broker.start()
    yield made
    for broker in made:
        broker.stop()


class Reader:
    """A connector with one stream, which a thread reads."""

    def __init__(self, connect: str, **settings) -> None:
        config = {"zk.connect": connect, "groupid": "g", "broker.version": "0.7"}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        self.connector = Consumer.create(config)
        self.seen: list[tuple[str, str]] = []
        self.streams = self.connector.create_message_streams_by_filter(
            Whitelist("pages.*"), 1, StringDecoder()
        )
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        for message in self.streams[0]:
            self.seen.append((message.message, str(message.partition)))

    def wait_for(self, texts: set[str]) -> None:
        wait_until(lambda: texts <= {text for text, _ in self.seen}, f"{len(texts)} texts", LIMIT_S)

    def close(self) -> None:
        self.connector.shutdown()
        self.thread.join(LIMIT_S)


def send(connect: str, texts: list[str], topic: str = "pages") -> None:
    """Each to the partition of its key."""
    settings = {
        "zk.connect": connect,
        "broker.version": "0.7",
        "serializer.class": StringEncoder,
        "compression.codec": "gzip",
    }
    with Producer(settings) as producer:
        producer.send(*(ProducerData(topic, text, [text]) for text in texts))


def test_connector_and_producer_find_brokers_of_the_first_design_in_zookeeper(brokers, znodes):
    """Partitions are named broker-number; what was committed is where another reader begins."""
    connect = f"{znodes.connect}/first_design"
    first = [f"first-{number}" for number in range(40)]
    send(connect, first)
    reader = Reader(connect, fetch_size=16)
    try:
        reader.wait_for(set(first))
        send(connect, more := [f"more-{number}" for number in range(40)])
        reader.wait_for(set(more))
        assert sorted({place for _, place in reader.seen}) == ["0-0", "0-1", "1-0", "1-1"]
        assert len(reader.seen) == 80
    finally:
        reader.close()
    names = znodes.names("/first_design/consumers/g/offsets/pages")
    assert sorted(names) == ["0-0", "0-1", "1-0", "1-1"]

    reader = Reader(connect)
    try:
        send(connect, last := [f"last-{number}" for number in range(20)])
        reader.wait_for(set(last))
        assert len(reader.seen) == 20
    finally:
        reader.close()


def test_connector_whose_offsets_were_deleted_goes_on_at_the_smallest(znodes):
    """By autooffset.reset; nothing that is there is left out, and nothing hangs."""
    connect = f"{znodes.connect}/first_design"
    settings = SETTINGS | {"log_retention_bytes": 200, "num_partitions": 1}
    with InProcessBroker(**settings, zookeeper_connect=znodes.connect, broker_id=0) as broker:
        send(connect, ["begin"])
        reader = Reader(connect)
        reader.wait_for({"begin"})
        reader.close()
        for number in range(20):
            send(connect, [f"{number}" * 30])
        log = next(iter(broker.broker.named("FirstDesign").logs.logs.values()))
        wait_until(lambda: log.start > 0, "files that are deleted", LIMIT_S)
        reader = Reader(connect)
        try:
            reader.wait_for({"19" * 30})
        finally:
            reader.close()
    assert "begin" not in {text for text, _ in reader.seen}


def test_mirror_reads_from_brokers_of_the_first_design(brokers, znodes):
    """By the consumer's file, as from any old cluster; each message is in the target once."""
    connect = f"{znodes.connect}/first_design"
    send(connect, texts := [f"mirrored-{number}" for number in range(20)], "mirrored")
    settings = {"zk.connect": connect, "groupid": "mirror", "broker.version": "0.7"}
    with InProcessBroker() as centre, ModernProducer(centre.bootstrap_servers) as target:
        source = open_source(settings, Whitelist("mirrored"), 0)
        with MirrorMaker([source], target, SystemClock()) as maker:
            thread = threading.Thread(target=maker.run)
            thread.start()
            copied = centre.wait_for_records("mirrored", 20)
            maker.stop()
            thread.join(LIMIT_S)

    assert sorted(each.value.decode() for each in copied) == sorted(texts)


def test_each_broker_copies_what_it_has_into_a_topic_that_it_leads(znodes):
    """A copy goes on once its broker leads it again; each message is there once."""
    names = [f"pages_of_{number}" for number in (0, 1)]
    made = [
        InProcessBroker(
            **SETTINGS | {"first_design_copied_topics": f"pages:{name}"},
            zookeeper_connect=znodes.connect,
            broker_id=number,
            default_replication_factor=2,
        )
        for number, name in enumerate(names)
    ]
    connect = f"{znodes.connect}/first_design"
    with contextlib.ExitStack() as running:
        for broker in made:
            broker.start()
            running.callback(broker.stop)
        send(connect, first := [f"first-{number}" for number in range(40)])
        admin = running.enter_context(Admin(made[0].bootstrap_servers))
        reader = running.enter_context(
            ModernConsumer(made[0].bootstrap_servers, auto_offset_reset="earliest")
        )
        seen: list[str] = []
        reader.assign([TopicPartition(name, partition) for name in names for partition in (0, 1)])

        def poll() -> None:
            seen.extend(record.value.decode() for record in reader.poll(100))

        wait_until(lambda: len(seen) >= len(first), "the copies", LIMIT_S, meanwhile=poll)
        leaders = {
            name: {each.leader for each in topic.partitions}
            for name, topic in admin.describe_topics(names).items()
        }
        assert leaders == {name: {number} for number, name in enumerate(names)}

        made[1].stop()
        made[1].start()
        send(connect, second := [f"second-{number}" for number in range(40)])
        wait_until(
            lambda: all(
                error is None
                for error in admin.elect_leaders(ElectionType.PREFERRED, None).values()
            ),
            "the brokers to lead what they copy into",
            LIMIT_S,
        )
        wait_until(lambda: len(seen) >= 80, "the copies of both", LIMIT_S, meanwhile=poll)
        assert sorted(seen) == sorted(first + second)
