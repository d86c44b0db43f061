"""Three Ottla brokers beside three of Apache Kafka 3.9, taking turns on one machine.

Both clusters live on one ZooKeeper server, each below a chroot, with the same settings: three
replicas, two of which must be in sync, the same session timeout. Kafka has its own defaults
otherwise, and a heap of 1 GB for each broker. librdkafka produces with acks=all as an idempotent
producer, and consumes.

- Start-up: from the first of three processes' start, on directories that were used before, until
  each answers a client that all three are there.
- An acknowledged send: from `produce()` until librdkafka has the acknowledgement, at a steady pace.
- Not writable: the longest time without an acknowledgement on a partition whose leader, which is
  not the controller, is killed (its session has to expire) or stopped by SIGTERM.
- In sync again: from the start of that broker until all replicas of all partitions are in sync.
- CPU and memory are of the three brokers together; clients, brokers and ZooKeeper share the cores,
  so that CPU time says more than the rates. Memory is resident, before and after the load.

Numbers are medians of the runs; the first run of load warms up and does not count.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from benchmarks.bench_clients import consume, produce
from benchmarks.peers.comparison import MILLION, Measured, cpu_seconds, resident_mb, table
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import ZooKeeperKafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.metadata import MetadataRequest, MetadataResponse
from ottla.testing.processes import BrokerProcess, ZooKeeperProcess

BROKERS = (1, 2, 3)
PARTITIONS = 6
IDLE_PARTITIONS = 1_000
IDLE_SECONDS = 5
READINGS = 4
"""CPU time is counted in hundredths of a second, and reading takes brokers little."""
STEADY_RATE = 1_000
WARM_UP = 2_000
PROBE_SECONDS = 0.005
SETTLE_SECONDS = 1
LIMIT_SECONDS = 120
RATE = "records/s"
COST = "CPU s per million"
LATENCY = "ms"
MARKS = ((50, "p50"), (99, "p99"), (99.9, "p99.9"))


class Sizes(NamedTuple):
    """How much is measured."""

    runs: int
    records: Mapping[int, int]
    steady_records: int


class Subject(Measured):
    """One of the two clusters, and what was measured of it."""

    def __init__(
        self, name: str, brokers: Mapping[int, BrokerProcess | ZooKeeperKafkaBroker]
    ) -> None:
        super().__init__(name)
        self.brokers = brokers

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(each.bootstrap_servers for each in self.brokers.values())

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.brokers.values()]

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    # -- life

    def start_at_once(self) -> float:
        """Start all; seconds until each of them knows all."""
        began = time.perf_counter()
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        for broker in self.brokers.values():
            wait_for(lambda port=broker.port: brokers_known_by(port) == len(BROKERS))
        return time.perf_counter() - began

    def stop_in_turn(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def kill_all(self) -> None:
        for broker in self.brokers.values():
            if broker.process is not None:
                broker.kill()

    def measure_start(self, runs: int) -> None:
        """At last start the first broker before the others, so that it becomes the controller."""
        self.start_at_once()
        self.stop_in_turn()
        for _ in range(runs):
            self.note("start-up of all three, s", self.start_at_once())
            self.stop_in_turn()
        for broker in self.brokers.values():
            broker.start()
        self.note("memory before the load, MB", resident_mb(self.pids))

    # -- load

    def create(
        self,
        topic: str,
        partitions: int = PARTITIONS,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if assignment is None:
            new = NewTopic(topic, partitions, len(BROKERS))
        else:
            new = NewTopic(topic, len(assignment), replica_assignment=[*map(list, assignment)])
        self.admin.create_topics([new])[topic].result(LIMIT_SECONDS)
        self.wait_until_in_sync()

    def measure_load(self, run: int, sizes: Sizes) -> None:
        """Produce and consume records of each size."""
        servers = self.bootstrap_servers
        for size, count in sizes.records.items():
            topic = f"load-{run}-{size}"
            self.create(topic)
            settings = {"acks": "all", "enable_idempotence": "true"}
            before = cpu_seconds(self.pids)
            rate = produce(servers, topic, size, count, "none", **settings)
            between = cpu_seconds(self.pids)
            self.note(f"produce {size} B, acks=all, {RATE}", rate)
            self.note(f"produce {size} B, {COST}", (between - before) * MILLION / count)
            for _ in range(READINGS):
                rate = consume(servers, topic, PARTITIONS, count)
                self.note(f"consume {size} B, {RATE}", rate)
            used = cpu_seconds(self.pids) - between
            self.note(f"consume {size} B, {COST}", used * MILLION / (READINGS * count))
            self.admin.delete_topics([topic])[topic].result(30)

    def measure_latency(self, run: int, sizes: Sizes) -> None:
        topic = f"steady-{run}"
        self.create(topic)
        before = cpu_seconds(self.pids)
        times = sorted(send_steadily(self.bootstrap_servers, topic, sizes.steady_records))
        used = cpu_seconds(self.pids) - before
        for mark, name in MARKS:
            value = times[min(len(times) - 1, int(len(times) * mark / 100))]
            self.note(f"acknowledged send, {name}, {LATENCY}", value * 1000)
        share = used / ((WARM_UP + sizes.steady_records) / STEADY_RATE)
        self.note(f"at {STEADY_RATE} records/s, % of a core", 100 * share)
        self.admin.delete_topics([topic])[topic].result(30)

    def measure_idleness(self) -> None:
        """What it takes that nothing happens to many partitions."""
        self.create("idle", IDLE_PARTITIONS)
        time.sleep(IDLE_SECONDS)
        before = cpu_seconds(self.pids)
        time.sleep(IDLE_SECONDS)
        used = cpu_seconds(self.pids) - before
        self.note(f"idle, {IDLE_PARTITIONS:,} partitions, % of a core", 100 * used / IDLE_SECONDS)

    # -- faults

    def measure_fault(self, name: str, end: Callable[[int], object]) -> None:
        """The leader of the probe's partition ends, and is started again."""
        victim = self.admin.list_topics("probe", timeout=30).topics["probe"].partitions[0].leader
        with Probe(self.bootstrap_servers, "probe") as probe:
            self.note(f"{name}, not writable, s", probe.longest_gap(lambda: end(victim)))
        began = time.perf_counter()
        self.brokers[victim].start()
        self.wait_until_in_sync()
        self.note(f"{name}, in sync again, s", time.perf_counter() - began)

    def measure_faults(self, run: int) -> None:
        if run == 0:
            self.create("probe", assignment=[[2, 3, 1]])
        self.measure_fault("leader killed", lambda victim: self.brokers[victim].kill())
        self.measure_fault("leader stopped", lambda victim: self.brokers[victim].stop())

    def wait_until_in_sync(self) -> None:
        admin = self.admin

        def is_in_sync() -> bool:
            topics = admin.list_topics(timeout=30).topics.values()
            partitions = [each for topic in topics for each in topic.partitions.values()]
            return all(len(each.isrs) == len(each.replicas) for each in partitions)

        wait_for(is_in_sync)


class Probe:
    """Writes to the first partition of a topic all the time, and notes each acknowledgement."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged_at: list[float] = []
        self.last_sent_at = 0.0
        """When the youngest record that is acknowledged was sent."""
        self._is_over = False
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "log_level": 0,
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def longest_gap(self, end: Callable[[], object]) -> float:
        """The longest time without an acknowledgement, from the fault until all is well again."""
        self._wait_for_later(time.perf_counter())
        began = time.perf_counter()
        end()
        self._wait_for_later(time.perf_counter())
        time.sleep(SETTLE_SECONDS)
        times = self.acknowledged_at[:]
        return max(later - sooner for sooner, later in pairwise(times) if later >= began)

    def _wait_for_later(self, moment: float) -> None:
        wait_for(lambda: self.last_sent_at > moment)

    def _send(self) -> None:
        due = time.perf_counter()
        while not self._is_over:
            sent_at = time.perf_counter()
            on_delivery = partial(self._on_delivery, sent_at)
            self._producer.produce(self.topic, b"x", partition=0, on_delivery=on_delivery)
            due += PROBE_SECONDS
            while (wait := due - time.perf_counter()) > 0:
                self._producer.poll(wait)
        left = self._producer.flush(LIMIT_SECONDS)
        assert left == 0, f"{left} records were not delivered"

    def _on_delivery(self, sent_at: float, error: object, message: Message) -> None:
        assert error is None, error
        self.acknowledged_at.append(time.perf_counter())
        self.last_sent_at = sent_at


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {LIMIT_SECONDS} s"
        time.sleep(0.01)


def brokers_known_by(port: int) -> int:
    """How many brokers one of them tells a client of."""
    with socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS) as connection:
        connection.sendall(encode_request(1, 0, "bench", MetadataRequest(topics=[])))
        with connection.makefile("rb") as answer:
            frame = answer.read(int.from_bytes(answer.read(4)))
    _, response = decode_response(MetadataRequest, 1, memoryview(frame))
    assert isinstance(response, MetadataResponse)
    return len(response.brokers)


def send_steadily(servers: str, topic: str, count: int) -> list[float]:
    """Seconds until each of the records was acknowledged, when the producer has found its way."""
    times: list[float] = []

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        times.append(message.latency())

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    begin = time.perf_counter()
    for number in range(WARM_UP + count):
        while (wait := begin + number / STEADY_RATE - time.perf_counter()) > 0:
            time.sleep(wait)
        partition = number % PARTITIONS
        producer.produce(topic, bytes(100), partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} records were not delivered"
    return times[WARM_UP:]


def subjects(folder: Path, zookeeper: ZooKeeperProcess, session_ms: int) -> list[Subject]:
    settings = {
        "zookeeper.session.timeout.ms": session_ms,
        "zookeeper.connection.timeout.ms": 30_000,
        "default.replication.factor": len(BROKERS),
        "offsets.topic.replication.factor": len(BROKERS),
        "min.insync.replicas": 2,
        "auto.leader.rebalance.enable": "false",
    }
    tools = KafkaTools("3.9", kafka_jars("3.9"))
    connect = zookeeper.connect
    kafka = {
        id_: ZooKeeperKafkaBroker(tools, folder / f"kafka-{id_}", id_, f"{connect}/k", **settings)
        for id_ in BROKERS
    }
    settings["zookeeper.connect"] = f"{connect}/o"
    ottla = {
        id_: BrokerProcess(folder / f"ottla-{id_}", broker_id=id_, **settings) for id_ in BROKERS
    }
    return [Subject("Apache Kafka 3.9", kafka), Subject("Ottla", ottla)]


def measure(both: Sequence[Subject], sizes: Sizes) -> None:
    """Everything, in turns."""
    for subject in both:
        subject.measure_start(sizes.runs)
    for run in range(sizes.runs + 1):
        for subject in both:
            subject.measure_load(run, sizes)
            subject.measure_latency(run, sizes)
            if run == 0:
                subject.forget(RATE, COST, LATENCY, "of a core")
        print(f"load {run} done", file=sys.stderr)
    for subject in both:
        subject.note("memory after the load, MB", resident_mb(subject.pids))
    for run in range(sizes.runs):
        for subject in both:
            subject.measure_faults(run)
        print(f"faults {run} done", file=sys.stderr)
    for subject in both:
        subject.measure_idleness()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="three Ottla brokers beside Apache Kafka's")
    parser.add_argument("--runs", type=int, default=3, help="medians of so many")
    parser.add_argument("--records", type=int, default=300_000, help="of 100 B; 1 KiB: a fifth")
    parser.add_argument("--seconds", type=int, default=5, help="at 1,000 records/s")
    parser.add_argument("--session-ms", type=int, default=4_000, help="ZooKeeper session timeout")
    return parser.parse_args()


def main() -> None:
    options = parse()
    records = {100: options.records, 1024: options.records // 5}
    sizes = Sizes(options.runs, records, options.seconds * STEADY_RATE)
    print(machine.describe())
    print(
        f"3 brokers each on one ZooKeeper server, sessions of {options.session_ms} ms; "
        f"{PARTITIONS} partitions, 3 replicas, min.insync.replicas 2;\n"
        f"{records[100]:,} records of 100 B and {records[1024]:,} of 1 KiB, medians of "
        f"{options.runs} runs in turn\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = ZooKeeperProcess(Path(folder) / "zookeeper").start()
        kafka, ottla = both = subjects(Path(folder), zookeeper, options.session_ms)
        try:
            measure(both, sizes)
        finally:
            for subject in both:
                subject.kill_all()
            zookeeper.stop()
        table(kafka, ottla)


if __name__ == "__main__":
    main()
