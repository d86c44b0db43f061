"""A broker with two log directories, one of which fails: the other one lives on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT_SECONDS = 20
TOPIC = "spread"
# How soon a directory is written to, for whatever reason, and so how soon it is missed.
SOON = {"replica_high_watermark_checkpoint_interval_ms": 100}


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def broker(start_broker, dirs):
    process = start_broker(log_dirs=",".join(map(str, dirs)), **SOON)
    create(process, TOPIC, 4)
    produce(process, TOPIC, range(4))
    return process


def create(process, topic, partitions):
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT_SECONDS)


def produce(process, topic, partitions):
    """One record to each partition, its number; returns the errors by partition."""
    errors = {}
    producer = Producer(
        {"bootstrap.servers": process.bootstrap_servers, "message.timeout.ms": 3_000}
    )
    for index in partitions:
        producer.produce(
            topic,
            f"{index}".encode(),
            partition=index,
            on_delivery=lambda error, message: errors.update({message.partition(): error}),
        )
    producer.flush(LIMIT_SECONDS)
    return errors


def held(folder):
    """The topic's partitions in a directory."""
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{TOPIC}-*"))


def destroy(process, folder):
    """What was a directory is a file now: every path below it is an error, to root as well.

    The records that follow go to files that have no name; their high watermark cannot be noted.
    """
    partitions = held(folder)
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    produce(process, TOPIC, partitions)


def until(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"


def leaders(process):
    """The leader of each partition of the topic, as Metadata tells it."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    metadata = admin.list_topics(TOPIC, LIMIT_SECONDS).topics[TOPIC].partitions
    return {index: partition.leader for index, partition in metadata.items()}


def first_value(process, index):
    consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, index, 0)])
    message = consumer.poll(LIMIT_SECONDS)
    consumer.close()
    return message.value()


def test_the_partitions_of_a_failed_directory_are_offline_and_the_others_live(broker, dirs):
    """No leader and a storage error for the lost half; reads, writes, new topics for the other."""
    lost, kept = held(dirs[1]), held(dirs[0])
    assert (len(lost), len(kept)) == (2, 2)

    destroy(broker, dirs[1])
    until(lambda: leaders(broker) == dict.fromkeys(lost, -1) | dict.fromkeys(kept, 0))

    assert [first_value(broker, index) for index in kept] == [b"%d" % index for index in kept]
    assert set(produce(broker, TOPIC, kept).values()) == {None}
    assert all(produce(broker, TOPIC, lost).values())
    create(broker, "later", 2)
    assert set(produce(broker, "later", range(2)).values()) == {None}
    assert len(list(dirs[0].glob("later-*"))) == 2
    assert broker.stop() == 0


def test_a_repaired_directory_serves_its_partitions_after_the_next_start(broker, dirs, tmp_path):
    """At a start without the directory they are offline, not empty; with it they are back."""
    lost = held(dirs[1])
    broker.stop()
    dirs[1].rename(tmp_path / "saved")
    dirs[1].write_bytes(b"")

    broker.start()

    assert f"{dirs[1]} is offline" in broker.log
    assert {index for index, leader in leaders(broker).items() if leader == -1} == set(lost)
    assert not set(held(dirs[0])) & set(lost)
    broker.stop()
    dirs[1].unlink()
    (tmp_path / "saved").rename(dirs[1])

    broker.start()

    assert set(leaders(broker).values()) == {0}
    assert first_value(broker, lost[0]) == b"%d" % lost[0]


def test_a_broker_without_log_directories_stops(start_broker, tmp_path):
    """When the last one has failed the broker says so and ends with status 1."""
    folder = Path(tmp_path / "only")
    process = start_broker(log_dirs=str(folder), **SOON)
    create(process, TOPIC, 1)

    destroy(process, folder)

    assert process.process.wait(LIMIT_SECONDS) == 1
    assert f"The broker stops: every log directory has failed: {folder}" in process.log


def test_the_directories_are_described(broker, dirs):
    """Sizes of what is in them, and after a failure the error; in Kafka's JSON."""
    words = ("log-dirs", "--bootstrap-server", broker.bootstrap_servers, "--describe")
    command = [sys.executable, "-m", "ottla", *words, "--topic-list", TOPIC]

    def describe():
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])["brokers"][0]["logDirs"]

    sound = describe()
    assert [row["logDir"] for row in sound] == [str(folder) for folder in dirs]
    assert [len(row["partitions"]) for row in sound] == [2, 2]
    for row in (row for each in sound for row in each["partitions"]):
        assert row["size"] > 0
        assert (row["offsetLag"], row["isFuture"]) == (0, False)

    destroy(broker, dirs[1])
    until(lambda: -1 in leaders(broker).values())

    assert describe()[1] == {
        "logDir": str(dirs[1]),
        "error": "KAFKA_STORAGE_ERROR",
        "partitions": [],
    }
