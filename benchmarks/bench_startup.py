"""Start-up time and idle memory, beside a bare Python interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.testing.processes import BrokerProcess

RUNS = 7


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """What the main thread of a process has computed: unlike its wait, it hardly changes with load.

    Bytecode must be compiled: run it without PYTHONDONTWRITEBYTECODE.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def bare_start() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - start


def broker_start(folder: Path) -> tuple[float, float, float, float]:
    """Seconds until ready on an empty data directory, then on the same one; CPU; idle megabytes."""
    broker = BrokerProcess(folder)
    start = time.perf_counter()
    broker.start()
    first = time.perf_counter() - start
    broker.stop()
    start = time.perf_counter()
    broker.start()
    again = time.perf_counter() - start
    cpu = cpu_seconds(broker.pid)
    memory = resident_megabytes(broker.pid)
    broker.stop()
    return first, again, cpu, memory


def main() -> None:
    bare = statistics.median(bare_start() for _ in range(RUNS))
    with tempfile.TemporaryDirectory() as folder:
        runs = [broker_start(Path(folder) / str(run)) for run in range(RUNS)]
    first, again, cpu, memory = (statistics.median(column) for column in zip(*runs, strict=True))
    print(f"bare interpreter            {bare * 1e3:6.0f} ms")
    print(f"broker ready, empty disk    {first * 1e3:6.0f} ms   aim: under 500 ms")
    print(f"broker ready, started again {again * 1e3:6.0f} ms")
    print(f"CPU until ready             {cpu * 1e3:6.0f} ms   aim: under 200 ms")
    print(f"resident memory when idle   {memory:6.1f} MB   aim: under 60 MB")


if __name__ == "__main__":
    main()
