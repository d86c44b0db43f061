"""Kafka's own performance tools as clients: their command lines, and the numbers that they print.

A tool is a JVM of its own, with the heap and the compilers that Kafka's scripts give it; how fast
it gets warm is part of its rate, and is alike for each broker that it is pointed at.
"""

from __future__ import annotations

import re
import resource
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.peers.kafka_tools import KafkaTools

HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-Xshare:auto")
TOOL_SECONDS = 600
PRODUCED = re.compile(
    r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)", re.MULTILINE
)
LATENCY = re.compile(r"Avg latency: ([\d.]+) ms")
PERCENTILES = re.compile(r"Percentiles: 50th = (\d+), 99th = (\d+), 99.9th = (\d+)")
CLASSIC_PRODUCER = ("buffer.memory=67108864", "batch.size=8196")


class Produced(NamedTuple):
    """What the producer's tool says: of a window of its run, or of all of it."""

    records: int
    records_per_second: float
    mb_per_second: float


class Latency(NamedTuple):
    """What the end-to-end tool says, in ms; it rounds percentiles down to whole ones."""

    mean: float
    p50: float
    p99: float
    p999: float


def produced(text: str) -> tuple[list[Produced], Produced]:
    """The windows of a run, which the tool prints each five seconds, and the whole run."""
    found = [
        Produced(int(count), float(rate), float(size))
        for count, rate, size in PRODUCED.findall(text)
    ]
    if not found:
        raise ValueError(f"no rate in what the producer's tool printed:\n{text}")
    *windows, total = found
    return windows, total


def consumed(text: str) -> tuple[int, float]:
    """How many records the consumer's tool has read, and records a second without its joining."""
    fields = text.strip().splitlines()[-1].split(", ")
    if len(fields) != 10:
        raise ValueError(f"no rate in what the consumer's tool printed:\n{text}")
    return int(fields[4]), float(fields[9])


def latency(text: str) -> Latency:
    mean, marks = LATENCY.search(text), PERCENTILES.search(text)
    if mean is None or marks is None:
        raise ValueError(f"no latency in what the end-to-end tool printed:\n{text}")
    return Latency(float(mean[1]), *map(float, marks.groups()))


class PerfTools:
    """The command lines of the three tools of one version."""

    def __init__(self, tools: KafkaTools) -> None:
        self.tools = tools

    def producer(
        self, servers: str, topic: str, records: int, size: int, acks: str, rate: float = -1
    ) -> list[str]:
        """Produce as the classic benchmark does: batches of 8 KiB, a buffer of 64 MiB."""
        numbers = ("--num-records", str(records), "--record-size", str(size))
        settings = (f"bootstrap.servers={servers}", f"acks={acks}", *CLASSIC_PRODUCER)
        return self.tools.command(
            "producer-perf-test",
            *("--topic", topic, "--throughput", str(rate), *numbers),
            *("--producer-props", *settings),
            options=HEAP,
        )

    def consumer(self, servers: str, topic: str, records: int, group: str) -> list[str]:
        """Read a topic from its beginning, in a group of its own."""
        where = ("--bootstrap-server", servers, "--topic", topic, "--group", group)
        limits = ("--messages", str(records), "--timeout", "60000")
        return self.tools.command("consumer-perf-test", *where, *limits, options=HEAP)

    def end_to_end(self, servers: str, topic: str, records: int, size: int, acks: str) -> list[str]:
        """Send a record, read it, send the next one."""
        arguments = (servers, topic, str(records), acks, str(size))
        return self.tools.command("end-to-end-latency", *arguments, options=HEAP)


class Ran(NamedTuple):
    """What clients printed that ran at the same time, and what they took."""

    texts: list[str]
    seconds: float
    cpu_seconds: float
    """Of all clients together, with the start of their JVMs."""


def run_together(commands: Iterable[Sequence[str]], cores: Sequence[int]) -> Ran:
    """Run the clients at once on those cores; all must end well."""
    before, began = children_cpu_seconds(), time.monotonic()
    listed = ",".join(map(str, cores))
    clients = [
        subprocess.Popen(
            ["taskset", "-c", listed, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    texts = []
    try:
        for client in clients:
            text, said = client.communicate(timeout=TOOL_SECONDS)
            if client.returncode:
                raise RuntimeError(f"a client ended with {client.returncode}:\n{text}\n{said}")
            texts.append(text)
    finally:
        for client in clients:
            client.kill()
            client.wait()
    return Ran(texts, time.monotonic() - began, children_cpu_seconds() - before)


def children_cpu_seconds() -> float:
    """What the children of this process have used that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
