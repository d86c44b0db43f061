"""Transactions through confluent-kafka, aiokafka and kafka-python against a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaAdminClient, KafkaProducer
from kafka.structs import TopicPartition as KafkaPythonPartition

from ottla import Admin
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

LIMIT_SECONDS = 100
LONGER_THAN_A_RESTART_MS = 600_000
COPIER = Path(__file__).with_name("copier.py")


def create(broker, topic, partitions=1):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT_SECONDS)


def new_producer(broker, transactional_id, **config):
    """A producer that is ready for its first transaction."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "transaction.timeout.ms": LONGER_THAN_A_RESTART_MS,
            **config,
        }
    )
    producer.init_transactions(LIMIT_SECONDS)
    return producer


def send(producer, topic, *values):
    """Send the values and wait until the broker has them, but do not end the transaction."""
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(LIMIT_SECONDS) == 0


def read_all(broker, topic, isolation="read_committed", partitions=1):
    """Every value that a reader of this isolation level comes to see before the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values, at_end = [], set()
    while len(at_end) < partitions:
        message = consumer.poll(LIMIT_SECONDS)
        assert message is not None, "the reader waited in vain"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
        else:
            values.append(message.value().decode())
    consumer.close()
    return values


def end_offset(broker, topic, isolation):
    """The end of partition 0 as a reader of this isolation level sees it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    partition = TopicPartition(topic, 0)
    asked = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation)
    return asked[partition].result(LIMIT_SECONDS).offset


def committed(broker, group, topic):
    """The group's offset in partition 0; -1001 where there is none."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], LIMIT_SECONDS)
    consumer.close()
    return found.offset


def run_with_confluent_kafka(broker, topic):
    producer = new_producer(broker, f"id-{topic}")
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        send(producer, topic, f"{number}-a", f"{number}-b")
        if commit:
            producer.commit_transaction(LIMIT_SECONDS)
        else:
            producer.abort_transaction(LIMIT_SECONDS)


def run_with_kafka_python(broker, topic):
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=f"id-{topic}"
    )
    producer.init_transactions()
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for letter in "ab":
            producer.send(topic, f"{number}-{letter}".encode()).get(LIMIT_SECONDS)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def run_with_aiokafka(broker, topic):
    async def run():
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=f"id-{topic}"
        ) as producer:
            for number, commit in enumerate((True, False, True)):
                await producer.begin_transaction()
                for letter in "ab":
                    await producer.send_and_wait(topic, f"{number}-{letter}".encode())
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(run())


@pytest.fixture(scope="module", params=[0, 2], ids="transaction.version {}".format)
def versioned_broker(request, broker, tmp_path_factory):
    """The shared broker, and one where clients may raise the epoch with each transaction."""
    if not request.param:
        yield broker
        return
    other = BrokerProcess(tmp_path_factory.mktemp("version") / "data").start()
    with Admin(other.bootstrap_servers) as admin:
        admin.update_features({"transaction.version": request.param})
    yield other
    assert other.stop() == 0


@pytest.mark.usefixtures("sockets_left_open")
@pytest.mark.parametrize(
    "run", [run_with_confluent_kafka, run_with_kafka_python, run_with_aiokafka]
)
def test_committed_records_are_read_and_aborted_ones_are_not(versioned_broker, unique, run):
    """Whoever does not ask for committed records alone sees the aborted ones as well."""
    broker, topic = versioned_broker, unique("txn")
    create(broker, topic)
    run(broker, topic)

    assert read_all(broker, topic) == ["0-a", "0-b", "2-a", "2-b"]
    assert read_all(broker, topic, "read_uncommitted") == [
        f"{number}-{letter}" for number in range(3) for letter in "ab"
    ]


def test_open_transaction_holds_back_the_readers_of_committed_records(broker, unique):
    """Records behind it that are in no transaction wait as well; all come in order afterwards."""
    topic = unique("open")
    create(broker, topic)
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer = new_producer(broker, topic)
    send(plain, topic, "before")
    producer.begin_transaction()
    send(producer, topic, "within")
    send(plain, topic, "behind")

    assert read_all(broker, topic) == ["before"]
    assert end_offset(broker, topic, IsolationLevel.READ_COMMITTED) == 1
    assert end_offset(broker, topic, IsolationLevel.READ_UNCOMMITTED) == 3
    producer.commit_transaction(LIMIT_SECONDS)
    assert read_all(broker, topic) == ["before", "within", "behind"]


def test_transaction_spans_partitions_and_topics(broker, unique):
    """All of it or nothing of it."""
    topics = [unique("left"), unique("right")]
    for topic in topics:
        create(broker, topic, partitions=3)
    producer = new_producer(broker, topics[0])
    for commit in (False, True):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(3):
                producer.produce(topic, f"{partition} {commit}", partition=partition)
        assert producer.flush(LIMIT_SECONDS) == 0
        if commit:
            producer.commit_transaction(LIMIT_SECONDS)
        else:
            producer.abort_transaction(LIMIT_SECONDS)

    for topic in topics:
        assert sorted(read_all(broker, topic, partitions=3)) == ["0 True", "1 True", "2 True"]


def test_second_producer_with_the_id_fences_the_first(broker, unique):
    """What the first had begun is aborted, and it can do nothing more."""
    topic = unique("fence")
    create(broker, topic)
    zombie = new_producer(broker, topic)
    zombie.begin_transaction()
    send(zombie, topic, "from the zombie")
    successor = new_producer(broker, topic)
    successor.begin_transaction()
    send(successor, topic, "from the successor")
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(LIMIT_SECONDS)
    successor.commit_transaction(LIMIT_SECONDS)

    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert caught.value.args[0].fatal()
    assert read_all(broker, topic) == ["from the successor"]


def test_offsets_count_with_their_transaction(versioned_broker, unique):
    """An abort leaves the group where it was."""
    broker = versioned_broker
    topic, group = unique("offsets"), unique("copiers")
    create(broker, topic)
    producer = new_producer(broker, group)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    metadata = consumer.consumer_group_metadata()
    for offset, commit in ((5, True), (9, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], metadata, LIMIT_SECONDS
        )
        if commit:
            producer.commit_transaction(LIMIT_SECONDS)
        else:
            producer.abort_transaction(LIMIT_SECONDS)
        assert committed(broker, group, topic) == 5
    consumer.close()


def test_member_of_an_older_generation_cannot_commit_in_a_transaction(broker, unique):
    """Its partitions may be another's by now (KIP-447)."""
    topic, group = unique("stale"), unique("stale-copiers")
    create(broker, topic)
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    consumer = Consumer({**config, "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "an assignment")
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    successor = Consumer({**config, "session.timeout.ms": 6000})
    successor.subscribe([topic])
    wait_until(lambda: successor.poll(0.1) is None and successor.assignment(), "an assignment")
    producer = new_producer(broker, group)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], metadata, LIMIT_SECONDS)
    producer.abort_transaction(LIMIT_SECONDS)
    successor.close()

    assert caught.value.args[0].txn_requires_abort()
    assert committed(broker, group, topic) < 0


@pytest.mark.usefixtures("sockets_left_open")
def test_administrators_see_transactions(broker, unique):
    """Their states, their partitions, and the producers of a partition (KIP-664)."""
    topic = unique("seen")
    create(broker, topic)
    producer = new_producer(broker, topic)
    producer.begin_transaction()
    send(producer, topic, "x")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    described = admin.describe_transactions([topic])[topic]
    listed = str(admin.list_transactions())
    partition = KafkaPythonPartition(topic, 0)
    producers = str(admin.describe_producers([partition]))
    admin.close()
    producer.abort_transaction(LIMIT_SECONDS)

    assert "Ongoing" in str(described)
    assert topic in str(described)
    assert topic in listed
    assert "current_transaction_start_offset=0" in producers


def test_transaction_is_aborted_when_its_time_is_over(start_broker):
    """A producer that is gone holds nobody back for ever; if it comes back, it is fenced."""
    broker = start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=100)
    create(broker, "late")
    producer = new_producer(broker, "late", **{"transaction.timeout.ms": 3000})
    producer.begin_transaction()
    send(producer, "late", "nobody commits this")
    wait_until(lambda: end_offset(broker, "late", IsolationLevel.READ_COMMITTED) == 2, "the marker")
    with pytest.raises(KafkaException):
        producer.commit_transaction(LIMIT_SECONDS)

    assert read_all(broker, "late") == []


def test_open_transaction_goes_on_after_a_crash_of_the_broker(start_broker):
    """What was in it is still in it, and it can be committed."""
    broker = start_broker()
    create(broker, "crash")
    producer = new_producer(broker, "crash")
    producer.begin_transaction()
    send(producer, "crash", "before")
    broker.kill()
    broker.start()
    assert read_all(broker, "crash") == []
    send(producer, "crash", "after")
    producer.commit_transaction(LIMIT_SECONDS)

    assert read_all(broker, "crash") == ["before", "after"]


@pytest.mark.parametrize("commit", [True, False])
def test_decided_transaction_is_finished_after_a_crash(start_broker, commit):
    """The broker dies after the decision is in its log, and before any marker is written."""
    broker = start_broker(transaction_state_log_num_partitions=1)
    create(broker, "decided")
    producer = new_producer(broker, "decided")
    producer.begin_transaction()
    send(producer, "decided", "value")
    broker.kill()
    decide = [sys.executable, str(COPIER.with_name("decide.py")), str(broker.data_dir)]
    subprocess.run([*decide, "commit" if commit else "abort"], check=True)
    broker.start()
    wait_until(
        lambda: end_offset(broker, "decided", IsolationLevel.READ_COMMITTED) == 2, "the marker"
    )

    assert read_all(broker, "decided") == (["value"] if commit else [])


def test_copier_that_is_killed_loses_and_repeats_nothing(start_broker):
    """Another one with the same id goes on where the last transaction ended; so with the broker."""
    broker = start_broker()
    create(broker, "source", partitions=2)
    create(broker, "target", partitions=2)
    values = [f"{number:05d}" for number in range(3000)]
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        plain.produce("source", value, partition=int(value) % 2)
    assert plain.flush(LIMIT_SECONDS) == 0

    for kill_broker in (False, True, False):
        with running_copier(broker) as copier:
            wait_for_lines(copier, 3)
            if kill_broker:
                broker.kill()
                broker.start()
                wait_for_lines(copier, 5)
    with running_copier(broker) as copier:
        assert copier.wait(LIMIT_SECONDS) == 0

    copied = read_all(broker, "target", partitions=2)
    assert sorted(copied) == values
    assert [value for value in copied if int(value) % 2] == values[1::2]


@contextlib.contextmanager
def running_copier(broker):
    """A copier that is killed in the end, in the middle of whatever it is doing."""
    command = [sys.executable, str(COPIER), broker.bootstrap_servers, "source", "target"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copier:
        try:
            yield copier
        finally:
            copier.kill()


def wait_for_lines(copier, count):
    """It prints a line for each transaction, and may end before there are so many."""
    for _ in range(count):
        copier.stdout.readline()
