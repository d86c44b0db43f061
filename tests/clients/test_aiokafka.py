"""aiokafka against a real broker."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError
from records import CODECS, COUNT, PARTITIONS, Sent, assert_same, records, shared_out

from ottla.testing import wait_until_async

LIMIT_SECONDS = 100


async def produce(broker, topic, batch, **config):
    """Send the records and wait for every acknowledgement."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", **config
    ) as producer:
        futures = [
            await producer.send(topic, record.value, key=record.key, headers=list(record.headers))
            for record in batch
        ]
        await asyncio.gather(*futures)


def member(broker, group, topic):
    """A consumer that belongs to the group."""
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,  # after which a member hears that another one joins
    )


async def read(consumers, count):
    """Poll the members in turn until so many records have come."""
    received = []
    await poll_until(lambda: len(received) >= count, f"{count} records", consumers, received)
    return received


async def poll_until(condition, what, consumers, received):
    """Poll the members in turn, and keep what comes, until the condition holds."""

    async def poll():
        for consumer in consumers:
            received.extend(await polled(consumer))

    await wait_until_async(
        condition, what, LIMIT_SECONDS, seen=lambda: len(received), meanwhile=poll
    )


async def polled(consumer):
    """The records of one poll."""
    batches = await consumer.getmany(timeout_ms=100)
    return [
        Sent(record.key, record.value, tuple(record.headers))
        for batch in batches.values()
        for record in batch
    ]


async def wait_for_both(consumers):
    """Poll until the members share the partitions; returns what came meanwhile."""
    received = []
    await poll_until(
        lambda: shared_out([consumer.assignment() for consumer in consumers]),
        "the group shares its partitions",
        consumers,
        received,
    )
    return received


async def create(broker, topic, partitions=PARTITIONS):
    """Create a topic through the admin client."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_through_a_group_of_two(broker, unique, codec):
    """A thousand keyed records with headers in each codec, shared by two members, in key order."""
    topic = unique("aiokafka")

    async def scenario():
        await create(broker, topic)
        members = [member(broker, topic, topic), member(broker, topic, topic)]
        for consumer in members:
            await consumer.start()
        early = await wait_for_both(members)
        compression = None if codec == "none" else codec
        await produce(broker, topic, records(codec), compression_type=compression)
        received = early + await read(members, COUNT - len(early))
        for consumer in members:
            await consumer.stop()
        return received

    assert_same(records(codec), asyncio.run(scenario()))


def test_a_group_resumes_where_it_committed(broker, unique):
    """What was committed is not read again, and the rest is."""
    topic = unique("aiokafka")

    async def scenario():
        await create(broker, topic)
        await produce(broker, topic, records("first"))
        async with member(broker, topic, topic) as first:
            assert len(await read([first], COUNT)) == COUNT
            await first.commit()
        await produce(broker, topic, records("second"))
        async with member(broker, topic, topic) as second:
            return await read([second], COUNT)

    assert_same(records("second"), asyncio.run(scenario()))


def test_an_idempotent_producer_writes_each_record_once(broker, unique):
    """With idempotence on, the sequence numbers are accepted and nothing is there twice."""
    topic = unique("aiokafka")

    async def scenario():
        await create(broker, topic)
        await produce(broker, topic, records("once"), enable_idempotence=True)
        async with member(broker, topic, topic) as consumer:
            received = await read([consumer], COUNT)
            assert await polled(consumer) == []
            return received

    assert_same(records("once"), asyncio.run(scenario()))


def test_admin_manages_topics_configs_and_groups(broker, unique):
    """The admin calls: topics, partitions, configs, groups and their offsets."""
    topic = unique("aiokafka-admin")

    async def scenario():
        await create(broker, topic, 2)
        with pytest.raises(TopicAlreadyExistsError):
            await create_again(broker, topic)
        await produce(broker, topic, records("admin"))
        async with member(broker, topic, topic) as consumer:
            await read([consumer], COUNT)
            await consumer.commit()
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        await admin.create_partitions({topic: NewPartitions(5)})
        (described,) = await admin.describe_topics([topic])
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        configs = await admin.describe_configs([resource])
        groups = await admin.list_consumer_groups()
        offsets = await admin.list_consumer_group_offsets(topic)
        await admin.delete_topics([topic])
        names = await admin.list_topics()
        await admin.close()
        return described, configs, groups, offsets, names

    described, configs, groups, offsets, names = asyncio.run(scenario())

    assert len(described["partitions"]) == 5
    assert "retention.ms" in repr(configs)
    assert topic in {group for group, _ in groups}
    assert sum(entry.offset for entry in offsets.values()) == COUNT
    assert topic not in names


async def create_again(broker, topic):
    """Ask for a topic that is there, and raise the error that the answer names."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        response = await admin.create_topics([NewTopic(topic, 2, 1)])
    finally:
        await admin.close()
    for _, code, *_ in response.topic_errors:
        if code == TopicAlreadyExistsError.errno:
            raise TopicAlreadyExistsError
