"""The compiled core beside the same core from its source: CPU of small requests and of sends.

`make compiled` comes first. Two brokers, and then two clusters of three, take turns, each round
begins with the other one, and what is shown are medians of the rounds; a ratio is the median of the
rounds' ratios. All brokers have the compiled kernels. CPU is that of all threads of a broker
(schedstat), so that it holds on a busy machine as well.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from benchmarks.bench_requests import fetch_request, frame, load, produce_request, receive
from benchmarks.bench_startup import cpu_seconds, resident_megabytes
from ottla.compiled import is_core_compiled
from ottla.testing.processes import BrokerProcess, ClusterProcess

ROUNDS = int(os.environ.get("BENCH_RUNS", "7"))
REQUESTS = 8_000
KINDS = ("source", "compiled")
"""In this order, a ratio is the second by the first."""


class Row(NamedTuple):
    """One kind of request, and whether a client waits for each answer or has 64 under way."""

    name: str
    request: bytes
    is_waited_for: bool


ROWS = (
    Row("Produce v9 of 100 B, each waited for", frame(produce_request(), 9), True),
    Row("Produce v9 of 100 B, 64 under way", frame(produce_request(), 9), False),
    Row("Fetch v11 of 100 B, each waited for", frame(fetch_request(), 11), True),
    Row("Fetch v11 of 100 B, 64 under way", frame(fetch_request(), 11), False),
)

REPLICATED = frame(produce_request(acks=-1), 9)
REPLICATED_REQUESTS = 2_000


def source_of(folder: Path) -> Path:
    """A copy of Ottla with the kernels and without the compiled core."""
    package = Path(ottla.__file__).parent
    shutil.copytree(package, folder / "ottla", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "ottla").rglob("*.so"):
        if not path.name.startswith("native_"):
            path.unlink()
    return folder


def environment_of(kind: str, source: Path) -> dict[str, str]:
    """That of a process which imports this kind of Ottla."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return environment | {"PYTHONPATH": str(source)} if kind == "source" else environment


def broker_of(folder: Path, environment: dict[str, str]) -> BrokerProcess:
    """A broker that has started once before, so that its bytecode is there."""
    broker = BrokerProcess(folder)
    broker.popen = partial(subprocess.Popen, env=environment)
    broker.start()
    broker.stop()
    return broker.start()


def cpu_ns(pid: int) -> int:
    """What all threads of a process have computed."""
    return sum(
        int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )


def one_by_one(address: tuple[str, int], request: bytes, count: int) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(count):
            connection.sendall(request)
            receive(connection)


def cpu_us(broker: BrokerProcess, row: Row) -> float:
    """CPU of the broker for a request, in microseconds."""
    address = ("127.0.0.1", broker.port)
    begun = cpu_ns(broker.pid)
    if row.is_waited_for:
        one_by_one(address, row.request, REQUESTS)
    else:
        load(address, row.request, REQUESTS)
    return (cpu_ns(broker.pid) - begun) / REQUESTS / 1e3


def cluster_of(folder: Path, environment: dict[str, str]) -> ClusterProcess:
    """Three brokers, of which the first leads a topic that all have."""
    cluster = ClusterProcess(folder)
    for broker in cluster.brokers.values():
        broker.popen = partial(subprocess.Popen, env=environment)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    topic = NewTopic("requests", 1, replica_assignment=[list(cluster.brokers)])
    admin.create_topics([topic])["requests"].result(30)
    return cluster


def replicated_us(cluster: ClusterProcess) -> tuple[float, float]:
    """CPU for a produce that is answered when all have it: of the leader, and of its followers."""
    leader, *followers = cluster.brokers.values()
    begun = cpu_ns(leader.pid), sum(cpu_ns(each.pid) for each in followers)
    one_by_one(("127.0.0.1", leader.port), REPLICATED, REPLICATED_REQUESTS)
    used = cpu_ns(leader.pid) - begun[0], sum(cpu_ns(each.pid) for each in followers) - begun[1]
    return used[0] / REPLICATED_REQUESTS / 1e3, used[1] / REPLICATED_REQUESTS / 1e3


def compare_replication(folder: Path, environments: dict[str, dict[str, str]]) -> None:
    clusters: dict[str, ClusterProcess] = {}
    try:
        for kind in KINDS:
            clusters[kind] = cluster_of(folder / f"{kind}-cluster", environments[kind])
        names = ("Produce, acks=all: the leader's part", "the same: that of two followers")
        compare(names, lambda kind: replicated_us(clusters[kind]))
    finally:
        for cluster in clusters.values():
            cluster.stop()


SENDS = """
import sys, time
from ottla import Producer

with Producer(sys.argv[1], linger_ms=5) as producer:
    for count in (5_000, 150_000):
        begun = time.thread_time_ns(), time.process_time_ns()
        for _ in range(count):
            producer.send("requests", b"x" * 100)
        in_caller = time.thread_time_ns() - begun[0]
        producer.flush()
        in_all = time.process_time_ns() - begun[1]
print(in_caller / count / 1e3, in_all / count / 1e3)
"""


def send_us(environment: dict[str, str], broker: BrokerProcess) -> list[float]:
    """CPU of a producer for a record: of the thread that sends, and of the process."""
    program = [sys.executable, "-c", SENDS, broker.bootstrap_servers]
    return list(map(float, subprocess.check_output(program, env=environment, text=True).split()))


def compare(names: Sequence[str], measure: Callable[[str], Sequence[float]]) -> None:
    """Measure both kinds in turn, after a round that warms both up; a line for each figure."""
    measured: dict[str, list[Sequence[float]]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS + 1):
        for kind in KINDS[:: -1 if number % 2 else 1]:
            measured[kind].append(measure(kind))
    for index, name in enumerate(names):
        source, compiled = ([each[index] for each in measured[kind][1:]] for kind in KINDS)
        ratio = statistics.median(b / a for a, b in zip(source, compiled, strict=True))
        print(
            f"{name:<38} {statistics.median(source):7.2f} us {statistics.median(compiled):7.2f} us"
            f"   x{ratio:.2f}",
            flush=True,
        )


def main() -> None:
    if not is_core_compiled():
        print("left out: the core is not compiled (`make compiled`)")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = source_of(folder / "source-of-ottla")
        environments = {kind: environment_of(kind, source) for kind in KINDS}
        brokers = {kind: broker_of(folder / kind, environments[kind]) for kind in KINDS}
        print(f"CPU of the broker for a request, medians of {ROUNDS} rounds: {', '.join(KINDS)}")
        for kind, broker in brokers.items():
            start, memory = cpu_seconds(broker.pid), resident_megabytes(broker.pid)
            print(f"{kind:<38} started with {start:.2f} s of CPU, {memory:.1f} MB when idle")
        try:
            for broker in brokers.values():
                admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
                admin.create_topics([NewTopic("requests", 1, 1)])["requests"].result(30)
            for row in ROWS:
                compare([row.name], lambda kind, row=row: [cpu_us(brokers[kind], row)])
            target = brokers["compiled"]
            names = ("A send of 100 B, in the caller", "A send of 100 B, in the process")
            compare(names, lambda kind: send_us(environments[kind], target))
        finally:
            for broker in brokers.values():
                broker.stop()
        compare_replication(folder, environments)


if __name__ == "__main__":
    main()
