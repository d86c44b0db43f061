"""A partition that grows: appending, fetching and opening must not care how large it is.

`BENCH_LOG_GB` sets how large it gets (2). Opening is measured after a clean stop and after the end
of the process at a moment when only the newest segment was not known to be flushed.

The peer of an append is the same bytes written to a plain file right after it: past some gigabytes
the kernel slows down whoever writes, until the disk has caught up.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import tempfile
import time

from benchmarks.machine import MEGABYTE
from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.log import Log
from ottla.log.log_manager import LogManager
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import assign_offset
from ottla.runtime import Runtime, real_runtime
from ottla.structs import NO_UUID, TopicPartition

LARGEST = int(float(os.environ.get("BENCH_LOG_GB", "2")) * 1000 * MEGABYTE)
SIZES = [10, 100, 500, 1000, 2000, 5000, 10_000]
PARTITION = TopicPartition("large", 0)
NOW_MS = 1_700_000_000_000
RECORDS = 150
WINDOW_BYTES = 200 * MEGABYTE
FETCHES = 2000
FETCH_BYTES = 1 << 20
SEGMENT_BYTES = 256 * MEGABYTE


async def open_logs(runtime: Runtime, directory: str) -> tuple[LogManager, float]:
    """A log manager, and how long it took to load the logs."""
    config = BrokerConfig.parse({"log.dirs": directory})
    settings = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": "-1", "retention.ms": "-1"}
    topic_config = TopicConfig.of(config, settings)
    manager = LogManager(runtime, config, lambda _: topic_config)
    manager.acquire()
    start = time.perf_counter()
    await manager.startup()
    return manager, time.perf_counter() - start


async def grow(log: Log, data: memoryview, size: int) -> float:
    """Append until the log has a size; MB/s of the last appends."""
    measured_from = max(log.size_in_bytes, size - WINDOW_BYTES)
    written, seconds = 0, 0.0
    current = log.size_in_bytes
    while current < size:
        start = time.perf_counter()
        for _ in range(100):
            assign_offset(data, 0, 0, -1)
            log.append_as_leader(data, 0, now_ms=NOW_MS)
        if current >= measured_from:
            seconds += time.perf_counter() - start
            written += 100 * len(data)
        current += 100 * len(data)
        log.update_high_watermark(log.log_end_offset)
        await asyncio.sleep(0)  # flushes of closed segments end here
    return written / MEGABYTE / seconds


def plain_append(file: io.FileIO, data: memoryview) -> float:
    """MB/s of the same appends to a plain file."""
    count = WINDOW_BYTES // len(data)
    start = time.perf_counter()
    for _ in range(count):
        file.write(data)
    return count * len(data) / MEGABYTE / (time.perf_counter() - start)


def fetch_microseconds(log: Log) -> tuple[float, float]:
    """A fetch anywhere in the log, and one at its end: what the broker does before sendfile."""
    end = log.log_end_offset
    spread = [end * 7919 * number % end for number in range(FETCHES)]
    result = []
    for offsets in (spread, [end - RECORDS] * FETCHES):
        start = time.perf_counter()
        for offset in offsets:
            log.read(offset, FETCH_BYTES, max_offset=end, min_one_message=True)
        result.append((time.perf_counter() - start) / FETCHES * 1e6)
    return result[0], result[1]


async def run(directory: str) -> None:
    logging.getLogger("ottla.log").setLevel(logging.ERROR)
    runtime = real_runtime(asyncio.get_running_loop())
    manager, _ = await open_logs(runtime, directory)
    log = manager.get_or_create_log(PARTITION, NO_UUID)
    data = memoryview(bytearray(build_batch([(NOW_MS, None, os.urandom(100), ())] * RECORDS)))
    plain_file = io.FileIO(f"{directory}/plain", "w")
    print(f"{'size':>9} {'append':>11} {'plain file':>11} {'fetch anywhere':>15} {'at end':>9}")
    for megabytes in sorted({*SIZES, LARGEST // MEGABYTE}):
        if megabytes * MEGABYTE <= LARGEST:
            append = await grow(log, data, megabytes * MEGABYTE)
            plain = plain_append(plain_file, data)
            anywhere, at_end = fetch_microseconds(log)
            print(
                f"{megabytes:>6} MB {append:>6.0f} MB/s {plain:>6.0f} MB/s "
                f"{anywhere:>12.1f} us {at_end:>6.1f} us",
                flush=True,
            )
    plain_file.close()
    await manager.shutdown()
    manager, clean = await open_logs(runtime, directory)
    print(f"opened after a clean stop in {clean * 1e3:.0f} ms   aim: under 1000 ms")
    await die(manager)
    manager, killed = await open_logs(runtime, directory)
    active = manager.get_log(PARTITION)
    assert active is not None, "the log is there"
    scanned = active.segments.active.size
    print(f"opened after kill -9 in {killed * 1e3:.0f} ms, {scanned / MEGABYTE:.0f} MB scanned")
    await manager.shutdown()
    await runtime.close()


async def die(manager: LogManager) -> None:
    """What kill -9 leaves: no clean stop is marked, the locks are gone."""
    for log_dir in manager.dirs:
        log_dir.mark_in_use()
        log_dir.release()


def main() -> None:
    """Print a line for each size."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory))


if __name__ == "__main__":
    main()
