"""What metrics cost: the broker's CPU time with and without them, and a page of 5,000 partitions.

The peer is the same broker without `metrics.listener`. Runs alternate, and CPU time is what the
kernel has charged to the broker, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.runtime.network import free_port
from ottla.testing.broker_process import BrokerProcess

ROUNDS = int(os.environ.get("BENCH_METRICS_ROUNDS", "7"))
SMALL_REQUESTS = 60_000
BATCHED_RECORDS = 3_000_000
PARTITIONS = int(os.environ.get("BENCH_METRICS_PARTITIONS", "5000"))
TOPICS = 50
SENDS = 2_000


def cpu_seconds(pid: int) -> float:
    """For how long the kernel has had the threads of a process on a processor, to the ns."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def small_requests(bootstrap: str) -> None:
    """Requests of one record each, one at a time in flight for each of 8 partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.size": 1})
    for number in range(SMALL_REQUESTS):
        producer.produce("small", bytes(100), partition=number % 8)
        producer.poll(0)
    producer.flush()


def batches(bootstrap: str) -> None:
    """Records of 100 bytes in batches as the client makes them."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 500_000}
    )
    for _ in range(BATCHED_RECORDS):
        producer.produce("batched", bytes(100))
        producer.poll(0)
    producer.flush()


def compare(title: str, brokers: dict[str, BrokerProcess], load: Callable[[str], None]) -> None:
    """The median CPU time of each broker for the same load, round by round."""
    spent: dict[str, list[float]] = {name: [] for name in brokers}
    for round_number in range(ROUNDS + 1):
        for name, broker in sorted(brokers.items(), reverse=round_number % 2 == 0):
            before = cpu_seconds(broker.pid)
            load(broker.bootstrap_servers)
            if round_number:  # the first one warms up
                spent[name].append(cpu_seconds(broker.pid) - before)
    without, with_metrics = (statistics.median(spent[name]) for name in ("without", "with"))
    shares = [
        after / before - 1 for before, after in zip(spent["without"], spent["with"], strict=True)
    ]
    print(
        f"{title}: {without:.3f} s of CPU without metrics, {with_metrics:.3f} s with "
        f"({100 * (with_metrics / without - 1):+.1f} %; rounds {100 * min(shares):+.1f} to "
        f"{100 * max(shares):+.1f} %)"
    )


def send_times(bootstrap: str, count: int) -> list[float]:
    """Seconds for a record to be acknowledged, one after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    times = []
    for _ in range(count):
        start = time.perf_counter()
        producer.produce("t0", bytes(100), partition=0)
        producer.flush()
        times.append(time.perf_counter() - start)
    return sorted(times)


def p99(times: list[float]) -> float:
    return times[int(len(times) * 0.99)] * 1000


def scrapes(folder: Path) -> None:
    """A page of many partitions: how long it takes, and what small produces notice of it."""
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    broker = BrokerProcess(folder, metrics_listener=url).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(f"t{n}", PARTITIONS // TOPICS, 1) for n in range(TOPICS)]
        for future in admin.create_topics(topics, operation_timeout=60).values():
            future.result()
        times, sizes = [], []

        def scrape() -> None:
            start = time.perf_counter()
            with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
                sizes.append(len(answer.read()))
            times.append(time.perf_counter() - start)

        for _ in range(5):
            scrape()
        print(
            f"{PARTITIONS:,} partitions: a page of {sizes[-1] / 1e6:.1f} MB takes "
            f"{statistics.median(times):.2f} s (longest {max(times):.2f} s)"
        )
        send_times(broker.bootstrap_servers, 200)
        quiet = send_times(broker.bootstrap_servers, SENDS)
        over = threading.Event()

        def scrape_often() -> None:
            while not over.wait(1):
                scrape()

        scraper = threading.Thread(target=scrape_often)
        scraper.start()
        busy = send_times(broker.bootstrap_servers, SENDS)
        over.set()
        scraper.join()
        print(
            f"small produces: p99 {p99(quiet):.2f} ms, scraped every second {p99(busy):.2f} ms "
            f"(p50 {quiet[len(quiet) // 2] * 1000:.2f} and {busy[len(busy) // 2] * 1000:.2f} ms)"
        )
    finally:
        broker.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
        brokers = {
            "without": BrokerProcess(Path(folder, "without"), num_partitions=8).start(),
            "with": BrokerProcess(
                Path(folder, "with"), num_partitions=8, metrics_listener=url
            ).start(),
        }
        try:
            compare(f"{SMALL_REQUESTS:,} small produces", brokers, small_requests)
            compare(f"{BATCHED_RECORDS:,} records in batches", brokers, batches)
        finally:
            for broker in brokers.values():
                broker.stop()
        scrapes(Path(folder, "many"))


if __name__ == "__main__":
    main()
