"""Many partitions: how long a broker takes to start with them, and what they cost when idle.

`BENCH_PARTITIONS` sets how many there are at the start (10000).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.machine import MEGABYTE
from ottla import Admin, NewTopic
from ottla.testing.processes import BrokerProcess

START_PARTITIONS = int(os.environ.get("BENCH_PARTITIONS", "10000"))
IDLE_PARTITIONS = 2000
IDLE_SECONDS = 30
PARTITIONS_PER_TOPIC = 1000
LIMIT_MS = 600_000


def create_partitions(broker: BrokerProcess, count: int) -> None:
    with Admin(
        broker.bootstrap_servers, request_timeout_ms=LIMIT_MS, default_api_timeout_ms=LIMIT_MS
    ) as admin:
        for start in range(0, count, PARTITIONS_PER_TOPIC):
            partitions = min(PARTITIONS_PER_TOPIC, count - start)
            admin.create_topics([NewTopic(f"many-{start}", partitions, 1)])


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def bench_start(folder: Path, count: int) -> None:
    """Start after a clean stop, and after kill -9."""
    broker = BrokerProcess(folder / "start").start()
    created = seconds(lambda: create_partitions(broker, count))
    stopped = seconds(broker.stop)
    clean = seconds(broker.start)
    cpu = psutil.Process(broker.pid).cpu_times()
    broker.kill()
    killed = seconds(broker.start)
    print(f"{count} partitions: created in {created:.1f} s, a clean stop takes {stopped:.1f} s")
    print(f"start after a clean stop {clean:5.1f} s   {cpu.user + cpu.system:.1f} s of a core")
    print(f"start after kill -9      {killed:5.1f} s")
    broker.stop()


def bench_idle(folder: Path, count: int) -> None:
    """What a broker does when nobody asks anything of it."""
    broker = BrokerProcess(folder / "idle").start()
    process = psutil.Process(broker.pid)
    without = process.memory_info().rss
    create_partitions(broker, count)
    broker.stop()
    broker.start()
    process = psutil.Process(broker.pid)
    with_partitions = process.memory_info().rss
    before = process.cpu_times()
    time.sleep(IDLE_SECONDS)
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    print(f"{count} idle partitions: {100 * used / IDLE_SECONDS:.2f} % of a core, aim: under 1 %")
    print(
        f"memory {with_partitions / MEGABYTE:.1f} MB, of a partition "
        f"{(with_partitions - without) / count / 1000:.1f} kB"
    )
    broker.stop()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench_start(Path(folder), START_PARTITIONS)
        bench_idle(Path(folder), IDLE_PARTITIONS)


if __name__ == "__main__":
    main()
