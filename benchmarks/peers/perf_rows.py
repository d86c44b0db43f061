"""The rows of the classic benchmark, and what each measures of a subject.

Records of 100 bytes, six partitions, batches of 8 KiB: the method of the benchmark that Kafka's
documentation refers to. A row is measured with brokers and clients on cores of their own ("apart"),
so that one or the other is the limit, and some of them on all cores together ("shared") as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import psutil

from benchmarks.peers.comparison import MILLION
from benchmarks.peers.perf_subjects import PARTITIONS, Subject
from benchmarks.peers.perf_tools import (
    PerfTools,
    Produced,
    Ran,
    consumed,
    latency,
    produced,
    run_together,
)

APART, SHARED = "apart", "shared"
RATE = "records/s"
COST = "CPU s per million"
GROSS, SECONDS = "CPU s per million, gross", "s per million"
CLIENT_COST = "client CPU s per million"
MEMORY = "memory, MB"
OTHERS = "others, % of the machine"
MEAN, P50, P99, P999 = "mean, ms", "p50, ms", "p99, ms", "p99.9, ms"
SHARE = "% of a core"
IN_RATE, OUT_RATE = "MB/s in", "MB/s out"
SIZE = 100
STORED_SIZE = 1000
STORED_PARTS = 4
READ_FACTOR = 8
WINDOW_SECONDS = 5

REFERENCE_BROKERS, REFERENCE_PARTITIONS = 60, 50_000
REFERENCE_RECORDS, REFERENCE_MB = 800_000, 300
REFERENCE_SIZE = REFERENCE_MB * MILLION // REFERENCE_RECORDS
REFERENCE_TOPICS = 2
REFERENCE_READERS = (3, 2)
"""Of each topic: with the copy for the second replica, 3.5 bytes go out for one that comes in."""


class Sizes(NamedTuple):
    """How much is measured."""

    records: int
    stored_mb: int
    latency_records: int
    reference_seconds: int
    scale: int
    """The reference load is divided by it."""


def cores_of(layout: str) -> tuple[list[int], list[int]]:
    """The cores of brokers and of clients."""
    everything = sorted(os.sched_getaffinity(0))
    if layout == SHARED or len(everything) == 1:
        return everything, everything
    return everything[:1], everything[1:]


class Trial:
    """One measurement of a subject, with clients on the cores of a layout."""

    def __init__(self, subject: Subject, tools: PerfTools, sizes: Sizes, layout: str) -> None:
        self.subject = subject
        self.tools = tools
        self.sizes = sizes
        self.broker_cores, self.client_cores = cores_of(layout)
        self.name = f"perf-{time.monotonic_ns()}"
        """A topic or group that no other measurement has."""

    @property
    def records_to_read(self) -> int:
        """More than are written: reading takes brokers little, and that is counted in 1/100 s."""
        return READ_FACTOR * self.sizes.records

    # -- commands

    def producer(self, topic: str, records: int, acks: str, size: int = SIZE) -> list[str]:
        return self.tools.producer(self.subject.servers, topic, records, size, acks)

    def consumers(self, topic: str, records: int, count: int = 1) -> list[list[str]]:
        servers = self.subject.servers
        groups = (f"{self.name}-{number}" for number in range(count))
        return [self.tools.consumer(servers, topic, records, group) for group in groups]

    def filled(self) -> str:
        """The topic that readers read, with all replicas; it is made once for each subject."""
        subject = self.subject
        if not subject.filled:
            subject.filled = subject.create("filled", PARTITIONS, subject.replicas)
            command = self.producer(subject.filled, self.records_to_read, "1")
            run_together([command], self.client_cores)
        return subject.filled

    # -- measuring

    def run(self, commands: Sequence[list[str]], records: int) -> tuple[Ran, dict[str, float]]:
        """Run clients that move so many records together, and count what the brokers take."""
        subject = self.subject
        subject.pin(self.broker_cores)
        machine, used = busy_seconds(), subject.cpu_seconds()
        ran = run_together(commands, self.client_cores)
        used = subject.cpu_seconds() - used
        others = busy_seconds() - machine - used - ran.cpu_seconds
        whole = ran.seconds * (os.cpu_count() or 1)
        return ran, {
            GROSS: used * MILLION / records,
            SECONDS: ran.seconds * MILLION / records,
            CLIENT_COST: ran.cpu_seconds * MILLION / records,
            MEMORY: subject.resident_mb(),
            OTHERS: 100 * max(0, others) / whole,
        }

    def produce(self, acks: str, replicas: int, producers: int = 1) -> dict[str, float]:
        """The rates of several producers are added up."""
        topic = self.subject.create(self.name, PARTITIONS, replicas)
        count = self.sizes.records
        commands = [self.producer(topic, count, acks)] * producers
        ran, numbers = self.run(commands, count * producers)
        self.subject.delete(topic)
        return {RATE: sum(total(text).records_per_second for text in ran.texts), **numbers}

    def consume(self, consumers: int) -> dict[str, float]:
        count = self.records_to_read
        commands = self.consumers(self.filled(), count, consumers)
        ran, numbers = self.run(commands, count * consumers)
        return {RATE: sum(consumed(text)[1] for text in ran.texts), **numbers}

    def produce_and_consume(self) -> dict[str, float]:
        """A record counts once, though it is written and read; the rate is the producer's."""
        topic = self.subject.create(self.name, PARTITIONS, self.subject.replicas)
        count = self.sizes.records
        ran, numbers = self.run(
            [self.producer(topic, count, "1"), *self.consumers(topic, count)], count
        )
        self.subject.delete(topic)
        return {RATE: total(ran.texts[0]).records_per_second, **numbers}

    def end_to_end(self) -> dict[str, float]:
        topic = self.subject.create(self.name, 1, self.subject.replicas)
        count = self.sizes.latency_records
        command = self.tools.end_to_end(self.subject.servers, topic, count, SIZE, "all")
        ran, numbers = self.run([command], count)
        self.subject.delete(topic)
        found = latency(ran.texts[0])
        marks = {MEAN: found.mean, P50: found.p50, P99: found.p99, P999: found.p999}
        return marks | numbers

    def store(self) -> dict[str, float]:
        """Whether a producer gets slower the more is stored: its rate in each part of a run."""
        topic = self.subject.create(self.name, PARTITIONS, self.subject.replicas)
        count = self.sizes.stored_mb * MILLION // STORED_SIZE
        ran, numbers = self.run([self.producer(topic, count, "1", STORED_SIZE)], count)
        self.subject.delete(topic)
        windows, whole = produced(ran.texts[0])
        return {RATE: whole.records_per_second, **rates_by_part(windows, count), **numbers}

    def refer(self) -> dict[str, float]:
        """The reference load, scaled down: its partitions, records and bytes, at its pace."""
        sizes, subject = self.sizes, self.subject
        partitions = REFERENCE_PARTITIONS // sizes.scale // REFERENCE_TOPICS
        pace = REFERENCE_RECORDS // sizes.scale // REFERENCE_TOPICS
        count = pace * sizes.reference_seconds
        topics = [
            subject.create(f"{self.name}-{number}", partitions, min(2, subject.replicas))
            for number in range(REFERENCE_TOPICS)
        ]
        servers, size = subject.servers, REFERENCE_SIZE
        commands = [self.tools.producer(servers, topic, count, size, "1", pace) for topic in topics]
        for topic, readers in zip(topics, REFERENCE_READERS, strict=True):
            commands += self.consumers(topic, count, readers)
        used = subject.cpu_seconds()
        ran, numbers = self.run(commands, count * len(topics))
        used = subject.cpu_seconds() - used
        for topic in topics:
            subject.delete(topic)
        totals = [total(text) for text in ran.texts[: len(topics)]]
        rate = sum(each.records_per_second for each in totals)
        copies = (sum(REFERENCE_READERS) / len(topics)) + min(2, subject.replicas) - 1
        megabytes = rate * size / MILLION
        return {
            RATE: rate,
            IN_RATE: megabytes,
            OUT_RATE: megabytes * copies,
            SHARE: 100 * used / ran.seconds,
            **numbers,
        }


def net_cost(gross: float, seconds: float, idle_share: float) -> float:
    """CPU seconds without those that brokers take while nothing happens; a tool starts slowly.

    No round is left out: that would favour brokers that idle at less.
    """
    return max(0.0, gross - idle_share * seconds)


def total(text: str) -> Produced:
    """The whole run that a producer's tool tells of."""
    return produced(text)[1]


def busy_seconds() -> float:
    """For how long the machine's cores have worked, for anybody."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


def part_name(number: int) -> str:
    return f"{RATE}, part {number + 1} of {STORED_PARTS}"


def seconds_of(window: Produced) -> float:
    """How long a window lasted; the tool prints each five seconds, even where nothing was sent."""
    rate = window.records_per_second
    return window.records / rate if rate else WINDOW_SECONDS


def rates_by_part(windows: Sequence[Produced], count: int) -> Mapping[str, float]:
    """The mean rate of the windows that begin in each part of the records; none, if none does."""
    parts: list[list[Produced]] = [[] for _ in range(STORED_PARTS)]
    sent = 0
    for window in windows:
        parts[min(STORED_PARTS - 1, sent * STORED_PARTS // count)].append(window)
        sent += window.records
    return {
        part_name(number): sum(each.records for each in part) / sum(map(seconds_of, part))
        for number, part in enumerate(parts)
        if part
    }


class Row(NamedTuple):
    """A row of a table: how many brokers it has, and what is measured of them."""

    key: str
    title: str
    brokers: int
    measure: Callable[[Trial], dict[str, float]]
    layouts: tuple[str, ...] = (APART,)
    is_long: bool = False
    """It takes its time in one round, and is measured in no other."""


CLUSTER = 3
BOTH = (APART, SHARED)
ROWS = (
    Row("producer", "one producer, no replication", CLUSTER, lambda t: t.produce("1", 1), BOTH),
    Row(
        "producer-async",
        "one producer, 3x asynchronous replication",
        CLUSTER,
        lambda t: t.produce("1", CLUSTER),
    ),
    Row(
        "producer-sync",
        "one producer, 3x synchronous replication",
        CLUSTER,
        lambda t: t.produce("all", CLUSTER),
        BOTH,
    ),
    Row(
        "producers",
        "three producers, 3x asynchronous replication",
        CLUSTER,
        lambda t: t.produce("1", CLUSTER, 3),
    ),
    Row("consumer", "one consumer", CLUSTER, lambda t: t.consume(1), BOTH),
    Row("consumers", "three consumers", CLUSTER, lambda t: t.consume(3)),
    Row("both", "a producer and a consumer", CLUSTER, lambda t: t.produce_and_consume(), BOTH),
    Row("latency", "end-to-end latency", CLUSTER, lambda t: t.end_to_end()),
    Row("stored", "throughput over stored data", CLUSTER, lambda t: t.store(), is_long=True),
    Row("reference", "the reference load", CLUSTER, lambda t: t.refer(), (SHARED,), True),
    Row("alone-producer", "one producer", 1, lambda t: t.produce("1", 1)),
    Row("alone-consumer", "one consumer", 1, lambda t: t.consume(1)),
    Row("alone-consumers", "three consumers", 1, lambda t: t.consume(3)),
    Row("alone-both", "a producer and a consumer", 1, lambda t: t.produce_and_consume()),
    Row("alone-latency", "end-to-end latency", 1, lambda t: t.end_to_end()),
)
