"""Ottla beside Apache Kafka 3.9 (KRaft, its own defaults, 1 GB heap), taking turns on one machine.

Start-up is the time from the process's start to the first answer to a client, on a directory that
was used before. Memory is resident, ten seconds after the start and after the load. librdkafka
produces and consumes records of 100 bytes; brokers and client share the cores, so that the broker's
own CPU time says more than the rates. The runs take turns, and medians are compared.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from benchmarks.bench_clients import consume, produce
from benchmarks.peers.comparison import MILLION, Measured, cpu_seconds, resident_mb, table
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import KafkaBroker, answers
from benchmarks.peers.kafka_tools import KafkaTools
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
COUNT = int(os.environ.get("BENCH_RECORDS", "1000000"))
SIZE = 100
IDLE_SECONDS = 10
RATE = "records/s"
COST = "CPU s per million"


class Case(NamedTuple):
    """How records are spread and packed."""

    partitions: int
    codec: str


CASES = (Case(1, "none"), Case(1, "lz4"), Case(12, "none"))


class Subject(Measured):
    """One of the two brokers, and what was measured of it."""

    def __init__(self, name: str, broker: BrokerProcess | KafkaBroker) -> None:
        super().__init__(name)
        self.broker = broker

    def start(self) -> None:
        began = time.perf_counter()
        self.broker.start()
        while not answers(self.broker.port):
            pass
        self.note("start-up, s", time.perf_counter() - began)

    def memory(self) -> float:
        return resident_mb([self.broker.pid])

    def measure_start(self) -> None:
        """Starts on a used directory; the first one, on a new directory, does not count."""
        self.broker.start()
        self.broker.stop()
        for _ in range(RUNS):
            self.start()
            self.broker.stop()
        self.start()
        time.sleep(IDLE_SECONDS)
        self.note("idle memory, MB", self.memory())

    def cpu_seconds(self) -> float:
        return cpu_seconds([self.broker.pid])

    def measure_load(self, run: int) -> None:
        servers = self.broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for number, case in enumerate(CASES):
            topic = f"bench-{run}-{number}"
            admin.create_topics([NewTopic(topic, case.partitions, 1)])[topic].result(30)
            shown = f"{case.codec}, {case.partitions} partition{'s' * (case.partitions > 1)}"
            before = self.cpu_seconds()
            rate = produce(servers, topic, SIZE, COUNT, case.codec)
            between = self.cpu_seconds()
            self.note(f"produce {shown}, {RATE}", rate)
            self.note(f"produce {shown}, {COST}", (between - before) * MILLION / COUNT)
            rate = consume(servers, topic, case.partitions, COUNT)
            self.note(f"consume {shown}, {RATE}", rate)
            self.note(f"consume {shown}, {COST}", (self.cpu_seconds() - between) * MILLION / COUNT)


def subjects(folder: Path) -> list[Subject]:
    kafka = KafkaBroker(KafkaTools("3.9", kafka_jars("3.9")), folder / "kafka")
    return [
        Subject("Apache Kafka 3.9", kafka.format()),
        Subject("Ottla", BrokerProcess(folder / "ottla")),
    ]


def main() -> None:
    print(machine.describe())
    print(f"{COUNT:,} records of {SIZE} bytes, acks=1, medians of {RUNS} runs in turn\n")
    with tempfile.TemporaryDirectory() as folder:
        kafka, ottla = both = subjects(Path(folder))
        try:
            for subject in both:
                subject.measure_start()
            for run in range(RUNS + 1):
                for subject in both:
                    subject.measure_load(run)
                    if run == 0:  # the first one warms the JVM up
                        subject.forget(RATE, COST)
            for subject in both:
                subject.note("memory after the load, MB", subject.memory())
        finally:
            for subject in both:
                subject.broker.stop()
        table(kafka, ottla)


if __name__ == "__main__":
    main()
