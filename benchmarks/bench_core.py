"""The compiled core beside the same core from its source: CPU of small requests, start and memory.

`make compiled` comes first. Two brokers take turns, each round begins with the other one, and what
is shown are medians of the rounds; a ratio is the median of the rounds' ratios. Both brokers have
the compiled kernels. CPU is that of all threads of a broker (schedstat), so that it holds on a busy
machine as well.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from benchmarks.bench_requests import fetch_request, frame, load, produce_request, receive
from benchmarks.bench_startup import cpu_seconds, resident_megabytes
from ottla.compiled import is_core_compiled
from ottla.testing.processes import BrokerProcess

ROUNDS = int(os.environ.get("BENCH_RUNS", "7"))
REQUESTS = 20_000
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


def source_of(folder: Path) -> Path:
    """A copy of Ottla with the kernels and without the compiled core."""
    package = Path(ottla.__file__).parent
    shutil.copytree(package, folder / "ottla", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (folder / "ottla").rglob("*.so"):
        if not path.name.startswith("native_"):
            path.unlink()
    return folder


def broker_of(kind: str, folder: Path, source: Path) -> BrokerProcess:
    """A broker that has started once before, so that its bytecode is there."""
    broker = BrokerProcess(folder / kind)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    if kind == "source":
        environment["PYTHONPATH"] = str(source)
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


def compare(brokers: dict[str, BrokerProcess], row: Row) -> None:
    """Rounds in turn, after one that warms both up."""
    measured: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(ROUNDS + 1):
        for kind in KINDS[:: -1 if number % 2 else 1]:
            measured[kind].append(cpu_us(brokers[kind], row))
    source, compiled = (measured[kind][1:] for kind in KINDS)
    ratio = statistics.median(b / a for a, b in zip(source, compiled, strict=True))
    print(
        f"{row.name:<38} {statistics.median(source):7.1f} us {statistics.median(compiled):7.1f} us"
        f"   x{ratio:.2f}",
        flush=True,
    )


def main() -> None:
    if not is_core_compiled():
        sys.exit("the core is not compiled: `make compiled`")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        source = source_of(folder / "source-of-ottla")
        brokers = {kind: broker_of(kind, folder, source) for kind in KINDS}
        print(f"CPU of the broker for a request, medians of {ROUNDS} rounds: {', '.join(KINDS)}")
        for kind, broker in brokers.items():
            start, memory = cpu_seconds(broker.pid), resident_megabytes(broker.pid)
            print(f"{kind:<38} started with {start:.2f} s of CPU, {memory:.1f} MB when idle")
        try:
            for broker in brokers.values():
                admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
                admin.create_topics([NewTopic("requests", 1, 1)])["requests"].result(30)
            for row in ROWS:
                compare(brokers, row)
        finally:
            for broker in brokers.values():
                broker.stop()


if __name__ == "__main__":
    main()
