"""Compaction in a real broker: of a topic while it is written to, and of the committed offsets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

LIMIT_SECONDS = 60
TOPIC = "compacted"
EAGER = {
    "log_cleaner_backoff_ms": 50,
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_segment_delete_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_segment_bytes": 4096,
}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll for what the broker does on its own."""
    pause = threading.Event()
    for _ in range(LIMIT_SECONDS * 20):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail(f"it did not come to this: {what}")


def size_of(process, partition: str) -> int:
    """The bytes in the segments of a partition that are in use."""
    files = (Path(process.data_dir) / partition).glob("*.log")
    return sum(size for file in files if (size := size_if_there(file)))


def size_if_there(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # swapped or deleted in this moment
        return 0


def state_of(process) -> dict[bytes, bytes]:
    """What a reader from the beginning makes of the topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    state: dict[bytes, bytes] = {}
    offset = -1
    while True:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, "the reader waited in vain"
        if message.error() is not None:
            consumer.close()
            return {key: value for key, value in state.items() if value is not None}
        assert message.offset() > offset
        offset = message.offset()
        state[message.key()] = message.value()


def create_topic(process, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=config)])[TOPIC].result(30)


def test_topic_is_compacted_while_it_is_written_to_and_survives_a_kill(start_broker):
    """Readers see the last value of each key, before and after kill -9 in the middle of it."""
    process = start_broker(**EAGER)
    create_topic(process, 1, {"cleanup.policy": "compact", "segment.bytes": "20000"})
    producer = Producer(
        {"bootstrap.servers": process.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
    )
    expected: dict[bytes, bytes] = {}
    for turn in range(50):
        for number in range(100):
            key = b"key-%d" % (number * (turn + 1) % 37)
            value = None if number % 23 == 5 else b"%d-%d" % (turn, number)
            producer.produce(TOPIC, value, key, 0)
            expected[key] = value
        assert producer.flush(LIMIT_SECONDS) == 0
        if turn % 20 == 19:
            process.kill()
            process.start()
    expected = {key: value for key, value in expected.items() if value is not None}

    assert state_of(process) == expected
    wait_until(lambda: size_of(process, f"{TOPIC}-0") < 60_000, "the topic is compacted")
    assert state_of(process) == expected


def test_committed_offsets_are_compacted(start_broker):
    """A thousand commits leave a few, and the last one is there after a restart."""
    process = start_broker(**EAGER)
    create_topic(process, 2, {})
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "group.id": "committer",
            "enable.auto.commit": False,
        }
    )
    commits = 1000
    for offset in range(commits):
        committed = [TopicPartition(TOPIC, 0, offset), TopicPartition(TOPIC, 1, offset)]
        consumer.commit(offsets=committed, asynchronous=False)
    wait_until(
        lambda: size_of(process, "__consumer_offsets-0") < 3 * 4096, "the offsets are compacted"
    )
    process.kill()
    process.start()

    found = consumer.committed(
        [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)], timeout=LIMIT_SECONDS
    )
    consumer.close()
    assert [partition.offset for partition in found] == [commits - 1] * 2
