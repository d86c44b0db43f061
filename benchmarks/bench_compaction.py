"""Compacts a log with ten records a key, beside a plain copy of the same bytes.

The log is read twice, once for its keys and once for what stays. `copy` reads and writes all of
its bytes once, with the same calls to the same disk, in the same run.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import time

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.extensions.cleaner.log_cleaner import LogCleaner
from ottla.log.log import Log
from ottla.log.log_manager import LogManager
from ottla.record import kernel
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.runtime import Runtime, real_runtime
from ottla.structs import NO_UUID, TopicPartition

RECORDS = 1_000_000
DUPLICATES = 10
VALUE = bytes(range(100))
NOW_MS = 1_700_000_000_000
CHUNK = 256 * 1024
# Records a batch, and the codec.
CASES = {
    "1000 a batch": (1000, CompressionType.NONE),
    "100 a batch": (100, CompressionType.NONE),
    "1000 a batch, lz4": (1000, CompressionType.LZ4),
    "1 a batch": (1, CompressionType.NONE),
}


def fill(log: Log, per_batch: int, codec: CompressionType) -> None:
    """Append a million records of a hundred thousand keys, in random order."""
    keys = [b"key-%08d" % (number % (RECORDS // DUPLICATES)) for number in range(RECORDS)]
    random.Random(1).shuffle(keys)
    for start in range(0, RECORDS, per_batch):
        records = [(NOW_MS, key, VALUE, ()) for key in keys[start : start + per_batch]]
        log.append_as_leader(memoryview(bytearray(build_batch(records, codec))), 0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    log.roller.roll()


def copy(runtime: Runtime, log: Log) -> float:
    """Seconds for reading and writing the files of the log as they are."""
    start = time.perf_counter()
    for segment in log.segments:
        target = runtime.disk.open(f"{log.dir}/copy", create=True)
        for position in range(0, segment.size, CHUNK):
            target.pwrite(segment.file.pread(CHUNK, position), position)
        target.fsync()
        target.close()
    return time.perf_counter() - start


async def longest_pause(stop: asyncio.Event) -> float:
    """For how long the loop could not run anything, at worst."""
    longest = 0.0
    while not stop.is_set():
        start = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - start - 0.001)
    return longest


async def compact(cleaner: LogCleaner) -> tuple[float, float]:
    """Seconds that a round takes, and the longest pause of the loop meanwhile."""
    stop = asyncio.Event()
    watch = asyncio.create_task(longest_pause(stop))
    await asyncio.sleep(0.01)
    start = time.perf_counter()
    cleaner.clean_filthiest()
    await cleaner.finish()
    seconds = time.perf_counter() - start
    stop.set()
    return seconds, await watch


async def run(directory: str) -> None:
    """Every case in a partition of its own."""
    logging.getLogger("ottla.log").setLevel(logging.ERROR)
    runtime = real_runtime(asyncio.get_running_loop())
    config = BrokerConfig.parse(
        {
            "log.dirs": directory,
            "log.segment.delete.delay.ms": "0",
            "log.cleaner.backoff.ms": str(1 << 40),
        }
    )
    settings = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
    topic_config = TopicConfig.of(config, settings)
    manager = LogManager(runtime, config, lambda _: topic_config)
    cleaner = LogCleaner(manager)
    manager.attach(cleaner)
    manager.acquire()
    await manager.startup()
    print(f"{RECORDS:,} records, {DUPLICATES} a key; compiled loops: {kernel.COMPILED}")
    print(
        f"{'':>18} {'MB':>6} {'seconds':>8} {'MB/s':>6} {'copy s':>7} {'left':>8} {'pause ms':>9}"
    )
    for number, (name, (per_batch, codec)) in enumerate(CASES.items()):
        log = manager.get_or_create_log(TopicPartition("bench", number), NO_UUID)
        fill(log, per_batch, codec)
        log.flush()
        while log.recovery_point < log.log_end_offset:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
        size = log.size_in_bytes
        copy_seconds = copy(runtime, log)
        seconds, pause = await compact(cleaner)
        left = sum(batch.record_count for s in log.segments for _, batch in s.headers_from(0))
        print(
            f"{name:>18} {size / 1e6:>6.0f} {seconds:>8.2f} {size / 1e6 / seconds:>6.0f} "
            f"{copy_seconds:>7.2f} {left:>8} {pause * 1000:>9.1f}"
        )
        manager.delete_log(log.topic_partition)
        await asyncio.sleep(0.05)
    await manager.shutdown()
    await runtime.close()


def main() -> None:
    """Print a line for each case."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(directory))


if __name__ == "__main__":
    main()
