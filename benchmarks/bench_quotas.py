"""Client quotas: what limited clients get, and what the limits cost.

Clients are limited to 1 MB/s for 33 seconds, three times the 11 seconds over which Kafka's formula
takes the rate: a client may use what these allow at once, and then waits. What quotas cost is small
requests a second without any, with a quota of another client, and with one of the client itself
that it stays below.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from benchmarks.bench_requests import CONNECTIONS, DEPTH, RUNS, frame, load, produce_request
from ottla.network.client_quotas import QUOTA_TYPES
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.structs import ClientEntity
from ottla.testing.processes import BrokerProcess

LIMIT = 1_000_000
SECONDS = 33.0
VALUE = os.urandom(1000)
REQUESTS = 50_000
OUT_OF_REACH = 1e12


def rate_of(work: Callable[[], int]) -> float:
    """Bytes a second that `work` moves, call by call."""
    work()  # connect first
    began, moved = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        moved += work()
    return moved / (time.perf_counter() - began)


def kafka_python_producer(servers: str) -> float:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, client_id="kafka_python_producer", linger_ms=5
    )

    def work() -> int:
        sent = [producer.send("quotas", VALUE) for _ in range(100)]
        for each in sent:
            each.get(120)
        return len(sent) * len(VALUE)

    rate = rate_of(work)
    producer.close()
    return rate


def librdkafka_producer(servers: str) -> float:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "client.id": "librdkafka_producer", "linger.ms": 5}
    )

    def work() -> int:
        for _ in range(100):
            producer.produce("quotas", VALUE)
        producer.flush()
        return 100 * len(VALUE)

    return rate_of(work)


def ottla_producer(servers: str) -> float:
    with ottla.Producer(servers, client_id="ottla_producer", linger_ms=5) as producer:

        def work() -> int:
            sent = [producer.send("quotas", VALUE) for _ in range(100)]
            for each in sent:
                each.result(120)
            return len(sent) * len(VALUE)

        return rate_of(work)


def kafka_python_consumer(servers: str) -> float:
    consumer = kafka.KafkaConsumer(
        "quotas",
        bootstrap_servers=servers,
        client_id="kafka_python_consumer",
        auto_offset_reset="earliest",
    )

    def work() -> int:
        found = consumer.poll(200)
        return sum(len(record.value) for records in found.values() for record in records)

    rate = rate_of(work)
    consumer.close()
    return rate


def librdkafka_consumer(servers: str) -> float:
    settings = {
        "bootstrap.servers": servers,
        "client.id": "librdkafka_consumer",
        "group.id": "quotas",
    }
    consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["quotas"])
    rate = rate_of(lambda: sum(len(record.value()) for record in consumer.consume(500, 0.2)))
    consumer.close()
    return rate


def limit(servers: str, client_id: str, **limits: float | None) -> None:
    """Change the quotas of a client id; a broker follows within milliseconds."""
    with ottla.Admin(servers) as admin:
        admin.alter_client_quotas({ClientEntity(client_id=client_id): limits})
    time.sleep(0.5)


def show_limited(servers: str) -> None:
    """The rate of each client beside its limit."""
    for client in (kafka_python_producer, librdkafka_producer, ottla_producer):
        limit(servers, client.__name__, producer_byte_rate=LIMIT)
        print(f"{client.__name__:<24} {client(servers) / LIMIT:6.1%} of its limit", flush=True)
    filler = confluent_kafka.Producer({"bootstrap.servers": servers})
    for _ in range(80_000):
        filler.produce("quotas", VALUE, on_delivery=None)
        filler.poll(0)
    filler.flush()
    for reader in (kafka_python_consumer, librdkafka_consumer):
        limit(servers, reader.__name__, consumer_byte_rate=LIMIT)
        print(f"{reader.__name__:<24} {reader(servers) / LIMIT:6.1%} of its limit", flush=True)


def show_cost(servers: str, address: tuple[str, int]) -> None:
    """Requests a second, the three cases in turns."""
    every = dict.fromkeys(QUOTA_TYPES, OUT_OF_REACH)
    cases: dict[str, dict[str, dict[str, float | None]]] = {
        "no quotas": {"bench": dict.fromkeys(every), "other": dict.fromkeys(every)},
        "quotas of another client": {"other": every},
        "quotas of the client": {"bench": every},
    }
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="quotas")])
    requests = {"Produce of 100 B": frame(produce_request(), 9), "Metadata": frame(metadata, 9)}
    for name, request in requests.items():
        rates: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(2 * RUNS + 1):
            for case, limits in cases.items():
                for client_id, changes in limits.items():
                    limit(servers, client_id, **changes)
                rates[case].append(load(address, request, REQUESTS))
        print(f"{name}: {CONNECTIONS} connections, {DEPTH} requests in the air on each")
        plain = statistics.median(rates["no quotas"])
        for case, found in rates.items():
            rate = statistics.median(found)
            print(f"  {case:<26} {rate:10,.0f} requests/s   {rate / plain:.3f}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            for topic in ("quotas", "requests"):
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            show_cost(servers, ("127.0.0.1", broker.port))
            show_limited(servers)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
