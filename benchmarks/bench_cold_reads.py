"""What a consumer that reads from the disk costs everybody else: the p99 of small produces.

Four times in one run, with the same broker files: nobody reads; a consumer reads a topic that was
dropped from the page cache; it reads what is in the page cache, which is what a reader costs
without any disk; and cold again by a broker that does not look into the page cache first.
`BENCH_COLD_GIGABYTES` sets how much is read each time (3).
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bench_latency import percentiles
from benchmarks.machine import MEGABYTE
from ottla.testing.processes import BrokerProcess

GIGABYTES = float(os.environ.get("BENCH_COLD_GIGABYTES", "3"))
QUIET_SECONDS = 5.0
TOPIC = "cold"


def fill(bootstrap: str) -> int:
    """Write the topic; returns how many records it has."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 900_000})
    value = os.urandom(100_000)
    count = int(GIGABYTES * 1e9 / len(value))
    for _ in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return count


def drop_from_page_cache(folder: Path) -> None:
    for path in folder.glob(f"{TOPIC}-0/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(bootstrap: str, count: int, took: list[float]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "cold", "check.crcs": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    start = time.perf_counter()
    read = 0
    while read < count:
        read += len(consumer.consume(500, 1))
    took.append(time.perf_counter() - start)
    consumer.close()


def produce_while(goes_on: threading.Event, bootstrap: str) -> list[float]:
    """One small record after the other, each acknowledged before the next is sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    times = []
    while not goes_on.is_set():
        start = time.perf_counter()
        producer.produce("small", bytes(100), partition=0)
        producer.flush()
        times.append(time.perf_counter() - start)
    return times[100:]


def measure(broker: BrokerProcess, label: str, count: int, *, is_cold: bool = True) -> None:
    """Produce for a while, with the consumer of `count` records beside it unless that is 0."""
    if is_cold:
        drop_from_page_cache(broker.data_dir)
    counters = psutil.Process(broker.pid).io_counters
    before = counters().read_bytes
    done, took = threading.Event(), [QUIET_SECONDS]
    if count:
        reader = [sys.executable, "-m", __spec__.name, broker.bootstrap_servers, str(count)]
        thread = threading.Thread(target=lambda: (took.append(run_reader(reader)), done.set()))
    else:
        thread = threading.Timer(QUIET_SECONDS, done.set)
    thread.start()
    times = produce_while(done, broker.bootstrap_servers)
    thread.join()
    speed = f", {GIGABYTES * 1e3 / took[-1]:,.0f} MB/s read" if count else ""
    speed += f", {(counters().read_bytes - before) / MEGABYTE:,.0f} MB from the disk"
    longest = max(times) * 1e3
    print(f"{label:<38}{percentiles(times)}, max {longest:.1f} ms{speed}", flush=True)


def run_reader(command: list[str]) -> float:
    """The consumer in a process of its own; how long it took."""
    import subprocess

    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        count = fill(broker.bootstrap_servers)
        measure(broker, "nobody reads", 0)
        measure(broker, f"{GIGABYTES:g} GB are read cold", count)
        # What a reader costs that needs no disk: the probe cannot do better than that.
        measure(broker, "the same, all in the page cache", count, is_cold=False)
        broker.stop()
        broker.module = "benchmarks.broker_without_probe"
        broker.start()
        measure(broker, "the same, page cache not looked into", count)
        broker.stop()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        durations: list[float] = []
        read_all(sys.argv[1], int(sys.argv[2]), durations)
        print(durations[0])
    else:
        main()
