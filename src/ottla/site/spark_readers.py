"""The readers of a site that run on Spark, in one application: pipelines and the warehouse load.

Each pipeline has its queries, its checkpoints and its thread; a slow one holds up no other. Where
it is stands in its checkpoints, which are read to tell the status: so it is true after a crash as
well.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipelines.execution import CHECKPOINTS, Execution, RunOptions
from ottla.pipelines.patient_query import make_current
from ottla.pipelines.pipeline import load_pipeline
from ottla.pipelines.progress_topic import ProgressTopic
from ottla.pipelines.runner import spark_session
from ottla.pipelines.topics import create_topics
from ottla.site.activity import INPUTS
from ottla.site.readers import (
    PAGE,
    STATUS_EVERY_S,
    TABLE,
    TOPIC_OF,
    WAREHOUSE,
    ReaderProgress,
    ended_by_signal,
    reader_parser,
)
from ottla.spark.offsets import Reach
from ottla.warehouse.delta import DeltaHome
from ottla.warehouse.table_location import Place
from ottla.warehouse.warehouse_load import LoadOptions, WarehouseLoad

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.execution import Batch
    from ottla.pipelines.pipeline import Pipeline

logger = logging.getLogger(__name__)

TRIGGER: Final = "2 seconds"
LOAD_EVERY_S: Final = 5.0


def site_pipeline(name: str) -> Pipeline:
    """A pipeline over the topics of the site."""
    return load_pipeline(name).reading(INPUTS[name])


def run(
    servers: str, folder: Path, master: str, over: threading.Event, *, has_progress: bool = False
) -> None:
    """Run all of them until it is over; the first failure ends the application and is raised.

    With `has_progress` each pipeline writes its batches to the topic of progress.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "spark.log"
    logging.basicConfig(filename=log, level=logging.WARNING, force=True)
    failures: list[BaseException] = []
    spark = spark_session("ottla site", master=master, small_batches=True, log_path=log)
    try:
        works: list[Callable[[], None]] = [
            _pipeline_work(spark, name, servers, folder / name, over, has_progress)
            for name in INPUTS
        ]
        works.append(_load_work(spark, servers, folder / WAREHOUSE, over))
        threads = [
            threading.Thread(target=_guarded(spark, work, failures, over), name="reader")
            for work in works
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        spark.stop()
    if failures:
        raise failures[0]


def _guarded(
    spark: SparkSession,
    work: Callable[[], None],
    failures: list[BaseException],
    over: threading.Event,
) -> Callable[[], None]:
    """The work in a thread of its own; a failure is kept, and ends the others."""

    def guarded() -> None:
        try:
            make_current(spark)
            work()
        except BaseException as error:
            logger.exception("a reader has failed")
            failures.append(error)
            over.set()

    return guarded


def _pipeline_work(
    spark: SparkSession,
    name: str,
    servers: str,
    folder: Path,
    over: threading.Event,
    has_progress: bool,
) -> Callable[[], None]:
    """The reader that runs a pipeline until it is over."""
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = site_pipeline(name)
    create_topics(servers, pipeline, folder / CHECKPOINTS)
    execution = Execution(spark, pipeline, servers, folder, RunOptions(trigger=TRIGGER))
    late = ReaderProgress.read(folder).late

    def tell() -> None:
        reached = reached_in(folder / CHECKPOINTS, TOPIC_OF[name])
        ReaderProgress(reached, sum(reached.values()), late + execution.tally.late).write(folder)

    def work() -> None:
        with _telling(tell), _progress(servers, name, folder, has_progress) as on_batch:
            execution.run_continuously(lambda at_s, batch: on_batch(batch), over.is_set)
        tell()

    return work


def _load_work(
    spark: SparkSession, servers: str, folder: Path, over: threading.Event
) -> Callable[[], None]:
    """The reader that loads page views into a Delta table, as often as there are new ones."""
    folder.mkdir(parents=True, exist_ok=True)
    source = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC_OF[WAREHOUSE]}
    load = WarehouseLoad(spark, DeltaHome(Place.of(folder / TABLE)), LoadOptions(source))
    status = ReaderProgress.read(folder)

    def work() -> None:
        while not over.is_set():
            loaded = load.step()
            if loaded is None:
                over.wait(LOAD_EVERY_S)
                continue
            ends = {partition.partition: end for partition, end in loaded.load.ends.items()}
            status.next_offsets |= ends
            status.records += loaded.row_count
            status.write(folder)

    return work


@contextmanager
def _progress(
    servers: str, name: str, folder: Path, has_progress: bool
) -> Iterator[Callable[[Batch], object]]:
    """A call for each batch of a pipeline, which may go to the topic of progress."""
    if not has_progress:
        yield lambda batch: None
        return
    with ProgressTopic(servers, name, folder.parent / PAGE) as topic:
        yield topic.batch


@contextmanager
def _telling(tell: Callable[[], None]) -> Iterator[None]:
    """Tell the status every half second while the block runs."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(STATUS_EVERY_S):
            tell()

    thread = threading.Thread(target=repeat, name="status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def reached_in(checkpoints: Path, topic: str) -> dict[int, int]:
    """The next offset of each partition that all queries below these checkpoints have committed."""
    reached: dict[int, int] = {}
    found = [_reached(each, topic) for each in sorted(checkpoints.glob("*/"))]
    for offsets in found:
        for number, offset in offsets.items():
            reached[number] = min(offset, reached.get(number, offset))
    return reached if all(found) else {}


def _reached(checkpoint: Path, topic: str) -> dict[int, int]:
    """The offsets that the last committed batch of one query has read of a topic."""
    commits = [int(each.name) for each in (checkpoint / "commits").glob("*") if each.name.isdigit()]
    if not commits:
        return {}
    lines = (checkpoint / "offsets" / str(max(commits))).read_text(encoding="utf-8").splitlines()
    reached: dict[int, int] = {}
    for line in lines[2:]:  # after the version and the metadata: a line for each source
        for partition, offset in Reach.from_json_object(json.loads(line)).offsets.items():
            if partition.topic == topic:
                reached[partition.partition] = offset
    return reached


if __name__ == "__main__":
    given = reader_parser(()).parse_args()
    over = ended_by_signal()
    run(*(given.bootstrap_server, given.folder, given.master, over), has_progress=given.progress)
