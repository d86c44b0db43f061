"""One run of a pipeline: a broker where none is given, its events, Spark, tables, report.

A reset removes all that a run has left, so that the pipeline starts from scratch.
"""

from __future__ import annotations

import logging
import platform
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.command_error import CommandError, spark_failures
from ottla.cli.console_process import ConsoleProcess
from ottla.cli.terminal import Progress, Terminal, interruptible
from ottla.pipelines.access_log import LogError
from ottla.pipelines.execution import (
    CHECKPOINTS,
    MODULES,
    TABLES,
    Execution,
    RunOptions,
    send_modules,
)
from ottla.pipelines.progress_topic import ProgressTopic
from ottla.pipelines.report import (
    MADE,
    Card,
    Part,
    Report,
    batches_table,
    progress_plot,
    write_report,
)
from ottla.pipelines.runner import spark_session
from ottla.pipelines.tables import ResultTable
from ottla.pipelines.topics import Pace, create_topics, delete_outputs, publish
from ottla.structs import Value, field
from ottla.testing.processes import BrokerProcess
from ottla.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.execution import Batch, Tally
    from ottla.pipelines.pipeline import Event, Parameters, Pipeline
    from ottla.pipelines.topics import LogFeed, LogPublication

    BatchNote = Callable[[Batch], object]


class PipelineRun:
    """Runs a plan; `outcome` has the results afterwards."""

    def __init__(self, plan: Plan, terminal: Terminal) -> None:
        self._plan = plan
        # The JVM that writes there need not be in the same working directory.
        self._folder = plan.folder.absolute()
        self._terminal = terminal
        self._steps = Steps(terminal)
        self._is_over = threading.Event()
        self.outcome = RunOutcome()

    def run(self, conclude: Callable[[RunOutcome], int]) -> int:
        """Run it; the status is that of `conclude`, after which a console stays until Ctrl-C."""
        plan = self._plan
        plan.folder.mkdir(parents=True, exist_ok=True)
        # Log lines of libraries would break up the lines of progress; they go into Spark's log.
        logging.basicConfig(filename=plan.spark_log, level=logging.WARNING, force=True)
        if plan.source is not None:
            self._terminal.print(f"events: {plan.source.words}")
        with brokers(plan, self._steps) as servers, ConsoleProcess(self._terminal) as console:
            if plan.has_console:
                console.start(servers, plan.report)
            self._prepare(servers)
            self._run(servers)
            status = conclude(self.outcome)
            if not plan.is_continuous:
                console.stay()
        return status

    def _run(self, servers: str) -> None:
        """Run the queries on Spark until they end, and write the results."""
        plan = self._plan
        with spark_failures(plan.spark_log), self._spark() as spark:
            send_modules(spark, plan.pipeline, self._folder)
            execution = Execution(spark, plan.pipeline, servers, self._folder, plan.options)
            with self._progress(servers) as on_progress:
                if plan.is_continuous:
                    self._run_continuously(execution, servers, on_progress)
                else:
                    self._run_once(execution, on_progress)
            self._conclude(execution)

    def _prepare(self, servers: str) -> None:
        plan = self._plan
        with self._steps.step("creating the topics"):
            create_topics(servers, plan.pipeline, self._folder / CHECKPOINTS)
        if plan.source is None or plan.is_continuous:
            return
        with self._steps.step("publishing the events") as step:
            count = plan.source.count
            self._publish(servers, Pace(on_event=lambda: step.progress.advance(1, count)))
            step.rows = self.outcome.events_in
        self._tell_of_files()
        files = self.outcome.files
        if not step.rows and not any(each.lines_before for each in files):
            why = f"no line of the {files[0].kind} makes an event" if files else "the feed is empty"
            raise CommandError(f"there is nothing to publish: {why}")

    def _tell_of_files(self) -> None:
        for each in self.outcome.files:
            self._terminal.print(f"{each.kind}: {each.words()}")

    def _publish(self, servers: str, pace: Pace) -> None:
        source = self._plan.source
        assert source is not None, "there are events"
        if not source.files:
            self.outcome.published = publish(servers, source.events, pace)
            return
        try:
            self.outcome.files = [each.publish(servers, pace) for each in source.files]
        except LogError as error:
            raise CommandError(str(error)) from None
        self.outcome.published = sum((each.counts for each in self.outcome.files), Counter())

    @contextmanager
    def _spark(self) -> Iterator[SparkSession]:
        plan = self._plan
        with self._steps.step("starting Spark"):
            spark = spark_session(
                f"ottla pipeline {plan.pipeline.name}",
                master=plan.master,
                settings=SPARK_UI if plan.has_spark_ui else None,
                short_run=not plan.is_continuous,
                small_batches=plan.is_continuous,
                log_path=plan.spark_log,
            )
        try:
            if plan.has_spark_ui:
                self._terminal.print(f"Spark's own pages: {spark.sparkContext.uiWebUrl}")
            yield spark
        finally:
            spark.stop()

    @contextmanager
    def _progress(self, servers: str) -> Iterator[BatchNote]:
        """A call for each batch, which goes to the topic of progress if the plan says so."""
        plan = self._plan
        if not plan.writes_progress and not plan.has_console:
            yield lambda batch: None
            return
        with ProgressTopic(servers, plan.pipeline.name, plan.report) as topic:
            yield topic.batch

    def _run_once(self, execution: Execution, on_progress: BatchNote) -> None:
        self._terminal.print("running the queries until they have read what is there")
        with self._steps.step("queries") as step:
            if not step.progress.is_shown:
                self._terminal.print()
            lines = BatchLines(self._terminal, execution.tally, step.progress)

            def on_batch(at_s: float, batch: Batch) -> None:
                lines.add(at_s, batch)
                on_progress(batch)

            execution.run_once(on_batch)
            step.rows = execution.tally.rows

    def _run_continuously(self, execution: Execution, servers: str, on_progress: BatchNote) -> None:
        self._terminal.print("running until Ctrl-C")

        def on_batch(at_s: float, batch: Batch) -> None:
            lines.add(at_s, batch)
            on_progress(batch)
            if len(execution.tally.batches) % self._plan.batches_per_report == 0:
                self._write_report(execution, execution.write_tables(self._folder), REFRESH_S)

        with (
            self._terminal.progress("queries", "rows") as progress,
            interruptible(self._is_over),
            self._feeding(servers),
        ):
            lines = BatchLines(self._terminal, execution.tally, progress, PAUSE_S)
            execution.run_continuously(on_batch, self._is_over.is_set)
        self._terminal.print("stopped")

    @contextmanager
    def _feeding(self, servers: str) -> Iterator[None]:
        """Publish the events, in a thread, while the queries run."""
        source = self._plan.source
        if source is None:
            yield
            return

        errors: list[Exception] = []

        def feed() -> None:
            try:
                self._publish(servers, Pace(source.per_second, self._is_over.is_set))
            except Exception as error:
                errors.append(error)
                self._is_over.set()

        thread = threading.Thread(target=feed, name="feed", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()
        if errors:
            raise errors[0]
        self._tell_of_files()

    def _conclude(self, execution: Execution) -> None:
        plan = self._plan
        with self._steps.step("computing the tables"):
            self.outcome.tables = execution.write_tables(self._folder)
        with self._steps.step("drawing the report"):
            self._write_report(execution, self.outcome.tables)
        tally = execution.tally
        if tally.malformed:
            self._terminal.print(f"records: {words_of(tally.ledger())}")
        self.outcome.read = tally.rows
        self.outcome.malformed = tally.malformed + unparsed(plan.pipeline, self.outcome.tables)
        self.outcome.late = tally.late
        for name, table in self.outcome.tables.items():
            self._terminal.print(f"\n{name} ({len(table.rows):,} rows)")
            self._terminal.print(table.as_text(PRINTED_ROWS))
        self._terminal.print(f"\nreport: {plan.report}")

    def _write_report(
        self, execution: Execution, tables: Mapping[str, ResultTable], refresh_s: int = 0
    ) -> None:
        plan, tally = self._plan, execution.tally
        names = ", ".join(each.topic for each in plan.pipeline.fed_topics)
        source = f"The topics {names}" if plan.source is None else plan.source.words
        report = Report(
            title=title_of(plan.pipeline),
            summary=plan.pipeline.summary,
            source=source,
            cards=[
                *cards(
                    execution.tally,
                    self.outcome,
                    unparsed(plan.pipeline, tables),
                    unparsed_section(plan.pipeline),
                ),
                *faults(plan.pipeline, tables),
            ],
            parts=[
                *parts(plan.pipeline, tables, execution.parameters),
                *file_parts(self.outcome.files),
                *ledger_part(tally),
            ],
            made=how_it_was_made(plan.pipeline),
            progress_plot=progress_plot(tally),
            batches=batches_table(tally),
            steps=self._steps.done,
            versions=versions(),
            refresh_s=refresh_s,
        )
        write_report(report, plan.report)


class Step(Value):
    """One step under way; the code that counts its rows sets the number here."""

    start_s: float
    progress: Progress
    rows: int = 0


class Steps(Value):
    """Prints the step that begins, and its duration when it is done.

    A person sees the progress of a step on a line that changes, and a line when it has ended.
    """

    terminal: Terminal
    done: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        with self.terminal.progress(name, "rows") as progress:
            head = f"{name} ... " if progress.is_shown else ""
            if not progress.is_shown:
                self.terminal.out.write(f"{name} ... ")
                self.terminal.out.flush()
            progress.begin()
            step = Step(time.perf_counter(), progress)
            try:
                yield step
            except BaseException:
                self.terminal.print(f"{head}not done")
                raise
            seconds = time.perf_counter() - step.start_s
            self.done.append((name, seconds))
            rate = f", {step.rows:,} rows, {step.rows / seconds:,.0f} rows/s" if step.rows else ""
            self.terminal.print(f"{head}{seconds:.1f} s{rate}")
            self.terminal.out.flush()


class BatchLines(Value):
    """A line for each micro-batch; with `pause_s` one for those that ended meanwhile.

    A person sees a bar in their place: the share of the records in the topics that has been read.
    """

    terminal: Terminal
    tally: Tally
    progress: Progress
    pause_s: float = 0.0
    _waiting: list[Batch] = field(default_factory=list)
    _printed_at_s: float = 0.0

    def add(self, at_s: float, batch: Batch) -> None:
        if self.progress.is_shown:
            rows, lag = self.tally.rows, self.tally.lag
            self.progress.show(rows, rows / (rows + lag) if rows else None, f"  lag {lag:,}")
            return
        self._waiting.append(batch)
        if at_s - self._printed_at_s >= self.pause_s:
            self._printed_at_s = at_s
            self._print(at_s)

    def _print(self, at_s: float) -> None:
        batches, self._waiting = self._waiting, []
        rows = sum(batch.rows for batch in batches)
        seconds = sum(batch.seconds for batch in batches)
        rate = rows / seconds if seconds else 0.0
        last = batches[-1]
        name = f"{last.query} #{last.number}" if len(batches) == 1 else f"{len(batches)} batches"
        self.terminal.print(
            f"{at_s:7.1f} s  {name}: {rows:,} rows, {rate:,.0f} rows/s, "
            f"{seconds / len(batches):.2f} s a batch, lag {last.lag:,}, "
            f"{sum(batch.late for batch in batches):,} late"
        )
        self.terminal.out.flush()


BROKER_DATA = "broker"
REPORT = "report.html"
READ = "read"
"""The section about the records that were read."""
SPARK_LOG = "spark.log"
PRINTED_ROWS = 8
PAUSE_S = 1.0
SPARK_UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}  # a free port
REFRESH_S = 5


class EventSource(Value, frozen=True):
    """The events to publish, and a description of where they come from.

    `per_second` is for continuous runs; `count` is how many events are to come, if it is known.
    Those of files, a log or rows, are published once, however often they are given.
    """

    words: str
    events: Iterable[Event] = ()
    per_second: float | None = None
    count: int | None = None
    files: Sequence[LogFeed] = ()


class Plan(Value, frozen=True):
    """A pipeline to run, and the options of the run.

    Without servers a broker of its own is started, whose data stay in the folder unless another
    place is named.
    """

    pipeline: Pipeline
    folder: Path
    source: EventSource | None
    options: RunOptions
    servers: str | None = None
    broker_data: Path | None = None
    master: str = "local[2]"
    has_spark_ui: bool = False
    is_continuous: bool = False
    batches_per_report: int = 20
    writes_progress: bool = False
    has_console: bool = False

    @property
    def spark_log(self) -> Path:
        return self.folder / SPARK_LOG

    @property
    def report(self) -> Path:
        return self.folder / REPORT


class RunOutcome(Value):
    """The result of a run: acknowledged events by topic, and the tables as they were in the end."""

    published: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, ResultTable] = field(default_factory=dict)
    read: int = 0
    malformed: int = 0
    late: int = 0
    files: Sequence[LogPublication] = ()

    @property
    def events_in(self) -> int:
        return sum(self.published.values())


@contextmanager
def brokers(plan: Plan, steps: Steps) -> Iterator[str]:
    """The servers to use: those of the plan, or a broker that lives as long as the block."""
    if plan.servers is not None:
        yield plan.servers
        return

    broker = BrokerProcess(plan.broker_data or plan.folder / BROKER_DATA)
    broker.ends_with_parent = True
    try:
        with steps.step("starting a broker"):
            broker.start()
        yield broker.bootstrap_servers
    finally:
        broker.stop()


def cards(
    tally: Tally, outcome: RunOutcome, unparsed_rows: int, unparsed_in: str = ""
) -> list[Card]:
    """The numbers at the top of the page, each with the section that explains it."""
    malformed = tally.malformed + unparsed_rows
    found = [Card(outcome.events_in, "events in")] if outcome.published else []
    return [
        *found,
        Card(tally.rows, "read by the pipeline"),
        Card(malformed, "did not parse", None if not malformed else False, unparsed_in),
        Card(tally.late, "too late for their window", None if not tally.late else False),
        Card(len(tally.batches), "micro-batches", section=MADE),
        Card(float(f"{tally.seconds_per_batch():.3g}"), "seconds per batch", section=MADE),
        Card(tally.lag, "waiting", tally.lag == 0, MADE),
    ]


def unparsed_section(pipeline: Pipeline) -> str:
    """The section that lists the records that did not parse, or at least counts them."""
    listing = [each.name for each in pipeline.sections if each.lists_unparsed]
    counting = [each.name for each in pipeline.sections if each.unparsed]
    return next(iter([*listing, *counting]), "")


def unparsed(pipeline: Pipeline, tables: Mapping[str, ResultTable]) -> int:
    """Records that did not parse but have rows; the sources have counted the others."""
    return sum(
        row[section.unparsed]
        for section in pipeline.sections
        if section.unparsed
        for row in tables[section.name].rows[:1]
    )


def faults(pipeline: Pipeline, tables: Mapping[str, ResultTable]) -> list[Card]:
    """A card for each column that should be 0."""
    return [
        Card(row[name], name, row[name] == 0, section.name)
        for section in pipeline.sections
        for name in section.faults
        for row in tables[section.name].rows[:1]
    ]


def parts(
    pipeline: Pipeline, tables: Mapping[str, ResultTable], parameters: Parameters
) -> list[Part]:
    return [Part.of(each, tables[each.name], parameters) for each in pipeline.sections]


def ledger_part(tally: Tally) -> list[Part]:
    """The section about the records that were read: each was used, or left out for a reason."""
    rows = tally.ledger()
    note = (
        "Each record that this run has read was used, or left out for the reason that is named: "
        "used + left out = read."
    )
    return [Part(READ, "Records read", note, ResultTable(list(rows[0]), rows))] if rows else []


def words_of(ledger: Sequence[Mapping[str, Any]]) -> str:
    """The balance of each topic in a line: how many records were left out, and why."""
    topics = dict.fromkeys(row["topic"] for row in ledger)
    lines = []
    for topic in topics:
        used, *reasons, read = (row for row in ledger if row["topic"] == topic)
        left_out = sum(row["records"] for row in reasons)
        why = "; ".join(f"{row['records']:,}: {row['outcome']}" for row in reasons)
        lines.append(
            f"{read['records']:,} read from {topic} = {used['records']:,} used + {left_out:,} left "
            f"out{f' ({why})' if why else ''}"
        )
    return "; ".join(lines)


def file_parts(files: Sequence[LogPublication]) -> list[Part]:
    """A section about the lines of a log, or the rows of a file, all runs together."""
    return [
        Part(
            each.kind if len(files) == 1 else f"{each.kind}-{number}",
            f"{each.ledger.unit.capitalize()} of the {each.kind}",
            f"Each of them is {a(each.ledger.noun)}, or left out for the reason that is named; the "
            "first such line is given by its number.",
            ResultTable(list(each.ledger.rows()[0]), each.ledger.rows()),
        )
        for number, each in enumerate(files, 1)
    ]


def a(noun: str) -> str:
    """The noun with its article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def title_of(pipeline: Pipeline) -> str:
    return pipeline.name.replace("_", " ").capitalize()


def how_it_was_made(pipeline: Pipeline) -> str:
    inputs = ", ".join(each.topic for each in pipeline.inputs)
    outputs = ", ".join(
        f"the table {each.topic}" if each.is_table else each.topic for each in pipeline.outputs
    )
    return (
        f"Spark streams read the topics {inputs} and wrote {outputs}; what is shown here was "
        "computed from these."
    )


def versions() -> str:
    import pyspark

    python = platform.python_version()
    return f"Ottla {__version__}, Spark {pyspark.__version__}, Python {python}"


def reset(pipeline: Pipeline, output: Path, servers: str | None, terminal: Terminal) -> int:
    """Delete output topics, checkpoints with their state, tables and report; the input stays."""
    folder = output / pipeline.name
    if servers is not None or (folder / BROKER_DATA).exists():
        plan = Plan(pipeline, folder, None, RunOptions(), servers)
        with brokers(plan, Steps(terminal)) as found:
            for topic in delete_outputs(found, pipeline):
                terminal.print(f"deleted the topic {topic}")
    for name in remove_results(pipeline, folder):
        terminal.print(f"deleted {folder / name}")
    return 0


def remove_results(pipeline: Pipeline, folder: Path) -> list[str]:
    """Remove the results of runs and nothing else: the folder may hold other files."""
    removed = []
    for name in (CHECKPOINTS, TABLES, *(section.name for section in pipeline.sections)):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
            removed.append(name)
    for name in (REPORT, SPARK_LOG, MODULES):
        if (folder / name).exists():
            (folder / name).unlink()
            removed.append(name)
    return removed
