"""Quotas of a broker as clients see them: held, told, and free again when a limit changes."""

from __future__ import annotations

import gc
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterator

import confluent_kafka
import kafka
import pytest

from ottla import Admin, NewTopic, Producer
from ottla.extensions.quotas.quotas import Quotas
from ottla.network.connection import THROTTLED, Connection
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.message import Request, Response
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.record.batch_builder import BatchBuilder
from ottla.structs import ClientEntity, TopicPartition
from ottla.testing import InProcessBroker, InProcessCluster, wait_until

LIMIT_S = 60
BATCH_BYTES = 5000


class Client:
    """Raw frames, sent and received as they are: it honours no throttle_time_ms."""

    def __init__(self, broker: InProcessBroker, client_id: str) -> None:
        self.client_id = client_id
        host, port = broker.bootstrap_servers.split(":")
        self.socket = socket.create_connection((host, int(port)), LIMIT_S)

    def send(self, request: Request, version: int) -> None:
        self.socket.sendall(encode_request(version, 1, self.client_id, request))

    def receive(self, request: type[Request], version: int) -> Response:
        (size,) = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))
        return decode_response(request, version, self.socket.recv(size, socket.MSG_WAITALL))[1]

    def ask(self, request: Request, version: int) -> Response:
        self.send(request, version)
        return self.receive(type(request), version)

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """Topic t has one partition; no quotas."""
    with InProcessBroker() as broker:
        broker.create_topic("t")
        yield broker


@pytest.fixture
def connect(broker: InProcessBroker) -> Iterator[Callable[[str], Client]]:
    """Makes clients by their ids; their sockets are closed in the end."""
    clients: list[Client] = []

    def make(client_id: str = "app") -> Client:
        clients.append(Client(broker, client_id))
        return clients[-1]

    yield make
    for client in clients:
        client.socket.close()


def limit(broker: InProcessBroker, client_id: str, key: str, value: float | None) -> None:
    """Change the quota of a client id, and wait until the broker follows it."""
    entity = ClientEntity(client_id=client_id)
    with Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({entity: {key: value}})
        described = admin.describe_client_quotas({"client-id": client_id}, strict=True)
        assert described == ({} if value is None else {entity: {key: value}})
    quota = broker.broker.find(Quotas).known().by_key[key]

    def is_in_force() -> bool:
        found = quota.limit_of("ANONYMOUS", client_id)
        return (found and found[1]) == value

    wait_until(is_in_force, f"{key} of {client_id} is in force", LIMIT_S)


def connection_of(broker: InProcessBroker, client: Client) -> Connection:
    """The broker's end of a client's connection."""
    (found,) = (
        each for each in broker.broker.processor.connections if each.client_port == client.port
    )
    return found


def produce(version: int) -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(1, None, bytes(BATCH_BYTES))
    data = PartitionProduceData(index=0, records=builder.build())
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def fetch(version: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[wanted])
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])


@pytest.mark.parametrize("version", [3, 9])
def test_producer_is_held_whatever_it_makes_of_the_answer(broker, connect, version) -> None:
    """Produce v3 expects no early answer; 5 kB at 100 B/s wait for 40 s."""
    limit(broker, "app", "producer_byte_rate", 100)
    client, other = connect(), connect("other")
    answer = client.ask(produce(version), version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 39_000 < answer.throttle_time_ms < 43_000

    client.send(produce(version), version)
    assert other.ask(produce(version), version).throttle_time_ms == 0
    assert connection_of(broker, client).muted & THROTTLED
    assert not connection_of(broker, other).muted & THROTTLED
    partition = broker.broker.replica_manager.partitions[TopicPartition("t", 0)]
    assert partition.log.log_end_offset == 2  # of the other's and the first one of the client


@pytest.mark.parametrize("version", [4, 11])
def test_consumer_over_its_quota_gets_no_records_and_is_held(broker, connect, version) -> None:
    """Fetch v4 as well; partitions are named, for some clients fail without them."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", bytes(BATCH_BYTES)).result(LIMIT_S)
    limit(broker, "app", "consumer_byte_rate", 600)  # enough for one batch in ten seconds
    client = connect()
    first = client.ask(fetch(version), version)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records) > BATCH_BYTES

    client = connect()
    second = client.ask(fetch(version), version)
    partition = second.responses[0].partitions[0]
    assert second.throttle_time_ms > 5000
    assert (partition.error_code, partition.high_watermark) == (0, 1)
    assert not len(partition.records)
    assert connection_of(broker, client).muted & THROTTLED


def test_limit_that_changes_is_in_force_for_clients_that_are_connected(broker, connect) -> None:
    """Set, raised and taken away while they work."""
    client = connect()
    assert client.ask(produce(9), 9).throttle_time_ms == 0
    limit(broker, "app", "producer_byte_rate", 100_000)
    assert client.ask(produce(9), 9).throttle_time_ms == 0
    limit(broker, "app", "producer_byte_rate", 400)
    held = connect()
    assert held.ask(produce(9), 9).throttle_time_ms > 0
    limit(broker, "app", "producer_byte_rate", None)
    assert connect().ask(produce(9), 9).throttle_time_ms == 0


def test_request_quota_holds_a_client_that_only_asks(broker, connect) -> None:
    """Any handler counts, in percent of a thread."""
    limit(broker, "app", "request_percentage", 0.000_001)
    answer = connect().ask(MetadataRequest(topics=None), 9)
    assert answer.throttle_time_ms == 1000  # the most that it asks for


def test_topics_beyond_the_quota_come_later(broker) -> None:
    """Two partitions a second and 22 at once; our client waits and tries again (KIP-599)."""
    limit(broker, "operator", "controller_mutation_rate", 20)
    with Admin(broker.bootstrap_servers, client_id="operator") as admin:
        admin.create_topics([NewTopic("first", 225)])
        admin.create_topics([NewTopic("second", 1)])
        assert {"first", "second"} <= admin.list_topics()


RATE = 20_000
RECORD_BYTES = 10_000
RECORDS = 25
LEAST_S = (RECORDS * RECORD_BYTES - 10 * RATE) / RATE * 0.9
"""What is beyond the ten seconds that a client may use at once takes at least so long."""


def test_kafka_python_is_held_to_its_limit(broker) -> None:
    """kafka-python's own metrics say that it was throttled."""
    limit(broker, "app", "producer_byte_rate", RATE)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, client_id="app", batch_size=0
    )
    began = time.monotonic()
    for sent in [producer.send("t", bytes(RECORD_BYTES)) for _ in range(RECORDS)]:
        sent.get(LIMIT_S)
    took_s = time.monotonic() - began
    assert took_s > LEAST_S
    groups = producer.metrics().values()
    assert max(group.get("throttle-time-max", 0) for group in groups) > 0
    producer.close()
    del producer, sent, groups
    with warnings.catch_warnings():  # kafka-python leaves sockets to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_librdkafka_is_held_to_its_limit(broker) -> None:
    """librdkafka tells its program that it was throttled."""
    limit(broker, "app", "producer_byte_rate", RATE)
    throttled: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "app",
            "batch.num.messages": 1,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    for _ in range(RECORDS):
        producer.produce("t", bytes(RECORD_BYTES))
    assert producer.flush(LIMIT_S) == 0
    took_s = time.monotonic() - began
    assert took_s > LEAST_S
    assert max(throttled) > 0


def test_our_producer_is_held_to_its_limit(broker) -> None:
    """It waits by itself, and nothing is lost."""
    limit(broker, "app", "producer_byte_rate", RATE)
    began = time.monotonic()
    with Producer(broker.bootstrap_servers, client_id="app", batch_size=0) as producer:
        for sent in [producer.send("t", bytes(RECORD_BYTES)) for _ in range(RECORDS)]:
            sent.result(LIMIT_S)
    took_s = time.monotonic() - began
    assert took_s > LEAST_S
    (budget,) = broker.broker.find(Quotas).known().produce
    assert budget.throttle_time_ms > 0


def test_all_brokers_of_a_cluster_follow_a_change() -> None:
    """The one that was asked, the others, and one that comes later."""
    default, address = ClientEntity(client_id=""), ClientEntity(ip="192.0.2.7")
    with InProcessCluster() as cluster:
        cluster.stop_broker(3)
        with Admin(cluster.bootstrap_servers) as admin:
            admin.alter_client_quotas(
                {
                    default: {"consumer_byte_rate": 5.0},
                    address: {"connection_creation_rate": 7.0},
                }
            )
        cluster.start_broker(3)
        for broker_id in (1, 2, 3):
            broker = cluster.broker(broker_id)
            wait_until(
                lambda broker=broker: (
                    broker.find(Quotas).known().fetch.limit_of("ANONYMOUS", "app")
                ),
                f"broker {broker_id} has the limit",
                LIMIT_S,
            )
            assert broker.find(Quotas).known().fetch.limit_of("ANONYMOUS", "app")[1] == 5
            stored = broker.dynamic_config.client_overrides(address)
            assert stored == {"connection_creation_rate": "7"}


def test_address_above_its_rate_is_not_served(broker) -> None:
    """Others are, and it is again when the limit is gone (KIP-612)."""
    anybody = ClientEntity(ip="")
    with Admin(broker.bootstrap_servers) as admin:
        admin.alter_client_quotas({anybody: {"connection_creation_rate": 1}})
        rates = broker.broker.processor._acceptor.rates
        wait_until(lambda: rates._ip_limits, "the limit is in force", LIMIT_S)
        clients = [Client(broker, "app") for _ in range(12)]
        assert clients[-1].socket.recv(1) == b""  # ten seconds' worth were let in
        admin.alter_client_quotas({anybody: {"connection_creation_rate": None}})
        wait_until(lambda: not rates._ip_limits, "the limit is gone", LIMIT_S)
    clients.append(Client(broker, "app"))
    assert clients[-1].ask(MetadataRequest(topics=[]), 9).throttle_time_ms == 0
    for client in clients:
        client.socket.close()
