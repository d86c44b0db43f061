"""`ottla demo`: events through a broker and a Spark pipeline into a report, all of them counted."""

from __future__ import annotations

import logging
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command, CommandError, UsageError
from ottla.cli.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.access_log import LogLine
    from ottla.pipelines.tables import Table
    from ottla.pipelines.web_traffic.pipeline import Reconciliation, WebTrafficPipeline

TOPIC = "web-traffic"
PARTITIONS = 3
MAX_OFFSETS_PER_TRIGGER = 100_000
PRINTED_ROWS = 8
DEFAULT_OUTPUT = "demo-output"
REPORT = "report.html"
SPARK_LOG = "spark.log"


class DemoCommand(Command):
    """Starts a broker, publishes web-site events, runs the pipeline, checks and reports."""

    name = "demo"
    help = "Run events through a broker and a Spark pipeline into a report."
    examples = ("ottla demo --events 20000", "ottla demo --log access.log --output report")

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--log",
            metavar="PATH",
            help="Replay this access log (combined format). Default: generated events.",
        )
        parser.add_argument(
            "--events", metavar="N", type=int, help="Generate so many events. Default: 100000."
        )
        parser.add_argument(
            "--seed",
            metavar="S",
            type=int,
            help="Generate other events: the same seed makes the same ones. Default: 2011.",
        )
        parser.add_argument(
            "--output",
            metavar="DIR",
            default=DEFAULT_OUTPUT,
            help="Folder for the Parquet tables and report.html; what a former run left in it is "
            f"replaced. Default: {DEFAULT_OUTPUT}.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        source = event_source(arguments)
        require_packages()
        with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
            demo = Demo(terminal, source, Path(arguments.output), Path(folder))
            return demo.run()


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where the events come from, in words and in fact."""

    words: str
    lines: Iterable[LogLine]


def event_source(arguments: Namespace) -> EventSource:
    """A log file, or generated events where none is given."""
    from ottla.pipelines.access_log import log_lines, read_lines
    from ottla.pipelines.site_activity import DEFAULT_EVENTS, DEFAULT_SEED, SiteActivity

    if arguments.log is not None:
        if arguments.events is not None or arguments.seed is not None:
            raise UsageError("--events and --seed go with generated events, not with --log")
        path = Path(arguments.log)
        if not path.is_file():
            raise CommandError(f"--log {path}: there is no such file")
        return EventSource(f"The access log {path.name}", read_lines(path))
    events = DEFAULT_EVENTS if arguments.events is None else arguments.events
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    if events < 1:
        raise UsageError(f"--events {events}: must be at least 1")
    words = f"{events:,} generated events (no log was given; seed {seed})"
    return EventSource(words, log_lines(SiteActivity(seed, events).lines()))


def require_packages() -> None:
    """What Spark needs beside this package, checked before anything is started."""
    from importlib.util import find_spec

    from ottla.pipelines.java import JavaMissingError, require_java

    missing = [
        name for name in ("pyspark", "pyarrow", "matplotlib", "jinja2") if find_spec(name) is None
    ]
    if missing:
        raise CommandError(f"{', '.join(missing)} missing: pip install 'ottla[spark]'")
    try:
        require_java()
    except JavaMissingError as error:
        raise CommandError(str(error)) from None


@dataclass(slots=True)
class Progress:
    """Says on the terminal what is done now, and how long it took when it is done."""

    terminal: Terminal
    steps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        self.terminal.out.write(f"{name} ... ")
        self.terminal.out.flush()
        step = Step(time.perf_counter())
        try:
            yield step
        except BaseException:
            self.terminal.print("not done")
            raise
        seconds = time.perf_counter() - step.start_s
        self.steps.append((name, seconds))
        rate = f", {step.rows:,} rows, {step.rows / seconds:,.0f} rows/s" if step.rows else ""
        self.terminal.print(f"{seconds:.1f} s{rate}")
        self.terminal.out.flush()


@dataclass(slots=True)
class Step:
    """One step under way; who knows how many rows it handled says so here."""

    start_s: float
    rows: int = 0


class Demo:
    """One run; the broker and Spark live as long as it does."""

    def __init__(self, terminal: Terminal, source: EventSource, output: Path, folder: Path) -> None:
        self._terminal = terminal
        self._source = source
        self._output = output
        self._folder = folder
        self._progress = Progress(terminal)

    def run(self) -> int:
        """The exit status: 1 if anything was lost or duplicated."""
        from ottla.testing.broker_process import BrokerProcess

        self._terminal.print(f"events: {self._source.words}")
        clear_output(self._output)
        # What libraries log would break up the lines of progress; it goes where Spark's log goes.
        logging.basicConfig(filename=self._output / SPARK_LOG, level=logging.WARNING, force=True)
        broker = BrokerProcess(self._folder / "data")
        try:
            with self._progress.step("starting a broker"):
                broker.start()
            published = self._publish(broker.bootstrap_servers)
            return self._pipeline(broker.bootstrap_servers, published)
        finally:
            broker.stop()

    def _publish(self, servers: str) -> int:
        """Every line as a record; returns how many the broker acknowledged."""
        from ottla import Admin, NewTopic, Producer
        from ottla.pipelines.web_traffic.dead_letters import dead_letter_topic

        topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(dead_letter_topic(TOPIC), 1, 1)]
        names = " and ".join(topic.name for topic in topics)
        with self._progress.step(f"creating the topics {names}"), Admin(servers) as admin:
            admin.create_topics(topics)
        with self._progress.step(f"publishing to {TOPIC}, keyed by client address") as step:
            with Producer(servers, acks="all", linger_ms=20, batch_size=256 * 1024) as producer:
                futures = [
                    producer.send(TOPIC, line.value, key=line.key) for line in self._source.lines
                ]
                producer.flush()
                for future in futures:
                    future.result()
            step.rows = len(futures)
        if not step.rows:
            raise CommandError("there is nothing to publish: the log is empty")
        return step.rows

    def _pipeline(self, servers: str, published: int) -> int:
        from pyspark.errors import PySparkException

        from ottla.pipelines.runner import spark_session
        from ottla.pipelines.web_traffic.pipeline import WebTrafficPipeline

        with self._progress.step("starting Spark"):
            log_path = self._output / SPARK_LOG
            spark = spark_session("ottla demo", short_run=True, log_path=log_path)
        try:
            pipeline = WebTrafficPipeline(
                spark, servers, TOPIC, self._output, MAX_OFFSETS_PER_TRIGGER
            )
            self._ingest(pipeline)
            tables = self._aggregate(pipeline)
            with self._progress.step("comparing the tables with the topic"):
                counts = pipeline.reconcile()
            self._report(tables, counts, published, spark)
        except PySparkException as error:
            raise CommandError(
                f"Spark failed, {self._output / SPARK_LOG} has all of it: {cause_of(error)}"
            ) from error
        finally:
            spark.stop()
        return self._conclude(tables, counts, published)

    def _ingest(self, pipeline: WebTrafficPipeline) -> None:
        with self._progress.step("reading the topic, parsing, writing Parquet") as step:

            def on_batch(batch_id: int, rows: int) -> None:
                step.rows += rows
                seconds = time.perf_counter() - step.start_s
                self._terminal.out.write(f"batch {batch_id}: {rows:,} rows at {seconds:.1f} s ... ")
                self._terminal.out.flush()

            pipeline.ingest(on_batch)

    def _aggregate(self, pipeline: WebTrafficPipeline) -> dict[str, Table]:
        from ottla.pipelines.tables import Table
        from ottla.pipelines.web_traffic.pipeline import TABLES

        tables = {}
        for name in TABLES:
            with self._progress.step(f"computing {name}") as step:
                tables[name] = Table.read(pipeline.aggregate(name))
                step.rows = len(tables[name].rows)
        return tables

    def _report(
        self,
        tables: dict[str, Table],
        counts: Reconciliation,
        published: int,
        spark: SparkSession,
    ) -> None:
        import platform

        from ottla.pipelines.report import Run, write_report
        from ottla.pipelines.web_traffic.transformations import MAX_REQUESTS_PER_MINUTE
        from ottla.version import __version__

        with self._progress.step("drawing the report"):
            run = Run(
                self._source.words,
                published,
                counts,
                MAX_REQUESTS_PER_MINUTE,
                tables,
                self._progress.steps,
                f"Ottla {__version__}, Spark {spark.version}, Python {platform.python_version()}",
            )
            write_report(run, self._output / REPORT)

    def _conclude(self, tables: dict[str, Table], counts: Reconciliation, published: int) -> int:
        """Print the tables and the one line that says whether every event arrived once."""
        for name, table in tables.items():
            self._terminal.print(f"\n{name} ({len(table.rows):,} rows)")
            self._terminal.print(table.as_text(PRINTED_ROWS))
        from ottla.pipelines.web_traffic.dead_letters import dead_letter_topic

        parsed = counts.rows - counts.malformed
        self._terminal.print(
            f"\nreport: {self._output / REPORT}\n"
            f"{parsed:,} parsed + {counts.malformed:,} malformed = {counts.rows:,} rows; "
            f"{counts.dead_letters:,} in {dead_letter_topic(TOPIC)}"
        )
        # What was acknowledged must be in the topic, and in the table; once.
        lost = published - counts.in_topic + counts.lost
        self._terminal.print(
            f"demo: {published} events in, {counts.rows} read by the pipeline, "
            f"{lost} lost, {counts.duplicated} duplicated"
        )
        return int(any((lost, counts.duplicated, counts.unreported)))


def clear_output(output: Path) -> None:
    """Remove what a former run left, and nothing else: the folder may be anybody's."""
    import shutil

    from ottla.pipelines.web_traffic.pipeline import CHECKPOINT, EVENTS, TABLES

    output.mkdir(parents=True, exist_ok=True)
    for name in (EVENTS, CHECKPOINT, *TABLES):
        shutil.rmtree(output / name, ignore_errors=True)
    for name in (REPORT, SPARK_LOG):
        (output / name).unlink(missing_ok=True)


def cause_of(error: BaseException) -> str:
    """The sentence of a Python process in Spark's page of text; else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("ottla.")]
    return own[-1] if own else next(iter(lines), type(error).__name__)
