"""What TLS costs: megabytes a second produced and consumed, plain and encrypted, in the same run.

librdkafka through confluent-kafka, records of 1 KB that no codec makes smaller, one broker with a
listener of each kind. The runs take turns, so that both meet the same machine; the CPU of the
broker is what TLS itself costs, the rest also shows what the client spends on it.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trustme
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import machine
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
RECORDS = 150_000
SIZE = 1024
MEGABYTES = RECORDS * SIZE / 1e6
TICKS = os.sysconf("SC_CLK_TCK")


class TwoListeners(BrokerProcess):
    """A broker that listens in the clear and with TLS."""

    addresses: dict[str, str]

    def take(self, ready: re.Match[str]) -> None:
        super().take(ready)
        self.addresses = dict(re.findall(r"(\w+)://([^,]+)", ready[1]))


def cpu_seconds(pid: int) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def produce(settings: dict[str, object], topic: str, value: bytes) -> None:
    producer = Producer(
        settings
        | {
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    for number in range(RECORDS):
        producer.produce(topic, value)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    assert left == 0, f"{left} records were not delivered"


def consume(settings: dict[str, object], topic: str) -> None:
    consumer = Consumer(settings | {"group.id": "bench", "queued.min.messages": 1_000_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    while seen < RECORDS:
        seen += len(consumer.consume(10_000, 10))
    consumer.close()


def measured(broker: BrokerProcess, work: Callable[[], None]) -> tuple[float, float]:
    """Megabytes a second, and milliseconds of the broker's CPU for 100 MB."""
    cpu, start = cpu_seconds(broker.pid), time.perf_counter()
    work()
    elapsed = time.perf_counter() - start
    return MEGABYTES / elapsed, (cpu_seconds(broker.pid) - cpu) * 1000 / MEGABYTES * 100


def settings_of(broker: TwoListeners, protocol: str, ca: str) -> dict[str, object]:
    common: dict[str, object] = {
        "bootstrap.servers": broker.addresses[protocol],
        "security.protocol": protocol,
    }
    return common | ({"ssl.ca.location": ca} if protocol == "SSL" else {})


def main() -> None:
    print(machine.describe())
    print(f"librdkafka through confluent-kafka, records of {SIZE} B, medians of {RUNS} runs")
    value = os.urandom(SIZE)
    results: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ca, key = str(folder / "ca.pem"), str(folder / "server.pem")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(ca)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(key)
        listeners = "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
        broker = TwoListeners(
            folder / "data", **{"listeners": listeners, "ssl.keystore.location": key}
        ).start()
        try:
            for run in range(RUNS):
                for protocol in ("PLAINTEXT", "SSL"):
                    settings, topic = settings_of(broker, protocol, ca), f"{protocol}-{run}"
                    works = {
                        "produce": partial(produce, settings, topic, value),
                        "consume": partial(consume, settings, topic),
                    }
                    for what, work in works.items():
                        results.setdefault((what, protocol), []).append(measured(broker, work))
        finally:
            broker.stop()
    for what in ("produce", "consume"):
        show(what, results[what, "PLAINTEXT"], results[what, "SSL"])


def show(what: str, plain: list[tuple[float, float]], tls: list[tuple[float, float]]) -> None:
    """One line: both rates, their ratio, and the CPU of the broker."""
    (plain_rate, plain_cpu), (tls_rate, tls_cpu) = (
        tuple(statistics.median(column) for column in zip(*runs, strict=True))
        for runs in (plain, tls)
    )
    print(
        f"{what}: plain {plain_rate:,.0f} MB/s, TLS {tls_rate:,.0f} MB/s, "
        f"ratio {tls_rate / plain_rate:.2f}; broker CPU for 100 MB: "
        f"plain {plain_cpu:.0f} ms, TLS {tls_cpu:.0f} ms"
    )


if __name__ == "__main__":
    main()
