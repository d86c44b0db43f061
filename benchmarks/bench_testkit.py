"""A broker for each test: in the test's process, beside one that is a process of its own."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ottla import Producer
from ottla.testing import InProcessBroker, InProcessCluster
from ottla.testing.processes import BrokerProcess

BROKERS = 1_000
PROCESSES = 10
CLUSTERS = 30


def milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e3


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * part))]


def show(name: str, times: list[float], aim: str = "") -> None:
    p50, p99 = statistics.median(times), percentile(times, 0.99)
    print(f"{name:44} {p50:8.1f} {p99:8.1f} ms   {aim}".rstrip())


def start_and_stop() -> None:
    InProcessBroker().start().stop()


def run_process(folder: Path) -> None:
    broker = BrokerProcess(folder)
    broker.start()
    broker.stop()


def first_record() -> float:
    """From the start of three brokers to a record with acks=all that all of them have."""
    start = time.perf_counter()
    with (
        InProcessCluster() as cluster,
        Producer(cluster.bootstrap_servers, acks="all") as producer,
    ):
        producer.send("topic", b"record").result()
        return (time.perf_counter() - start) * 1e3


def main() -> None:
    start_and_stop()  # imports, and the codecs of messages
    print(f"{'':44} {'p50':>8} {'p99':>8}")
    times = [milliseconds(start_and_stop) for _ in range(BROKERS)]
    show(f"in process, start and stop, {BROKERS} of them", times, "aim: 6 and 15 ms")
    with tempfile.TemporaryDirectory() as folder:
        times = [
            milliseconds(lambda number=number: run_process(Path(folder) / str(number)))
            for number in range(PROCESSES)
        ]
    show(f"a process, start and stop, {PROCESSES} of them", times)
    first_record()
    show(
        "three in process, first record, acks=all",
        [first_record() for _ in range(CLUSTERS)],
        "aim: 150 ms",
    )


if __name__ == "__main__":
    main()
