"""kill -9 and damaged files: what was acknowledged is there after a restart, and only once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT_SECONDS = 60
TOPIC = "crash"
IN_THE_AIR = 500


def create(process, partitions=1, **config):
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=config)])[TOPIC].result(60)


def produce(process, values):
    """Send the values one after another and wait for all acknowledgements."""
    producer = Producer({"bootstrap.servers": process.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
        if len(value) > 100:
            producer.flush(LIMIT_SECONDS)
    assert producer.flush(LIMIT_SECONDS) == 0


def read_all(process, partitions=1):
    """Every value of the topic, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(partitions)])
    values, at_end = [], set()
    while len(at_end) < partitions:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, "the reader waited in vain"
        if message.error() is not None:
            at_end.add(message.partition())
        else:
            values.append(message.value())
    consumer.close()
    return values


def newest_segment(process, suffix=".log"):
    """The newest file of its kind in the topic's only partition."""
    return sorted((Path(process.data_dir) / f"{TOPIC}-0").glob(f"*{suffix}"))[-1]


class Load:
    """A producer in a thread that notes which values were acknowledged; it rides out restarts."""

    def __init__(self, process, **config):
        self.acknowledged = []
        self.enough = threading.Event()
        self.done = threading.Event()
        self.producer = Producer(
            {
                "bootstrap.servers": process.bootstrap_servers,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
                **config,
            }
        )
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        number = 0
        while not self.done.is_set():
            if number - len(self.acknowledged) >= IN_THE_AIR:
                self.producer.poll(0.01)
                continue
            value = f"{number:08d}".encode()
            self.producer.produce(TOPIC, value, partition=0, on_delivery=self.on_delivery)
            number += 1
            self.producer.poll(0)
        self.producer.flush(LIMIT_SECONDS)

    def on_delivery(self, error, message):
        if error is None:
            self.acknowledged.append(message.value())
            if len(self.acknowledged) % 2000 == 0:
                self.enough.set()

    def wait_for_more(self):
        """Wait until some thousands more have been acknowledged."""
        self.enough.clear()
        assert self.enough.wait(LIMIT_SECONDS), "the load stands still"

    def finish(self):
        self.done.set()
        self.thread.join(LIMIT_SECONDS)
        return self.acknowledged


@pytest.mark.parametrize("acks", ["1", "all"])
def test_acknowledged_records_survive_kill_9(start_broker, acks):
    """Killed three times in the middle of producing, no acknowledged record is missing."""
    process = start_broker()
    create(process)
    load = Load(process, acks=acks)
    for _ in range(3):
        load.wait_for_more()
        process.kill()
        process.start()
    acknowledged = load.finish()

    assert set(acknowledged) <= set(read_all(process))


def test_an_idempotent_producer_writes_nothing_twice_over_kill_9(start_broker):
    """With the idempotent producer each acknowledged record is there once, in its order."""
    process = start_broker()
    create(process)
    load = Load(process, **{"enable.idempotence": True})
    for _ in range(3):
        load.wait_for_more()
        process.kill()
        process.start()
    acknowledged = load.finish()
    values = read_all(process)

    assert [value for value, count in Counter(values).items() if count > 1] == []
    assert values == sorted(values)
    assert set(acknowledged) <= set(values)


@pytest.mark.parametrize("cut", [1, 7, 60, 100])
def test_a_torn_tail_is_cut_back_to_whole_batches(start_broker, cut):
    """Bytes cut off the newest segment cost the batches they belonged to, and nothing else."""
    process = start_broker()
    create(process)
    values = [f"{number}".encode() * 40 for number in range(100, 130)]
    produce(process, values)
    process.kill()
    path = newest_segment(process)
    os.truncate(path, path.stat().st_size - cut)

    process.start()

    assert read_all(process) == values[:-1]
    assert f"{TOPIC}-0" in process.log


def test_garbage_after_the_tail_is_cut_off(start_broker):
    """Random bytes behind the last batch are not served, and all batches before them are."""
    process = start_broker()
    create(process)
    values = [f"{number}".encode() * 40 for number in range(100, 130)]
    produce(process, values)
    process.kill()
    with newest_segment(process).open("ab") as file:
        file.write(os.urandom(500))

    process.start()

    assert read_all(process) == values
    produce(process, [b"after"])
    assert read_all(process) == [*values, b"after"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["zeroed", "deleted"])
def test_a_damaged_index_is_rebuilt(start_broker, suffix, damage):
    """An index that is zeroed or gone is made again: every offset is found."""
    process = start_broker()
    create(process, **{"index.interval.bytes": "100"})
    values = [f"{number}".encode() * 40 for number in range(100, 160)]
    produce(process, values)
    process.kill()
    path = newest_segment(process, suffix)
    if damage == "zeroed":
        path.write_bytes(bytes(path.stat().st_size))
    else:
        path.unlink()

    process.start()

    consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "reader"})
    for offset in (0, 17, 59):
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        message = consumer.poll(LIMIT_SECONDS)
        assert (message.offset(), message.value()) == (offset, values[offset])
    consumer.close()


def test_a_clean_stop_needs_no_recovery(start_broker):
    """After SIGTERM the next start trusts the files; offsets and groups are where they were."""
    process = start_broker()
    create(process)
    produce(process, [b"one", b"two"])
    group = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "kept"})
    group.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    group.close()
    assert process.stop() == 0
    assert (Path(process.data_dir) / ".kafka_cleanshutdown").exists()

    process.start()

    assert read_all(process) == [b"one", b"two"]
    group = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "kept"})
    assert group.committed([TopicPartition(TOPIC, 0)], LIMIT_SECONDS)[0].offset == 1
    group.close()


def test_committed_offsets_survive_kill_9(start_broker):
    """A group finds its acknowledged commits after the broker was killed."""
    process = start_broker()
    create(process)
    produce(process, [b"x"] * 20)
    group = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "killed"})
    for offset in (5, 9, 13):
        group.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    group.close()

    process.kill()
    process.start()

    group = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "killed"})
    assert group.committed([TopicPartition(TOPIC, 0)], LIMIT_SECONDS)[0].offset == 13
    group.close()


def test_several_log_dirs_share_the_partitions(start_broker, tmp_path):
    """Partitions spread over the directories, and are found in them again."""
    dirs = [tmp_path / "one", tmp_path / "two"]
    process = start_broker(log_dirs=",".join(map(str, dirs)))
    create(process, partitions=4)
    producer = Producer({"bootstrap.servers": process.bootstrap_servers})
    for index in range(4):
        producer.produce(TOPIC, f"p{index}".encode(), partition=index)
    producer.flush(LIMIT_SECONDS)
    process.kill()
    process.start()

    held = [len(list(folder.glob(f"{TOPIC}-*"))) for folder in dirs]
    assert held == [2, 2]
    assert sorted(read_all(process, 4)) == [b"p0", b"p1", b"p2", b"p3"]
