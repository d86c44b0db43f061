"""Appends to and reads from one log, without a network, beside what the machine can do.

Each line shows one batch size. `pwrite` is the bare system call with the same bytes into a file of
the same directory, measured in the same run: what is between the two is ours.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.log import Log
from ottla.log.log_manager import LogManager
from ottla.log.log_retention import delete_old_segments
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import assign_offset
from ottla.runtime import real_runtime
from ottla.structs import NO_UUID, TopicPartition

BATCHES = {"1 x 100 B": 1, "16 kB": 150, "64 kB": 600, "1 MB": 9300}
SECONDS = 0.5
LARGEST_FILE = 512 << 20
FETCH_BYTES = 1 << 20


def operations_per_second(operation: Callable[[], object], seconds: float) -> float:
    """How often `operation` runs in a second, the clock being read only now and then."""
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for _ in range(20):
            operation()
        count += 20
    return count / elapsed


def bench_pwrite(log: Log, data: memoryview, seconds: float) -> float:
    """The bare write, into a file that is begun anew when it gets large, as a segment is."""
    disk = log.log_dir.disk
    path = f"{log.log_dir.path}/raw"
    raw = disk.open(path, create=True)
    position = 0

    def write() -> None:
        nonlocal position
        raw.pwrite(data, position)
        position += len(data)
        if position > LARGEST_FILE:
            raw.truncate(0)
            position = 0

    try:
        return operations_per_second(write, seconds)
    finally:
        raw.close()
        disk.unlink(path)


def bench_append(log: Log, data: memoryview, seconds: float) -> float:
    """append_as_leader, as the produce path calls it."""

    def append() -> None:
        assign_offset(data, 0, 0, -1)
        log.append_as_leader(data, 0, now_ms=1_700_000_000_000)
        log.update_high_watermark(log.log_end_offset)
        if log.size_in_bytes > LARGEST_FILE:
            log.maybe_increment_log_start_offset(log.log_end_offset)
            log.roller.roll()
            delete_old_segments(log, 0)

    return operations_per_second(append, seconds)


def bench_tail_read(log: Log, record_count: int, seconds: float) -> float:
    """Reading the newest batch, as a consumer that keeps up does."""
    end = log.log_end_offset

    def read() -> None:
        log.read(end - record_count, FETCH_BYTES, max_offset=end, min_one_message=True)

    return operations_per_second(read, seconds)


def bench_sequential_read(log: Log, record_count: int, seconds: float) -> tuple[float, float]:
    """Fetches of 1 MB from the start to the end: fetches and bytes per second."""
    log.segments.active.recent.truncate(0)
    size = log.segments.active.size // max(1, log.log_end_offset - log.segments.active.base_offset)
    offset = start = log.segments.active.base_offset
    fetched = 0

    def read() -> None:
        nonlocal offset, fetched
        end = log.log_end_offset
        data = log.read(offset, FETCH_BYTES, max_offset=end, min_one_message=True)
        if data.records is None:
            offset = start
            return
        fetched += data.records.size
        offset += data.records.size // size // record_count * record_count or record_count

    rate = operations_per_second(read, seconds)
    return rate, fetched / seconds


async def run(directory: str, seconds: float) -> None:
    """Every batch size in a partition of its own."""
    logging.getLogger("ottla.log").setLevel(logging.ERROR)
    runtime = real_runtime(asyncio.get_running_loop())
    config = BrokerConfig.parse({"log.dirs": directory, "log.segment.delete.delay.ms": "0"})
    topic_config = TopicConfig.of(config, {"max.message.bytes": "10000000"})
    manager = LogManager(runtime, config, lambda _: topic_config)
    manager.acquire()
    await manager.startup()
    print(
        f"{'batch':>10} {'bytes':>8} {'append':>10} {'pwrite':>10} {'ours':>8} {'append':>9} "
        f"{'tail read':>10} {'scan read':>10} {'scan':>9}"
    )
    print(
        f"{'':>10} {'':>8} {'op/s':>10} {'op/s':>10} {'us/op':>8} {'MB/s':>9} "
        f"{'us/op':>10} {'us/op':>10} {'MB/s':>9}"
    )
    for number, (name, count) in enumerate(BATCHES.items()):
        log = manager.get_or_create_log(TopicPartition("bench", number), NO_UUID)
        records = [(1_700_000_000_000, None, b"x" * 100, ())] * count
        data = memoryview(bytearray(build_batch(records)))
        pwrite = bench_pwrite(log, data, seconds)
        append = bench_append(log, data, seconds)
        tail = bench_tail_read(log, count, seconds)
        scan, scan_bytes = bench_sequential_read(log, count, seconds)
        print(
            f"{name:>10} {len(data):>8} {append:>10.0f} {pwrite:>10.0f} "
            f"{1e6 / append - 1e6 / pwrite:>8.2f} {append * len(data) / 1e6:>9.0f} "
            f"{1e6 / tail:>10.2f} {1e6 / scan:>10.2f} {scan_bytes / 1e6:>9.0f}"
        )
        manager.delete_log(log.topic_partition)
        await asyncio.sleep(0.05)
    await manager.shutdown()
    await runtime.close()


def main() -> None:
    """Print a line for each batch size."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory, SECONDS))


if __name__ == "__main__":
    main()
