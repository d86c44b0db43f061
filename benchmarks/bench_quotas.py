"""Client quotas: what limited clients get, and what the limits cost.

Clients are limited to 1 MB/s for 33 seconds, three times the 11 seconds over which Kafka's formula
takes the rate: a client may use what these allow at once, and then waits. What quotas cost is small
requests a second without any, with a quota of another client, and with one of the client itself
that it stays below. What others notice is the time that a small produce of theirs takes while a
producer of kafka-python and one of librdkafka are held to 1 MB/s each, and while these are stopped.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from benchmarks.bench_requests import (
    CONNECTIONS,
    DEPTH,
    RUNS,
    frame,
    load,
    produce_request,
    receive,
)
from ottla.config.quota_config import QUOTA_TYPES
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.structs import ClientEntity
from ottla.testing.processes import BrokerProcess

LIMIT = 1_000_000
SECONDS = 33.0
VALUE = os.urandom(1000)
REQUESTS = 50_000
OUT_OF_REACH = 1e12

HELD = ("kafka_python_producer", "librdkafka_producer")
ROUNDS = int(os.environ.get("BENCH_QUOTAS_ROUNDS", "10"))
SENDS = 2_000
PAUSE_SECONDS = 0.002
"""Between an answer and the next produce: the client is not one that asks for all it can get."""
SETTLE_SECONDS = 3.0
"""Until those that were stopped have used what they were allowed meanwhile, and are held again."""


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


# What others notice of clients that are held.


def run_held(servers: str) -> None:
    """Both producers, each as fast as its limit lets it, until this process is killed."""
    for client in (kafka_python_producer, librdkafka_producer):
        threading.Thread(target=repeat, args=(client, servers), daemon=True).start()
    threading.Event().wait()


def repeat(client: Callable[[str], float], servers: str) -> None:
    while True:
        client(servers)


@contextmanager
def held_neighbours(servers: str) -> Iterator[Callable[[bool], None]]:
    """The producers, in a process of their own; what is given lets them run, or stops them."""
    command = [sys.executable, "-m", "benchmarks.bench_quotas", servers]
    process = subprocess.Popen(command)

    def let(run: bool) -> None:
        process.send_signal(signal.SIGCONT if run else signal.SIGSTOP)
        time.sleep(SETTLE_SECONDS if run else SETTLE_SECONDS / 10)

    try:
        yield let
    finally:
        process.kill()
        process.wait()


def p99_ms(connection: socket.socket, request: bytes) -> float:
    """The 99th percentile of the times from a produce to its answer."""
    times = []
    for _ in range(SENDS):
        time.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        connection.sendall(request)
        receive(connection)
        times.append(time.perf_counter() - began)
    return sorted(times)[int(SENDS * 0.99)] * 1000


def show_neighbours(servers: str, address: tuple[str, int]) -> None:
    """The p99 of small produces with and without the held producers, in turns."""
    for client_id in HELD:
        limit(servers, client_id, producer_byte_rate=LIMIT)
    request = frame(produce_request(), 9)
    pairs = []
    with held_neighbours(servers) as let, socket.create_connection(address) as connection:
        let(True)
        p99_ms(connection, request)  # the first one warms up
        for number in range(ROUNDS):
            found = {}
            for run in (False, True) if number % 2 else (True, False):
                let(run)
                found[run] = p99_ms(connection, request)
            pairs.append((found[False], found[True]))
    alone, beside = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratios = sorted(after / before for before, after in pairs)
    print(
        f"small produces: p99 {alone:.2f} ms alone, {beside:.2f} ms beside two producers that are "
        f"held to 1 MB/s; {statistics.median(ratios):.2f} times as long (median of {ROUNDS} rounds;"
        f" half of them from {ratios[ROUNDS // 4]:.2f} to {ratios[-1 - ROUNDS // 4]:.2f})",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            for topic in ("quotas", "requests"):
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            show_neighbours(servers, ("127.0.0.1", broker.port))
            show_cost(servers, ("127.0.0.1", broker.port))
            show_limited(servers)
        finally:
            broker.stop()


if __name__ == "__main__":
    if sys.argv[1:]:
        run_held(sys.argv[1])
    else:
        main()
