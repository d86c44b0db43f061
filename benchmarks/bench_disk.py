"""The disk in sequence and at random: the gap that a log is built around.

`BENCH_DISK_DIR` names the folder, the system's temporary one unless set; use your log directory.
Every write is synced to the device, since the page cache would hide the difference.
"""

from __future__ import annotations

import os
import tempfile
import time

from benchmarks.machine import MEGABYTE, median_of

RUNS = 3
FILE_BYTES = 128 << 20
SEQUENTIAL_CHUNK = 1 << 20
RANDOM_CHUNK = 4096
RANDOM_WRITES = 200
FSYNCS = 200


def sequential_mb_per_second(fd: int) -> float:
    """Write the whole file from front to back, and sync once."""
    data = os.urandom(SEQUENTIAL_CHUNK)
    start = time.perf_counter()
    for position in range(0, FILE_BYTES, SEQUENTIAL_CHUNK):
        os.pwrite(fd, data, position)
    os.fdatasync(fd)
    return FILE_BYTES / MEGABYTE / (time.perf_counter() - start)


def random_mb_per_second(fd: int) -> float:
    """Write small pieces anywhere in the file, each synced before the next."""
    data = os.urandom(RANDOM_CHUNK)
    places = FILE_BYTES // RANDOM_CHUNK
    start = time.perf_counter()
    for _ in range(RANDOM_WRITES):
        os.pwrite(fd, data, int.from_bytes(os.urandom(4), "big") % places * RANDOM_CHUNK)
        os.fdatasync(fd)
    return RANDOM_WRITES * RANDOM_CHUNK / MEGABYTE / (time.perf_counter() - start)


def fsync_ms(fd: int) -> list[float]:
    """How long each of many fsyncs takes after one small append, in order of size."""
    taken = []
    for number in range(FSYNCS):
        os.pwrite(fd, b"x" * RANDOM_CHUNK, FILE_BYTES + number * RANDOM_CHUNK)
        start = time.perf_counter()
        os.fsync(fd)
        taken.append(1000 * (time.perf_counter() - start))
    return sorted(taken)


def main() -> None:
    folder = os.environ.get("BENCH_DISK_DIR")
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        fd = file.fileno()
        sequential = median_of(RUNS, lambda: sequential_mb_per_second(fd))
        random = median_of(RUNS, lambda: random_mb_per_second(fd))
        taken = fsync_ms(fd)
    print(f"{file.name}")
    print(f"sequential writes {sequential:8.1f} MB/s")
    print(f"random writes     {random:8.3f} MB/s, {sequential / random:.0f} times slower")
    print(f"fsync             {taken[FSYNCS // 2]:8.2f} ms, p99 {taken[FSYNCS * 99 // 100]:.2f} ms")


if __name__ == "__main__":
    main()
