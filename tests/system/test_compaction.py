"""Compaction in a real broker: of a topic while it is written to, and of the committed offsets."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.record.batch_builder import with_records
from ottla.record.memory_records import batches
from ottla.structs import NO_TIMESTAMP
from ottla.testing import wait_until

LIMIT_SECONDS = 60
TOPIC = "compacted"
EAGER = {
    "log_cleaner_backoff_ms": 50,
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_segment_delete_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_segment_bytes": 4096,
}


def size_of(process, partition: str) -> int:
    """The bytes in the segments of a partition that are in use."""
    files = (Path(process.data_dir) / partition).glob("*.log")
    return sum(size for file in files if (size := size_if_there(file)))


def size_if_there(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # swapped or deleted in this moment
        return 0


def records_of(process, partition: int = 0, **settings: str) -> list[Message]:
    """What librdkafka reads of a partition, from its beginning up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    records: list[Message] = []
    while True:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, "the reader waited in vain"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            offsets = [record.offset() for record in records]
            assert offsets == sorted(set(offsets))
            return records
        records.append(message)


def state_of(process, partition: int = 0) -> dict[bytes, bytes]:
    """What a reader from the beginning makes of a partition."""
    state = {record.key(): record.value() for record in records_of(process, partition)}
    return {key: value for key, value in state.items() if value is not None}


def overwrite(process, partition: int, count: int) -> dict[bytes, bytes]:
    """Update five keys, in many small segments; returns what is left of it."""
    producer = Producer({"bootstrap.servers": process.bootstrap_servers, "linger.ms": 1})
    for number in range(count):
        producer.produce(TOPIC, b"%05d" % number + b"x" * 90, b"%d" % (number % 5), partition)
        if number % 10 == 9:
            assert producer.flush(LIMIT_SECONDS) == 0
    last = range(count - 5, count)
    return {b"%d" % (number % 5): b"%05d" % number + b"x" * 90 for number in last}


def closed_segments(process, partition: int) -> list[Path]:
    """The segments of a partition that are not written to any more, in their order."""
    return sorted((Path(process.data_dir) / f"{TOPIC}-{partition}").glob("*.log"))[:-1]


def leave_empty_batches(paths: list[Path]) -> None:
    """Leave of each segment the header of its last batch, as cleaners of old did."""
    for path in paths:
        *_, last = batches(path.read_bytes())
        path.write_bytes(with_records(last, b"", 0, NO_TIMESTAMP, last.max_timestamp))
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).unlink()


def create_topic(process, partitions: int, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=config)])[TOPIC].result(60)


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


def test_librdkafka_reads_what_is_left_of_many_updates(start_broker):
    """It gave up at the first of many segments that held nothing but the header of a batch."""
    process = start_broker(log_cleaner_enable="false")
    create_topic(process, 1, {"cleanup.policy": "compact", "segment.bytes": "2000"})
    expected = overwrite(process, 0, 1000)
    assert process.stop() == 0
    process = start_broker(process.data_dir, **EAGER)
    wait_until(lambda: size_of(process, f"{TOPIC}-0") < 5000, "the topic is compacted")
    sizes = [path.stat().st_size for path in closed_segments(process, 0)]

    assert state_of(process) == expected
    assert len(records_of(process)) < 40
    assert 61 not in sizes
    assert sizes.count(0) > 20


def test_librdkafka_reads_a_directory_with_empty_batches_in_many_segments(start_broker):
    """As older cleaners left it: up to the records of the last segment, and where there are none.

    Where nothing but such batches is left, the reader comes to the end all the same.
    """
    process = start_broker(log_cleaner_enable="false")
    create_topic(process, 2, {"cleanup.policy": "compact", "segment.bytes": "2000"})
    for partition in (0, 1):
        overwrite(process, partition, 500)
    assert process.stop() == 0
    leave_empty_batches(closed_segments(process, 0))
    leave_empty_batches(sorted((Path(process.data_dir) / f"{TOPIC}-1").glob("*.log")))
    assert len(closed_segments(process, 0)) > 20
    process.start()

    found = records_of(process, 0)
    assert found
    assert found[-1].offset() == 499
    assert records_of(process, 1) == []


def test_librdkafka_reads_past_transactions_that_left_nothing(start_broker):
    """Aborted records go, and later their markers; readers of either isolation come to the end."""
    process = start_broker(**EAGER)
    config = {"cleanup.policy": "compact", "segment.bytes": "2000", "delete.retention.ms": "0"}
    create_topic(process, 1, config)
    producer = Producer(
        {"bootstrap.servers": process.bootstrap_servers, "transactional.id": "copier"}
    )
    producer.init_transactions(LIMIT_SECONDS)
    for turn in range(100):
        producer.begin_transaction()
        producer.produce(TOPIC, b"x" * 200, b"%d" % (turn % 5), 0)
        if turn in (3, 99):
            producer.commit_transaction(LIMIT_SECONDS)
        else:
            producer.flush(LIMIT_SECONDS)
            producer.abort_transaction(LIMIT_SECONDS)
    wait_until(lambda: size_of(process, f"{TOPIC}-0") < 5000, "the topic is compacted")

    committed = records_of(process, isolation_level="read_committed")
    assert [record.key() for record in committed] == [b"3", b"4"]
    everything = records_of(process, isolation_level="read_uncommitted")
    assert {record.offset() for record in everything} >= {record.offset() for record in committed}


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
