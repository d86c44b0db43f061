"""kafka-python against a real broker."""

from __future__ import annotations

import threading

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import TopicAlreadyExistsError
from records import CODECS, COUNT, PARTITIONS, Sent, assert_same, records, shared_out

from ottla.testing import wait_until

LIMIT_SECONDS = 100

pytestmark = pytest.mark.usefixtures("sockets_left_open")


def produce(broker, topic, batch, **config):
    """Send the records and wait for every acknowledgement."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", **config)
    futures = [
        producer.send(topic, record.value, key=record.key, headers=list(record.headers))
        for record in batch
    ]
    producer.flush(LIMIT_SECONDS)
    for future in futures:
        future.get(LIMIT_SECONDS)
    producer.close()


def member(broker, group, topic):
    """A consumer that belongs to the group."""
    return KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,  # after which a member hears that another one joins
    )


def read(consumers, count):
    """Poll the members in turn until so many records have come."""
    received = []

    def poll():
        for consumer in consumers:
            received.extend(polled(consumer))

    wait_until(
        lambda: len(received) >= count,
        f"{count} records",
        LIMIT_SECONDS,
        seen=lambda: len(received),
        meanwhile=poll,
    )
    return received


def polled(consumer):
    """The records of one poll."""
    return [
        Sent(record.key, record.value, tuple(record.headers))
        for batch in consumer.poll(100).values()
        for record in batch
    ]


class Member(threading.Thread):
    """A member of a group in a thread of its own: its poll blocks while the others must join."""

    def __init__(self, broker, group, topic, received):
        super().__init__()
        self.consumer = member(broker, group, topic)
        self.received = received
        self.share = set()
        self.done = threading.Event()
        self.start()

    def run(self):
        while not self.done.is_set():
            self.received += polled(self.consumer)
            self.share = self.consumer.assignment()
        self.consumer.close()


@pytest.fixture
def admin(broker):
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def topic(admin, unique):
    name = unique("kafka-python")
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_through_a_group_of_two(broker, topic, codec):
    """A thousand keyed records with headers in each codec, shared by two members, in key order."""
    received: list[Sent] = []
    members = [Member(broker, topic, topic, received) for _ in range(2)]
    wait_until(
        lambda: shared_out([thread.share for thread in members]), "the members share no partitions"
    )

    produce(broker, topic, records(codec), compression_type=None if codec == "none" else codec)
    wait_until(lambda: len(received) >= COUNT, "the members have read everything")
    for thread in members:
        thread.done.set()
    for thread in members:
        thread.join(LIMIT_SECONDS)

    assert_same(records(codec), received)


def test_a_group_resumes_where_it_committed(broker, topic):
    """What was committed is not read again, and the rest is."""
    produce(broker, topic, records("first"))
    first = member(broker, topic, topic)
    assert len(read([first], COUNT)) == COUNT
    first.commit()
    first.close()
    produce(broker, topic, records("second"))

    second = member(broker, topic, topic)
    received = read([second], COUNT)
    second.close()

    assert_same(records("second"), received)


def test_an_idempotent_producer_writes_each_record_once(broker, topic):
    """With idempotence on, the sequence numbers are accepted and nothing is there twice."""
    produce(broker, topic, records("once"), enable_idempotence=True)

    consumer = member(broker, topic, topic)
    received = read([consumer], COUNT)
    assert polled(consumer) == []
    consumer.close()

    assert_same(records("once"), received)


def test_admin_creates_describes_and_deletes_topics(broker, admin, unique):
    """Topics, more partitions, a description, deletion: and errors by name."""
    name = unique("kafka-python-admin")
    admin.create_topics([NewTopic(name, 2, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 2, 1)])
    admin.create_partitions({name: 5})

    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 5
    assert name in admin.list_topics()

    admin.delete_topics([name])
    assert name not in admin.list_topics()


def test_admin_reads_and_changes_configs(broker, admin, topic):
    """A topic's setting is changed and read back."""
    admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7200000"})]
    )

    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])

    assert "7200000" in repr(described)


def test_admin_lists_describes_and_deletes_groups(broker, admin, topic):
    """A group is seen with its offsets and is deleted when it is empty."""
    produce(broker, topic, records("group"))
    consumer = member(broker, topic, topic)
    read([consumer], COUNT)
    consumer.commit()
    consumer.close()

    assert topic in repr(admin.list_groups())
    offsets = admin.list_group_offsets([topic])
    assert topic in repr(admin.describe_groups([topic]))
    assert "offset=" in repr(offsets)
    admin.delete_groups([topic])
    assert topic not in repr(admin.list_groups())
