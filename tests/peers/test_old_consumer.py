"""Kafka's own consumer of the old kind, from the last version that had it, in a group with ours."""

from __future__ import annotations

import subprocess
import threading

import pytest
from benchmarks.peers.downloads import kafka_jars
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla import Producer
from ottla.clients.legacy import Consumer, StringDecoder
from ottla.testing import wait_until

LIMIT_S = 60
PARTITIONS = 4
COUNT = 200


class Znodes:
    """The nodes of a group, as any ZooKeeper client sees them."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address)
        self.client.start(LIMIT_S)

    def below(self, path: str) -> dict[str, str]:
        """What the children of a node hold."""
        try:
            names = self.client.get_children(path)
            return {name: self.client.get(f"{path}/{name}")[0].decode() for name in names}
        except NoNodeError:
            return {}

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture
def kafka_consumer(tmp_path):
    """Starts `kafka-console-consumer --zookeeper` of Kafka 1.1; it is gone in the end."""
    started = []
    settings = tmp_path / "consumer.properties"
    settings.write_text("group.id=g\nauto.commit.interval.ms=200\n")

    def start(address: str) -> subprocess.Popen:
        command = ["java", "-cp", f"{kafka_jars('1.1')}/*", "kafka.tools.ConsoleConsumer"]
        command += ["--zookeeper", address, "--topic", "pages", "--consumer.config", str(settings)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_kafkas_old_consumer_and_ours_share_a_group(zookeeper, start_broker, kafka_consumer):
    """Each has half of the partitions, each record is read once, and ours takes over in the end."""
    address = f"{zookeeper.connect}/old-consumer/kafka"
    broker = start_broker(zookeeper_connect=address, num_partitions=PARTITIONS)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("pages", b"first", partition=0).result(LIMIT_S)
    znodes = Znodes(address)
    settings = {"zk.connect": address, "groupid": "g", "autocommit.interval.ms": 200}
    read = []
    with Consumer.create(settings) as connector:
        (stream,) = connector.create_message_streams({"pages": 1}, StringDecoder())["pages"]
        assert next(stream).message == "first"
        reader = threading.Thread(target=lambda: read.extend(m.message for m in stream))
        reader.start()
        other = kafka_consumer(address)
        wait_until(
            lambda: len(set(znodes.below("/consumers/g/owners/pages").values())) == 2,
            "both own partitions",
        )
        wait_until(
            lambda: len(znodes.below("/consumers/g/owners/pages")) == PARTITIONS,
            "each partition has an owner",
        )

        with Producer(broker.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send("pages", b"v%d" % number, partition=number % PARTITIONS)
        end = COUNT // PARTITIONS
        expected = {str(p): str(end + (p == 0)) for p in range(PARTITIONS)}
        wait_until(
            lambda: znodes.below("/consumers/g/offsets/pages") == expected, "all is committed"
        )
        other.terminate()
        theirs = other.communicate(timeout=LIMIT_S)[0].split()
        mine = f"{connector.consumer_id}-0"
        wait_until(
            lambda: list(znodes.below("/consumers/g/owners/pages").values()) == [mine] * PARTITIONS,
            "the one that stays owns all",
        )
    reader.join(LIMIT_S)
    znodes.close()

    assert len(read) == len(theirs) == COUNT // 2
    assert {*read, *theirs} == {f"v{n}" for n in range(COUNT)}
