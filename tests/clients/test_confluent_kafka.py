"""librdkafka, through confluent-kafka, against a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from records import CODECS, COUNT, PARTITIONS, Sent, assert_same, records, shared_out

from ottla.testing import wait_until

LIMIT_SECONDS = 100


def produce(broker, topic, batch, **config):
    """Send the records and wait for every acknowledgement."""
    failures = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", **config})
    for record in batch:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not failures


def member(broker, group, topic, revoked=None, **config):
    """A consumer that belongs to the group; what is taken from it is added to `revoked`."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,  # after which a member hears that another one joins
            **config,
        }
    )
    told = [] if revoked is None else revoked
    consumer.subscribe([topic], on_revoke=lambda _, partitions: told.extend(partitions))
    return consumer


def read(consumers, count):
    """Poll the members in turn until so many records have come."""
    received = []
    poll_until(lambda: len(received) >= count, f"{count} records", consumers, received)
    return received


def poll_until(condition, what, consumers, received):
    """Poll the members in turn, and keep what comes, until the condition holds."""

    def poll():
        for consumer in consumers:
            for message in consumer.consume(500, 0.05):
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                received.append(Sent(message.key(), message.value(), headers))

    def seen():
        return len(received), [consumer.assignment() for consumer in consumers]

    wait_until(condition, what, LIMIT_SECONDS, seen=seen, meanwhile=poll)


def wait_for_both(consumers):
    """Poll until the members share the partitions; returns what came meanwhile."""
    received = []
    poll_until(
        lambda: shared_out([consumer.assignment() for consumer in consumers]),
        "the group shares its partitions",
        consumers,
        received,
    )
    return received


@pytest.fixture
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def topic(admin, unique):
    name = unique("confluent")
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_through_a_group_of_two(broker, topic, codec):
    """A thousand keyed records with headers in each codec, shared by two members, in key order."""
    members = [member(broker, topic, topic), member(broker, topic, topic)]
    early = wait_for_both(members)

    produce(broker, topic, records(codec), **{"compression.type": codec})
    received = early + read(members, COUNT - len(early))
    for consumer in members:
        consumer.close()

    assert_same(records(codec), received)


def test_a_group_resumes_where_it_committed(broker, topic):
    """What was committed is not read again, and the rest is."""
    produce(broker, topic, records("first"))
    first = member(broker, topic, topic)
    assert len(read([first], COUNT)) == COUNT
    first.commit(asynchronous=False)
    first.close()
    produce(broker, topic, records("second"))

    second = member(broker, topic, topic)
    received = read([second], COUNT)
    second.close()

    assert_same(records("second"), received)


def test_an_idempotent_producer_writes_each_record_once(broker, topic):
    """With idempotence on, the sequence numbers are accepted and nothing is there twice."""
    produce(broker, topic, records("once"), **{"enable.idempotence": True})

    consumer = member(broker, topic, topic)
    received = read([consumer], COUNT)
    assert consumer.consume(1, 0.5) == []
    consumer.close()

    assert_same(records("once"), received)


def test_static_members_come_back_without_a_rebalance(broker, topic):
    """A static member that returns gets its partitions back, and no other member loses any."""
    revoked = []
    first = member(broker, topic, topic, **{"group.instance.id": "one"})
    second = member(broker, topic, topic, revoked, **{"group.instance.id": "two"})
    wait_for_both([first, second])
    before = second.assignment()
    kept = first.assignment()
    revoked.clear()
    first.close()

    again = member(broker, topic, topic, **{"group.instance.id": "one"})
    wait_for_both([again, second])

    assert sorted(again.assignment()) == sorted(kept)
    assert sorted(second.assignment()) == sorted(before)
    assert revoked == []
    again.close()
    second.close()


def test_admin_creates_describes_and_deletes_topics(broker, admin, unique):
    """Topics with configs, more partitions, a description, deletion: and errors by name."""
    name = unique("admin")
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "3600000"})])[name].result(60)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(60)

    metadata = admin.list_topics(name, timeout=120)
    assert len(metadata.topics[name].partitions) == 5
    assert admin.describe_cluster().result(60).cluster_id == metadata.cluster_id

    admin.delete_topics([name])[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics


def test_admin_reads_and_changes_configs(broker, admin, topic):
    """A topic's setting is changed alone, and read back with its source."""
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    next(iter(admin.incremental_alter_configs([resource]).values())).result(60)

    wanted = ConfigResource(ResourceType.TOPIC, topic)
    configs = next(iter(admin.describe_configs([wanted]).values())).result(60)
    assert configs["retention.ms"].value == "7200000"
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].is_default
    broker_configs = ConfigResource(ResourceType.BROKER, "0")
    described = next(iter(admin.describe_configs([broker_configs]).values())).result(60)
    assert described["log.segment.bytes"].value == "1073741824"


def test_topic_without_a_cleanup_policy(admin, unique):
    """Created so, or with the last policy taken away, as in Kafka; described as an empty value."""
    topics = [unique("kept"), unique("taken")]
    created = [NewTopic(topics[0], 1, 1, config={"cleanup.policy": ""}), NewTopic(topics[1], 1, 1)]
    for future in admin.create_topics(created).values():
        future.result(60)
    less = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT)
    resource = ConfigResource(ResourceType.TOPIC, topics[1], incremental_configs=[less])
    next(iter(admin.incremental_alter_configs([resource]).values())).result(60)

    for topic in topics:
        wanted = ConfigResource(ResourceType.TOPIC, topic)
        configs = next(iter(admin.describe_configs([wanted]).values())).result(60)
        assert configs["cleanup.policy"].value == ""
        assert not configs["cleanup.policy"].is_default


def test_admin_lists_describes_and_deletes_groups(broker, admin, topic):
    """A group is seen with its members, its offsets are read and altered, and it is deleted."""
    produce(broker, topic, records("group"))
    consumer = member(broker, topic, topic, **{"client.id": "watched"})
    read([consumer], COUNT)
    consumer.commit(asynchronous=False)

    listed = {group.group_id for group in admin.list_consumer_groups().result(60).valid}
    described = admin.describe_consumer_groups([topic])[topic].result(60)
    assert topic in listed
    assert [entry.client_id for entry in described.members] == ["watched"]
    consumer.close()

    wanted = [ConsumerGroupTopicPartitions(topic)]
    offsets = admin.list_consumer_group_offsets(wanted)[topic].result(60)
    assert sum(entry.offset for entry in offsets.topic_partitions) == COUNT
    changed = [ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 1)])]
    admin.alter_consumer_group_offsets(changed)[topic].result(60)
    offsets = admin.list_consumer_group_offsets(wanted)[topic].result(60)
    assert {entry.partition: entry.offset for entry in offsets.topic_partitions}[0] == 1
    admin.delete_consumer_groups([topic])[topic].result(60)


def test_admin_looks_offsets_up_and_deletes_records(broker, admin, topic):
    """Offsets at both ends, and a log start that moves up when records are deleted."""
    produce(broker, topic, records("ends"))
    partition = TopicPartition(topic, 0)
    end = admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(60).offset

    deleted = admin.delete_records([TopicPartition(topic, 0, 10)])
    assert next(iter(deleted.values())).result(60).low_watermark == 10
    start = admin.list_offsets({partition: OffsetSpec.earliest()})[partition].result(60).offset

    assert (start, end > 10) == (10, True)
