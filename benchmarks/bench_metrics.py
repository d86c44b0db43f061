"""What metrics cost: the broker's CPU time with and without them, and a page of 5,000 partitions.

The peer is the same broker, in the same process, while it measures nothing. Rounds alternate, and
CPU time is what the kernel has charged to the broker's thread: a busy machine disturbs both alike,
and makes some rounds dearer than others, so that the cheapest ones are compared as well. There are
as many rounds as the time for them allows, and a few at least.
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

from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker
from ottla.testing.processes import BrokerProcess

ROUNDS = int(os.environ.get("BENCH_METRICS_ROUNDS", "40"))
LEAST_ROUNDS = 4
SECONDS = float(os.environ.get("BENCH_METRICS_SECONDS", "120"))
"""For the rounds of a load."""
LIMIT_SECONDS = 600
"""Until topics are created and a page has come; a busy machine may take its time."""
SMALL_REQUESTS = 3_000
BATCHED_RECORDS = 100_000
PARTITIONS = int(os.environ.get("BENCH_METRICS_PARTITIONS", "5000"))
TOPICS = 50
SENDS = 2_000


def cpu_seconds(thread_id: int) -> float:
    """For how long the kernel has had a thread of this process on a processor, to the ns."""
    return int(Path(f"/proc/self/task/{thread_id}/schedstat").read_text().split()[0]) / 1e9


def small_requests(producer: Producer) -> None:
    """Requests of one record each, one at a time in flight for each of 8 partitions."""
    for number in range(SMALL_REQUESTS):
        producer.produce("small", bytes(100), partition=number % 8)
        producer.poll(0)
    producer.flush()


def batches(producer: Producer) -> None:
    """Records of 100 bytes in batches as the client makes them."""
    for _ in range(BATCHED_RECORDS):
        producer.produce("batched", bytes(100))
        producer.poll(0)
    producer.flush()


async def native_id() -> int:
    """The system's number for the thread that runs it."""
    return threading.get_native_id()


class Toggled:
    """A broker in this process that measures its requests, or does not."""

    def __init__(self, running: InProcessBroker) -> None:
        self.apis = running.broker.apis
        self.meter = self.apis.meter
        self.thread_id = running.run(native_id())

    def spend(self, load: Callable[[], None], measures: bool) -> float:
        """Seconds of CPU that the broker's thread takes for a load."""
        self.apis.meter = self.meter if measures else None
        before = cpu_seconds(self.thread_id)
        load()
        return cpu_seconds(self.thread_id) - before


def compare(title: str, count: int, broker: Toggled, load: Callable[[], None]) -> None:
    """The median of what metrics cost, round by round, beside the same round without them."""
    broker.spend(load, measures=True)  # the first one warms up
    pairs: list[tuple[float, float]] = []
    over = time.monotonic() + SECONDS
    while len(pairs) < ROUNDS and (len(pairs) < LEAST_ROUNDS or time.monotonic() < over):
        order = (False, True) if len(pairs) % 2 else (True, False)
        spent = {measures: broker.spend(load, measures) for measures in order}
        pairs.append((spent[False], spent[True]))
    without, least = zip(*pairs, strict=True)
    more = sorted(after / before - 1 for before, after in pairs)
    quarter = len(more) // 4
    print(
        f"{title}: {1e6 * statistics.median(without) / count:.2f} us of CPU each without metrics; "
        f"with them {100 * statistics.median(more):+.1f} % (median of {len(more)} rounds; half of "
        f"them from {100 * more[quarter]:+.1f} to {100 * more[-1 - quarter]:+.1f} %; the cheapest "
        f"rounds {100 * (min(least) / min(without) - 1):+.1f} %)",
        flush=True,
    )


def cost() -> None:
    """One broker that measures in every second round: all else is the same."""
    with InProcessBroker(num_partitions=8, metrics_listener="http://127.0.0.1:0") as running:
        broker = Toggled(running)
        address = {"bootstrap.servers": running.bootstrap_servers, "log_level": 0}
        one = Producer({**address, "linger.ms": 0, "batch.size": 1})
        compare("small produces", SMALL_REQUESTS, broker, lambda: small_requests(one))
        many = Producer({**address, "linger.ms": 5, "queue.buffering.max.messages": 500_000})
        compare("records in batches", BATCHED_RECORDS, broker, lambda: batches(many))


def send_times(bootstrap: str, count: int) -> list[float]:
    """Seconds for a record to be acknowledged, one after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
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
        waits = {"operation_timeout": LIMIT_SECONDS, "request_timeout": LIMIT_SECONDS}
        for future in admin.create_topics(topics, **waits).values():
            future.result(LIMIT_SECONDS)
        times, sizes = [], []

        def scrape() -> None:
            start = time.perf_counter()
            with urllib.request.urlopen(f"{url}/metrics", timeout=LIMIT_SECONDS) as answer:
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
    cost()
    with tempfile.TemporaryDirectory() as folder:
        scrapes(Path(folder, "many"))


if __name__ == "__main__":
    main()
