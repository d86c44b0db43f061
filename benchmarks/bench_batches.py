"""Micro-batches of the pipelines at a steady rate: how long they take, and on what.

Each pipeline runs as `ottla pipeline run NAME --continuous` runs it, on local[2], while events come
in at a steady rate; the broker and the feed share the cores. Two others run beside them, in the
same way: Spark alone (its source `rate`, rows that go nowhere), which is the limit, and the first
pipeline in a session with the settings of Spark itself, which is what its user has.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.pipelines import runner
from ottla.pipelines.execution import Execution, RunOptions
from ottla.pipelines.pipeline import PIPELINES, FeedRequest, Pipeline, load_pipeline
from ottla.pipelines.topics import Pace, create_topics, publish
from ottla.runtime.java import JavaMissingError, require_java
from ottla.testing.processes import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))
WARM_UP_S = float(os.environ.get("BENCH_WARM_UP_SECONDS", "30"))
PER_SECOND = int(os.environ.get("BENCH_PER_SECOND", "1000"))
NAMES = os.environ.get("BENCH_PIPELINES", "word_count " + " ".join(PIPELINES)).split()
SEED = 2011
LIMIT_MS = 300
PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
KEPT = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}

Progress = Mapping[str, Any]


class Measured:
    """The batches with rows of each query that began after the warm-up."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._started_s = time.monotonic()
        self._begun: dict[str, int] | None = None
        self.batches: dict[str, list[Progress]] = defaultdict(list)

    def is_over(self) -> bool:
        """Whether the time is over; takes note of the batches when it is."""
        passed_s = time.monotonic() - self._started_s
        if passed_s > WARM_UP_S and self._begun is None:
            self._begun = {name: len(found) for name, found in self._progress().items()}
        if passed_s < WARM_UP_S + SECONDS:
            return False
        begun = self._begun or {}
        for name, found in self._progress().items():
            rows = [each for each in found[begun.get(name, 0) :] if each["numInputRows"]]
            self.batches[name] = [each for each in rows if "addBatch" in each["durationMs"]]
        return True

    def _progress(self) -> dict[str, list[Progress]]:
        return {
            query.name or "query": [json.loads(each.json) for each in query.recentProgress]
            for query in self._spark.streams.active
        }


def report(what: str, batches: Sequence[Progress]) -> float:
    """A line with the percentiles and the medians of the phases; returns the median."""
    if len(batches) < 2:
        print(f"{what:<52} {len(batches)} batches: too few to tell", flush=True)
        return float("inf")
    times = sorted(each["durationMs"]["triggerExecution"] for each in batches)
    p50, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
    rows = statistics.median(each["numInputRows"] for each in batches)
    phases = "  ".join(
        f"{phase} {statistics.median(each['durationMs'].get(phase, 0) for each in batches):.0f}"
        for phase in PHASES
    )
    print(
        f"{what:<52} {len(times):>4} batches of {rows:>5,.0f} rows  "
        f"p50 {p50:>6,.0f} ms  p95 {p95:>6,.0f} ms  ({phases})",
        flush=True,
    )
    return p50


def run_pipeline(spark: SparkSession, pipeline: Pipeline, folder: Path) -> Measured:
    """Feed the pipeline, on a broker of its own, until the time is over."""
    broker = BrokerProcess(folder / "data").start()
    is_over = threading.Event()
    count = int((WARM_UP_S + SECONDS) * PER_SECOND * 2)
    events = pipeline.feeds["sample"](FeedRequest(count, SEED))
    try:
        create_topics(broker.bootstrap_servers, pipeline)
        feed = threading.Thread(
            target=publish,
            args=(broker.bootstrap_servers, events, Pace(PER_SECOND, is_over.is_set)),
        )
        execution = Execution(spark, pipeline, broker.bootstrap_servers, folder, RunOptions())
        feed.start()
        try:
            measured = Measured(spark)
            execution.run_continuously(lambda at_s, batch: None, measured.is_over)
        finally:
            is_over.set()
            feed.join()
    finally:
        broker.stop()
    return measured


def run_rate(spark: SparkSession, folder: Path) -> Measured:
    """Spark alone: as many rows of its own making, into nowhere."""
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", PER_SECOND)
        .load()
        .writeStream.format("noop")
        .queryName("rate")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    measured = Measured(spark)
    try:
        while not measured.is_over():
            query.awaitTermination(1)
    finally:
        query.stop()
    return measured


def medians(
    what: str, spark: SparkSession, run: Callable[[SparkSession, Path], Measured]
) -> list[float]:
    """The median of each query, which are printed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measured = run(spark, Path(folder))
    return [report(f"{what}{name}", batches) for name, batches in measured.batches.items()]


def of_pipeline(name: str) -> Callable[[SparkSession, Path], Measured]:
    pipeline = load_pipeline(name)
    return lambda spark, folder: run_pipeline(spark, pipeline, folder)


def session_medians(names: Sequence[str], is_plain: bool) -> dict[str, float]:
    """The slowest query of each pipeline in a session of its own, ours or a plain one."""
    if is_plain:
        runner.SETTINGS.clear()
        runner.LOCAL_SETTINGS.clear()
    head = "Spark's own settings, " if is_plain else ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "spark.log"
        spark = runner.spark_session(
            "bench", settings=KEPT, small_batches=not is_plain, log_path=log
        )
        try:
            if not is_plain:
                medians("limit: Spark alone, ", spark, run_rate)
            return {name: max(medians(head, spark, of_pipeline(name))) for name in names}
        finally:
            spark.stop()


def main() -> None:
    names = list(dict.fromkeys(NAMES))
    print(
        f"{PER_SECOND:,} events a second for {SECONDS:.0f} s after {WARM_UP_S:.0f} s to warm up, "
        f"local[2]; triggerExecution, and medians of its phases, in ms",
        flush=True,
    )
    try:
        require_java()
    except JavaMissingError as error:
        print(f"skipped: {error}")
        return
    # Each session has a JVM of its own: settings of one would stay for the next.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        ours = pool.submit(session_medians, names, False).result()
        plain = pool.submit(session_medians, names[:1], True).result()
    if plain[names[0]] < float("inf"):
        ratio = plain[names[0]] / ours[names[0]]
        print(f"{names[0]}: Spark's own settings take {ratio:.1f} times as long")
    slow = [name for name, p50 in ours.items() if p50 > LIMIT_MS]
    print(f"p50 above {LIMIT_MS} ms: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
