"""The first micro-batch of a stream: how long after the session is there, and after the start.

Drivers take turns, each with a JVM of its own. Ours has Spark's Python processes forked with their
imports done; the peer's are PySpark's own (`PYSPARK_PYTHON` names the plain interpreter). The
stream copies a topic of a broker on this machine to another topic, from the beginning.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ottla
from ottla.pipelines.runner import spark_session
from ottla.runtime.java import JavaMissingError, require_java
from ottla.testing.processes import BrokerProcess

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = 1_000
LIMIT_S = 300


def drive(servers: str, target: str, folder: str) -> None:
    """A driver: prints the seconds that its first micro-batch took, without those of Spark."""
    spark = spark_session("first batch", short_run=True)
    began_s = time.monotonic()
    options = {"kafka.bootstrap.servers": servers}
    rows = spark.readStream.format("ottla").options(**options, subscribe="from")
    copied = rows.option("startingOffsets", "earliest").load().select("value").writeStream
    query = copied.format("ottla").options(**options, topic=target, checkpointLocation=folder)
    query.trigger(availableNow=True).start().awaitTermination()
    print(time.monotonic() - began_s, flush=True)
    spark.stop()


def times_s(servers: str, target: str, environment: dict[str, str]) -> tuple[float, float]:
    """Of a new driver: from its start to its end, and of its first micro-batch alone."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        said = subprocess.check_output(
            [sys.executable, "-m", "benchmarks.bench_first_batch", servers, target, folder],
            env={**os.environ, **environment},
            text=True,
            timeout=LIMIT_S,
        )
        return time.monotonic() - began_s, float(said.splitlines()[-1])


def main() -> None:
    """Print the medians of both, and their ratios."""
    try:
        require_java()
    except JavaMissingError as error:
        print(f"first batch: not measured: {error}")
        return
    kinds = {"forked": {}, "PySpark's own": {"PYSPARK_PYTHON": sys.executable}}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            servers = broker.bootstrap_servers
            with ottla.Producer(servers) as producer:
                for number in range(RECORDS):
                    producer.send("from", b"%d" % number)
            for number in range(ROUNDS):
                for name, environment in kinds.items():
                    target = f"to-{number}-{name[:1]}"
                    found[name].append(times_s(servers, target, environment))
        finally:
            broker.stop()
    medians = {
        name: tuple(statistics.median(each) for each in zip(*times, strict=True))
        for name, times in found.items()
    }
    for name, (whole, first) in medians.items():
        print(f"{name:<14} first micro-batch {first:5.1f} s   driver, start to end {whole:5.1f} s")
    (ours, our_first), (peers, peer_first) = medians.values()
    print(f"ratio of the first micro-batch {our_first / peer_first:.2f}, driver {ours / peers:.2f}")


if __name__ == "__main__":
    if sys.argv[1:]:
        drive(*sys.argv[1:])
    else:
        main()
