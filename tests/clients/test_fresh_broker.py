"""Each client against a broker of its own, in the test's process: groups and transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import ottla
from ottla.structs import TopicPartition
from ottla.testing import InProcessBroker, wait_until, wait_until_async

VALUES = [b"1", b"2", b"3", b"4"]
BOTH = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
def broker(ottla_fresh_broker) -> InProcessBroker:
    """A broker with an empty topic of two partitions."""
    ottla_fresh_broker.create_topic("t", partitions=2)
    return ottla_fresh_broker


class ConfluentKafka:
    """librdkafka."""

    def __init__(self, servers: str) -> None:
        self.settings = {"bootstrap.servers": servers, "log_level": 0}

    def send(self, transactional_id: str | None = None, *, commits: bool = True) -> None:
        settings = {} if transactional_id is None else {"transactional.id": transactional_id}
        producer = confluent_kafka.Producer({**self.settings, **settings, "linger.ms": 0})
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for index, value in enumerate(VALUES):
            producer.produce("t", value, partition=index % 2)
        assert producer.flush(60) == 0
        if transactional_id is not None:
            producer.commit_transaction() if commits else producer.abort_transaction()

    @contextmanager
    def member(self) -> Iterator[Callable[[], list[bytes]]]:
        settings = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50}
        consumer = confluent_kafka.Consumer({**self.settings, **settings})
        consumer.subscribe(["t"])

        def poll() -> list[bytes]:
            found = [message for message in consumer.consume(10, 0.02) if not message.error()]
            if found:
                consumer.commit(asynchronous=False)
            return [message.value() for message in found]

        yield poll
        consumer.close()


class KafkaPython:
    """kafka-python."""

    def __init__(self, servers: str) -> None:
        self.settings = {"bootstrap_servers": servers}

    def send(self, transactional_id: str | None = None, *, commits: bool = True) -> None:
        producer = kafka.KafkaProducer(**self.settings, transactional_id=transactional_id)
        if transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        sent = [producer.send("t", value, partition=i % 2) for i, value in enumerate(VALUES)]
        producer.flush()
        assert all(future.succeeded() for future in sent)
        if transactional_id is not None:
            producer.commit_transaction() if commits else producer.abort_transaction()
        producer.close()

    @contextmanager
    def member(self) -> Iterator[Callable[[], list[bytes]]]:
        settings = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50}
        consumer = kafka.KafkaConsumer("t", **self.settings, **settings)

        def poll() -> list[bytes]:
            found = [record for records in consumer.poll(20).values() for record in records]
            if found:
                consumer.commit()
            return [record.value for record in found]

        yield poll
        consumer.close()


class Ottla:
    """Our own."""

    protocol = "classic"

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def send(self, transactional_id: str | None = None, *, commits: bool = True) -> None:
        settings = {} if transactional_id is None else {"transactional_id": transactional_id}
        with ottla.Producer(self.servers, **settings) as producer:
            if transactional_id is not None:
                producer.init_transactions()
                producer.begin_transaction()
            for index, value in enumerate(VALUES):
                producer.send("t", value, partition=index % 2)
            producer.flush()
            if transactional_id is not None:
                producer.commit_transaction() if commits else producer.abort_transaction()

    @contextmanager
    def member(self) -> Iterator[Callable[[], list[bytes]]]:
        settings: dict[str, Any] = {"group_protocol": self.protocol, "group_id": "g"}
        if self.protocol == "classic":
            settings["heartbeat_interval_ms"] = 50
        with ottla.Consumer(
            self.servers, topics=["t"], auto_offset_reset="earliest", **settings
        ) as consumer:

            def poll() -> list[bytes]:
                found = consumer.poll(timeout_ms=20)
                if found:
                    consumer.commit()
                return [record.value for record in found]

            yield poll


class OttlaByTheConsumerProtocol(Ottla):
    """Our own, as a member of the newer protocol (KIP-848)."""

    protocol = "consumer"


CLIENTS = [ConfluentKafka, KafkaPython, Ottla, OttlaByTheConsumerProtocol]
IN_A_GROUP = pytest.mark.ottla_settings(
    group_consumer_heartbeat_interval_ms=50,
    group_consumer_min_heartbeat_interval_ms=50,
    # kafka-python may divide a topic before it has its metadata, and then reads nothing of it.
    group_initial_rebalance_delay_ms=300,
)


@IN_A_GROUP
@pytest.mark.usefixtures("sockets_left_open")
@pytest.mark.parametrize("client_class", CLIENTS)
def test_two_members_share_a_topic(broker, client_class):
    """Each has a partition; together they read and commit all; the one that stays gets both."""
    client = client_class(broker.bootstrap_servers)
    read: list[bytes] = []
    with reading(client, read):
        with reading(client, read):
            wait_until(lambda: shares(broker) == [1, 1], "a partition for each")
            client.send()
            wait_until(lambda: len(read) >= len(VALUES), "all records")
            broker.wait_until_consumed("g", "t")
        wait_until(lambda: shares(broker) == [2], "both partitions")

    assert sorted(read) == VALUES
    assert sum(broker.committed("g").values()) == len(VALUES)


@contextmanager
def reading(client: Any, read: list[bytes]) -> Iterator[None]:
    """A member in a thread of its own: some clients wait for each other in a poll."""
    is_over = threading.Event()

    def poll_on() -> None:
        with client.member() as poll:
            while not is_over.is_set():
                read.extend(poll())

    thread = threading.Thread(target=poll_on)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def shares(broker: InProcessBroker) -> list[int]:
    """How many partitions each member of the stable group has."""
    group = broker.group("g")
    return [len(member.partitions) for member in group.members if group.state == "Stable"]


@pytest.mark.usefixtures("sockets_left_open")
@pytest.mark.parametrize("client_class", CLIENTS[:-1])
def test_transactions_are_committed_or_aborted(broker, client_class):
    """Readers of committed records see those of the second transaction alone."""
    client = client_class(broker.bootstrap_servers)
    client.send("x", commits=False)
    client.send("x")
    committed = broker.wait_for_records("t", len(VALUES), isolation_level="read_committed")

    assert sorted(record.value for record in committed) == VALUES
    assert len(broker.records("t")) == 2 * len(VALUES)


def test_an_asyncio_program_on_a_loop_of_its_own(broker):
    """aiokafka: a transaction, and two members that share what was committed."""

    async def send(commits: bool) -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x"
        ) as producer:
            await producer.begin_transaction()
            for index, value in enumerate(VALUES):
                await producer.send_and_wait("t", value, partition=index % 2)
            await (producer.commit_transaction() if commits else producer.abort_transaction())

    def member() -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            heartbeat_interval_ms=50,
        )

    async def scene() -> list[bytes]:
        await send(commits=False)
        read: list[bytes] = []
        async with member() as one, member() as other:

            async def poll() -> None:
                for consumer in (one, other):
                    for records in (await consumer.getmany(timeout_ms=20)).values():
                        read.extend(record.value for record in records)

            await wait_until_async(
                lambda: asyncio.to_thread(shares, broker), "a group", meanwhile=poll
            )
            await send(commits=True)
            await wait_until_async(lambda: len(read) >= len(VALUES), "records", meanwhile=poll)
            await one.commit()
            await other.commit()
            await asyncio.to_thread(broker.wait_until_consumed, "g", "t")
        return sorted(read)

    assert asyncio.run(scene()) == VALUES
    assert set(broker.committed("g")) == set(BOTH)
