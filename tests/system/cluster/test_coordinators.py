"""Groups and transactions outlive the brokers that coordinate them."""

from __future__ import annotations

import threading

from cluster_load import LIMIT_S, QUIET, SteadyLoad, read_numbers
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from coordinator_places import OFFSETS, TRANSACTIONS, coordinator

from ottla.testing import wait_until


def poll_numbers(consumer: Consumer, count: int) -> list[int]:
    """The next numbers of the group, at least so many."""
    numbers: list[int] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            numbers.append(int(message.value()))

    wait_until(
        lambda: len(numbers) >= count, f"{count} records", seen=lambda: numbers, meanwhile=poll
    )
    return numbers


def test_group_goes_on_with_another_coordinator(cluster, view, unique):
    """Its committed offsets are there, and none of its records is lost or read twice."""
    topic, group = unique("grouped"), unique("group")
    view.create(topic, partitions=1)
    with SteadyLoad(cluster.bootstrap_servers, topic, partitions=1) as load:
        load.until_more(300)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    first = poll_numbers(consumer, 100)
    consumer.commit(asynchronous=False)
    dead = coordinator(view, OFFSETS, group)
    cluster.kill_broker(dead)
    wait_until(lambda: coordinator(view, OFFSETS, group) not in (dead, -1), "another coordinator")
    rest = poll_numbers(consumer, len(load.acknowledged[0]) - len(first))
    wait_until(lambda: committed(consumer), "the offsets are committed")
    consumer.close()

    assert first + rest == load.acknowledged[0]
    load.check()


def committed(consumer: Consumer) -> bool:
    """Whether a commit gets through."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


def test_transactions_go_on_with_another_coordinator(cluster, view, unique):
    """What was committed is read, what was aborted is not, before and after."""
    topic, transactional_id = unique("transacted"), unique("id")
    view.create(topic)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            **QUIET,
        }
    )
    producer.init_transactions(LIMIT_S)
    for number in range(10):
        if number == 5:
            dead = coordinator(view, TRANSACTIONS, transactional_id)
            cluster.kill_broker(dead)
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, str(number).encode(), partition=partition)
        if number % 3 == 2:
            producer.abort_transaction(LIMIT_S)
        else:
            producer.commit_transaction(LIMIT_S)

    committed = [number for number in range(10) if number % 3 != 2]
    for partition in range(3):
        read = read_numbers(
            cluster.bootstrap_servers,
            topic,
            partition,
            len(committed),
            **{"isolation.level": "read_committed"},
        )
        assert read == committed


def test_offsets_of_a_transaction_do_not_wait_for_a_dead_coordinator(cluster, view, unique):
    """librdkafka's send_offsets_to_transaction ends, where it closes idle connections.

    Without that setting it waits for a broker that its metadata have dropped: minutes.
    """
    topic, group = unique("offsets"), unique("group")
    view.create(topic, partitions=1)
    client = {"bootstrap.servers": cluster.bootstrap_servers, **QUIET}
    consumer = Consumer({**client, "group.id": group})
    producer = Producer({**client, "transactional.id": group, "connections.max.idle.ms": 1000})
    producer.init_transactions(LIMIT_S)

    def copy_one(offset: int) -> None:
        offsets = [TopicPartition(topic, 0, offset)]
        membership = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, membership, LIMIT_S)
        producer.commit_transaction(LIMIT_S)

    producer.begin_transaction()
    copy_one(1)
    producer.begin_transaction()
    dead = coordinator(view, OFFSETS, group)
    cluster.kill_broker(dead)
    wait_until(lambda: has_dropped(producer, dead), "the producer's metadata drop the broker")
    second = threading.Thread(target=copy_one, args=[2], daemon=True)
    second.start()
    second.join(LIMIT_S)

    assert not second.is_alive(), "send_offsets_to_transaction hangs"
    assert consumer.committed([TopicPartition(topic, 0)], LIMIT_S)[0].offset == 2
    consumer.close()


def has_dropped(producer: Producer, broker_id: int) -> bool:
    """Whether the metadata that a producer reads now are without a broker."""
    try:
        return broker_id not in producer.list_topics(timeout=LIMIT_S).brokers
    except KafkaException:  # it has asked the dead one
        return False
