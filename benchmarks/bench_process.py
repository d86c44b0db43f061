"""`Consumer.process`: records a second with handlers that take a millisecond, on one partition.

16 workers can handle 16,000 of these a second. How close a machine comes without any consumer, by
threads or tasks that only sleep, stands above; `few keys` has 100 keys, of which no two records are
handled at once.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import ottla
from benchmarks import machine
from ottla import NewTopic, aio
from ottla.testing.processes import BrokerProcess

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
COUNT = int(os.environ.get("BENCH_RECORDS", "40000"))
WORKERS = 16
NAP_S = 0.001
FEW_KEYS = 100


def threads_alone() -> float:
    """Naps a second of as many threads that do nothing else."""

    def nap() -> None:
        for _ in range(COUNT // WORKERS):
            time.sleep(NAP_S)

    threads = [threading.Thread(target=nap) for _ in range(WORKERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return COUNT / (time.perf_counter() - began)


async def tasks_alone() -> float:
    """The same of tasks."""

    async def nap() -> None:
        for _ in range(COUNT // WORKERS):
            await asyncio.sleep(NAP_S)

    began = time.perf_counter()
    await asyncio.gather(*(nap() for _ in range(WORKERS)))
    return COUNT / (time.perf_counter() - began)


class Watch:
    """The time from the first record to the last one."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        self._seen = 0
        self._began = 0.0
        self.rate = 0.0

    def note(self) -> None:
        self._began = self._began or time.perf_counter()
        self._seen += 1
        if self._seen == COUNT:
            self.rate = COUNT / (time.perf_counter() - self._began)
            self._stop()


def by_threads(servers: str, topic: str, group: str) -> float:
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    with ottla.Consumer(servers, topics=[topic], **settings) as consumer:
        watch, lock = Watch(consumer.stop), threading.Lock()

        def handle(record: ottla.ConsumerRecord) -> None:
            time.sleep(NAP_S)
            with lock:
                watch.note()

        consumer.process(handle, workers=WORKERS)
    return watch.rate


async def by_tasks(servers: str, topic: str, group: str) -> float:
    settings = {"group_id": group, "auto_offset_reset": "earliest"}
    async with aio.Consumer(servers, topics=[topic], **settings) as consumer:
        watch = Watch(consumer.stop)

        async def handle(record: ottla.ConsumerRecord) -> None:
            await asyncio.sleep(NAP_S)
            watch.note()

        await consumer.process(handle, workers=WORKERS)
    return watch.rate


def measure(servers: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    def note(name: str, rate: float) -> None:
        found.setdefault(name, []).append(rate)

    with ottla.Admin(servers) as admin, ottla.Producer(servers) as producer:
        for topic, keys in (("many", COUNT), ("few", FEW_KEYS)):
            admin.create_topics([NewTopic(topic, 1)])
            values = [b"%d" % number for number in range(COUNT)]
            keyed = [b"%d" % (number % keys) for number in range(COUNT)]
            producer.send_values(topic, values, keys=keyed).result()
    for run in range(RUNS):
        note("threads alone", threads_alone())
        note("process, threads, many keys", by_threads(servers, "many", f"threads-{run}"))
        note("process, threads, few keys", by_threads(servers, "few", f"few-{run}"))
        note("tasks alone", asyncio.run(tasks_alone()))
        note("process, tasks, many keys", asyncio.run(by_tasks(servers, "many", f"tasks-{run}")))
    return found


def main() -> None:
    print(machine.describe())
    print(f"medians of {RUNS} runs of {COUNT:,} records, {WORKERS} workers, 1 ms each")
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            for name, rates in measure(broker.bootstrap_servers).items():
                print(f"{name:<28} {statistics.median(rates):>9,.0f}/s", flush=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
