"""`ottla pipeline`: the options, and which action they ask for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages
from ottla.cli.options import add_flag, add_integer, add_repeated, forbid_with, given, whole_number
from ottla.cli.output import TEXT, Row, add_format, show_rows
from ottla.cli.terminal import Terminal, check_reachable

if TYPE_CHECKING:
    from ottla.cli.pipeline_run import EventSource, Plan
    from ottla.pipelines.execution import RunOptions
    from ottla.pipelines.pipeline import Feed, Pipeline


ACTIONS = ("list", "run", "reset")
DEFAULT_OUTPUT = "pipeline-output"
DEFAULT_EVENTS = 20_000
DEFAULT_SEED = 2011
DEFAULT_RATE = 1000.0
NO_FEED = "none"
FEED_OPTIONS = ("--log", "--again", "--events", "--seed", "--rate")


class PipelineCommand(Command):
    """Lists the data pipelines, runs one on Spark, or makes it forget what it has done."""

    name = "pipeline"
    help = "List, run and reset the data pipelines on Spark."
    examples = (
        "ottla pipeline list",
        "ottla pipeline run ranking --once --log access.log",
        "ottla pipeline run crawlers --continuous --bootstrap-server localhost:9092",
        "ottla pipeline reset ranking",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", metavar="ACTION", choices=ACTIONS, help="`list`, `run` or `reset`."
        )
        parser.add_argument(
            "pipeline", metavar="NAME", nargs="?", help="The pipeline to run or to reset."
        )
        add_format(parser)
        _add_places(parser)
        _add_run_options(parser)
        _add_feed_options(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require_packages()
        if arguments.action == "list":
            return _list(arguments, terminal)
        pipeline = pipeline_of(arguments)
        if arguments.action == "reset":
            return _reset(pipeline, arguments, terminal)
        from ottla.cli.pipeline_run import PipelineRun

        outcome = PipelineRun(plan_of(pipeline, arguments, terminal), terminal).run()
        terminal.print(
            f"{pipeline.name}: {outcome.events_in} events in, {outcome.read} read, "
            f"{outcome.malformed} did not parse, {outcome.late} late"
        )
        return 0


def _add_places(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="The brokers to use. Default: a broker of its own, which is started and stopped, and "
        "keeps its data in the output folder.",
    )
    parser.add_argument(
        "--master", metavar="URL", default="local[2]", help="Spark's master. Default: local[2]."
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        default=DEFAULT_OUTPUT,
        help="A folder below it, named after the pipeline, keeps checkpoints, tables and "
        f"report.html. Default: {DEFAULT_OUTPUT}.",
    )


def _add_run_options(parser: ArgumentParser) -> None:
    add_flag(parser, "--once", "Read what is in the topics now, and end. This is the default.")
    add_flag(parser, "--continuous", "Run until Ctrl-C.")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="WHERE",
        default="earliest",
        help="Where a run without a checkpoint begins: earliest, latest, a time "
        "(2026-03-02T08:00:00Z or ms since 1970), or offsets as JSON. Default: earliest.",
    )
    add_repeated(
        parser,
        "--param",
        "NAME=VALUE",
        "A parameter of the pipeline ('list' shows them); may be repeated.",
    )
    add_repeated(
        parser,
        "--read",
        "INPUT=TOPIC",
        "Read this topic in the place of an input, such as interactions=clicks ('list' shows the "
        "topics in); may be repeated.",
    )
    add_flag(parser, "--spark-ui", "Serve Spark's own pages while it runs, and print where.")
    parser.add_argument(
        "--trigger",
        metavar="INTERVAL",
        help="Begin a micro-batch so often, such as '5 seconds' (--continuous). Default: as soon "
        "as the one before has ended.",
    )
    add_integer(
        parser,
        "--max-offsets-per-trigger",
        "N",
        "A micro-batch reads at most so many records. Default: all there are.",
    )
    parser.add_argument(
        "--report-every",
        metavar="N",
        type=whole_number,
        default=20,
        help="Write the report after so many micro-batches, and in the end (--continuous). "
        "Default: 20.",
    )


def _add_feed_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--feed",
        metavar="NAME",
        help="Publish these events first, or meanwhile (--continuous): sample, which are made up, "
        "another feed of the pipeline ('list' shows them), or none. Default: log with --log; "
        "sample at the first run with a broker of its own; else none.",
    )
    parser.add_argument(
        "--log",
        metavar="PATH",
        help="An access log for the feed log: combined, common, vhost_combined, nginx's main or "
        "JSON, also in gzip or zstd. Its lines are published once, however often it is given.",
    )
    add_flag(parser, "--again", "Publish the log once more, although it has been published.")
    add_integer(parser, "--events", "N", f"Make up so many events. Default: {DEFAULT_EVENTS}.")
    add_integer(
        parser, "--seed", "S", f"The same seed makes the same events. Default: {DEFAULT_SEED}."
    )
    parser.add_argument(
        "--rate",
        metavar="N",
        type=float,
        help=f"Publish so many events a second (--continuous). Default: {DEFAULT_RATE:.0f}.",
    )


def row_of(pipeline: Pipeline) -> Row:
    """The topics of a pipeline, and the name and parameters that `run` takes."""
    return {
        "pipeline": pipeline.name,
        "topics_in": ", ".join(each.topic for each in pipeline.fed_topics),
        "topics_out": ", ".join(each.topic for each in pipeline.outputs if not each.is_table),
        "tables_out": ", ".join(each.topic for each in pipeline.outputs if each.is_table),
        "feeds": ", ".join(pipeline.feeds),
        "parameters": dict(pipeline.parameters),
        "summary": pipeline.summary,
    }


def _list(arguments: Namespace, terminal: Terminal) -> int:
    from ottla.pipelines.pipeline import PIPELINES, load_pipeline

    if arguments.format != TEXT:
        rows = [row_of(load_pipeline(name)) for name in PIPELINES]
        show_rows(rows, arguments.format, terminal)
        return 0
    for name in PIPELINES:
        pipeline = load_pipeline(name)
        terminal.print(f"{name}: {pipeline.summary}")
        terminal.print(f"  topics in: {', '.join(each.topic for each in pipeline.fed_topics)}")
        for kind, is_table in (("topics", False), ("tables", True)):
            names = [each.topic for each in pipeline.outputs if each.is_table is is_table]
            if names:
                terminal.print(f"  {kind} out: {', '.join(names)}")
        terminal.print(f"  feeds: {', '.join(pipeline.feeds)}")
        if pipeline.parameters:
            known = ", ".join(f"{key}={value}" for key, value in pipeline.parameters.items())
            terminal.print(f"  parameters: {known}")
    return 0


def pipeline_of(arguments: Namespace) -> Pipeline:
    """The pipeline that is named, over the topics that it is to read."""
    from ottla.pipelines.pipeline import UnknownPipelineError, load_pipeline

    if arguments.pipeline is None:
        raise UsageError(f"'{arguments.action}' needs the name of a pipeline")
    try:
        pipeline = load_pipeline(arguments.pipeline)
    except UnknownPipelineError as error:
        raise CommandError(str(error)) from None
    if not arguments.read:
        return pipeline
    try:
        return pipeline.reading(_pairs("--read", "INPUT=TOPIC", arguments.read))
    except ValueError as error:
        raise UsageError(f"--read: {error}") from None


def _reset(pipeline: Pipeline, arguments: Namespace, terminal: Terminal) -> int:
    from ottla.cli.pipeline_run import reset

    if arguments.bootstrap_server is not None:
        check_reachable(arguments.bootstrap_server)
    return reset(pipeline, Path(arguments.output), arguments.bootstrap_server, terminal)


def plan_of(pipeline: Pipeline, arguments: Namespace, terminal: Terminal) -> Plan:
    """The plan that the options ask for; mistakes are reported before anything is started."""
    from ottla.cli.pipeline_run import Plan

    forbid_with(arguments, "--once", ("--continuous",))
    for option in ("--trigger", "--rate"):
        if given(arguments, option) and not arguments.continuous:
            raise UsageError(f"{option} goes with --continuous")
    if arguments.report_every < 1:
        raise UsageError(f"--report-every {arguments.report_every}: must be at least 1")
    if arguments.bootstrap_server is not None:
        check_reachable(arguments.bootstrap_server)
    folder = Path(arguments.output) / pipeline.name
    return Plan(
        pipeline=pipeline,
        folder=folder,
        source=source_of(pipeline, arguments, is_new=not folder.exists()),
        options=run_options(pipeline, arguments),
        servers=arguments.bootstrap_server,
        master=arguments.master,
        has_spark_ui=bool(arguments.spark_ui),
        is_continuous=arguments.continuous,
        batches_per_report=arguments.report_every,
    )


def run_options(pipeline: Pipeline, arguments: Namespace) -> RunOptions:
    from ottla.pipelines.execution import RunOptions, Start

    try:
        start = Start.parse(arguments.start)
    except ValueError as error:
        raise UsageError(f"--from: {error}") from None
    parameters = _pairs("--param", "NAME=VALUE", arguments.param)
    try:
        pipeline.with_parameters(parameters)
    except ValueError as error:
        raise UsageError(f"--param: {error}") from None
    return RunOptions(start, parameters, arguments.max_offsets_per_trigger, arguments.trigger)


def _pairs(option: str, form: str, pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign:
            raise UsageError(f"{option} '{pair}' is not of the form {form}")
        found[name] = value
    return found


def source_of(pipeline: Pipeline, arguments: Namespace, *, is_new: bool) -> EventSource | None:
    """The feed that was asked for; none where there is nothing to publish."""
    from ottla.cli.pipeline_run import EventSource
    from ottla.pipelines.pipeline import FeedRequest

    name = _feed_name(arguments, is_new)
    if name == NO_FEED:
        for option in FEED_OPTIONS:
            if given(arguments, option):
                raise UsageError(f"{option} needs a feed: --feed NAME")
        return None
    if name not in pipeline.feeds:
        known = ", ".join(pipeline.feeds)
        raise UsageError(f"{pipeline.name} has no feed '{name}' (there is: {known})")
    log = Path(arguments.log) if arguments.log is not None else None
    if log is not None and not log.is_file():
        raise CommandError(f"--log {log}: there is no such file")
    events = DEFAULT_EVENTS if arguments.events is None else arguments.events
    if events < 1:
        raise UsageError(f"--events {events}: must be at least 1")
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    if arguments.again and log is None:
        raise UsageError("--again goes with --log")
    rate = DEFAULT_RATE if arguments.rate is None else arguments.rate
    feed = pipeline.feeds[name]
    if log is not None:
        return log_source(pipeline, feed, log, rate, again=arguments.again)
    words = f"The feed {name} (seed {seed})"
    return EventSource(words, feed(FeedRequest(events, seed)), rate, events)


def log_source(
    pipeline: Pipeline, feed: Feed, path: Path, rate: float | None = None, *, again: bool = False
) -> EventSource:
    """The lines of a log, or what follows from them; refuses a file that is no log."""
    from ottla.cli.pipeline_run import EventSource
    from ottla.pipelines.access_log import AccessLog, LogError
    from ottla.pipelines.topics import LogFeed

    try:
        log = AccessLog(path)
    except (LogError, OSError) as error:
        raise CommandError(f"--log {error}") from None
    words = f"The access log {path.name}" + (f" ({log.compression})" if log.compression else "")
    return EventSource(words, per_second=rate, log=LogFeed(pipeline, feed, path, again))


def _feed_name(arguments: Namespace, is_new: bool) -> str:
    if arguments.feed is not None:
        if arguments.log is not None and arguments.feed != "log":
            raise UsageError(f"--log goes with --feed log, not with --feed {arguments.feed}")
        return str(arguments.feed)
    if arguments.log is not None:
        return "log"
    is_own = arguments.bootstrap_server is None and not arguments.read
    return "sample" if is_own and is_new else NO_FEED
