"""`ottla pipeline`: the options, and which action they ask for."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages
from ottla.cli.console_process import add_console_of_run
from ottla.cli.options import add_flag, add_integer, add_repeated, forbid_with, given, whole_number
from ottla.cli.table import TEXT, Row, add_format, show_rows
from ottla.cli.terminal import Terminal, check_reachable
from ottla.pipelines.access_log import AccessLog, LogError
from ottla.pipelines.pipeline import (
    PIPELINES,
    FeedRequest,
    OutputGoneError,
    Pipeline,
    PipelineError,
    installed_pipelines,
    load_installed,
    load_pipeline,
    own_frames,
    write_pipeline,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from ottla.cli.pipeline_run import EventSource, Plan, RunOutcome
    from ottla.pipelines.execution import RunOptions
    from ottla.pipelines.pipeline import Feed


ACTIONS = ("list", "new", "run", "reset")
DEFAULT_OUTPUT = "pipeline-output"
DEFAULT_EVENTS = 20_000
DEFAULT_SEED = 2011
DEFAULT_RATE = 1000.0
NO_FEED = "none"
SAMPLE_FEED = "sample"
OTHER_STATE = re.compile(r"STATE_STORE_\w*NOT_COMPATIBLE|NOT_MATCH_IN_STATE_METADATA")
"""Spark's words where the state in a checkpoint has other columns, or is of other operators."""
OTHER_LOG = re.compile(r"DataLossError: (.+?); set the option failOnDataLoss")
"""The source's words where a topic has lost records, or is another one of its name."""
FEED_OPTIONS = ("--log", "--input", "--again", "--events", "--seed", "--rate")
MADE_UP = ("--events", "--seed")


class PipelineCommand(Command):
    """Lists the data pipelines, runs one on Spark, or makes it forget its progress.

    A pipeline is one of Ottla's own, one of an installed package, or one in a file.
    """

    name = "pipeline"
    examples = (
        "ottla pipeline list",
        "ottla pipeline new orders",
        "ottla pipeline run orders/pipeline.py --input orders-of-may.csv",
        "ottla pipeline run ranking --once --log access.log",
        "ottla pipeline run crawlers --continuous --bootstrap-server localhost:9092",
        "ottla pipeline reset ranking",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action", metavar="ACTION", choices=ACTIONS, help="`list`, `new`, `run` or `reset`."
        )
        parser.add_argument(
            "pipeline",
            metavar="NAME",
            nargs="?",
            help="The pipeline to run or to reset: a name that 'list' shows, or a file of your own "
            "(orders/pipeline.py; pipeline.py:NAME where it has several). For `new`, the name of "
            "the pipeline and of its folder.",
        )
        add_format(parser)
        _add_places(parser)
        _add_run_options(parser)
        _add_feed_options(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        if arguments.action == "new":
            return _new(arguments, terminal)
        require_packages()
        if arguments.action == "list":
            return _list(arguments, terminal)
        pipeline = pipeline_of(arguments, terminal)
        if arguments.action == "reset":
            return _reset(pipeline, arguments, terminal)
        from ottla.cli.pipeline_run import PipelineRun

        def conclude(outcome: RunOutcome) -> int:
            terminal.print(
                f"{pipeline.name}: {outcome.events_in} events in, {outcome.read} read, "
                f"{outcome.malformed} did not parse, {outcome.late} late"
            )
            return 0

        run = PipelineRun(plan_of(pipeline, arguments, terminal), terminal)
        with own_failures(pipeline, arguments.pipeline, terminal):
            return run.run(conclude)


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
    add_flag(
        parser,
        "--progress",
        "Write each batch to the topic __ottla_pipelines, from which `ottla console` shows it.",
    )
    add_console_of_run(parser)
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
        "another feed of the pipeline ('list' shows them), or none. Default: log with --log; the "
        "files with --input; sample at the first run with a broker of its own; else none.",
    )
    parser.add_argument(
        "--log",
        metavar="PATH",
        help="An access log for the feed log: combined, common, vhost_combined, nginx's main or "
        "JSON, also in gzip or zstd. Its lines are published once, however often it is given.",
    )
    add_repeated(
        parser,
        "--input",
        "[TOPIC=]FILE",
        "A file of rows for a topic in, CSV with a header or JSON objects, also in gzip or zstd; "
        "may be repeated. Its rows are published once, however often it is given.",
    )
    add_flag(parser, "--again", "Publish the log or the files once more, although they have been.")
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


def row_of(pipeline: Pipeline, package: str = "ottla") -> Row:
    """The topics of a pipeline, and the name and parameters that `run` takes."""
    return {
        "pipeline": pipeline.name,
        "package": package,
        "topics_in": ", ".join(each.topic for each in pipeline.fed_topics),
        "topics_out": ", ".join(each.topic for each in pipeline.outputs if not each.is_table),
        "tables_out": ", ".join(each.topic for each in pipeline.outputs if each.is_table),
        "feeds": ", ".join(feeds_of(pipeline)),
        "parameters": dict(pipeline.parameters),
        "summary": pipeline.summary,
        "error": "",
    }


def feeds_of(pipeline: Pipeline) -> list[str]:
    """The names that --feed takes; samples in files are one of them."""
    return list(dict.fromkeys([*([SAMPLE_FEED] if pipeline.samples else []), *pipeline.feeds]))


def _listed() -> Iterator[tuple[str, str, Pipeline | PipelineError]]:
    """Name, package and pipeline of all, or why it cannot be had: no one ends the list."""
    for name in PIPELINES:
        yield name, "ottla", load_pipeline(name)
    for name, points in installed_pipelines().items():
        package = ", ".join(each.dist.name if each.dist else each.module for each in points)
        try:
            yield name, package, load_installed(name, points)
        except PipelineError as error:
            yield name, package, error


def _list(arguments: Namespace, terminal: Terminal) -> int:

    if arguments.format != TEXT:
        rows = [
            row_of(found, package)
            if isinstance(found, Pipeline)
            else _row_of_error(name, package, str(found))
            for name, package, found in _listed()
        ]
        show_rows(rows, arguments.format, terminal)
        return 0
    for name, package, found in _listed():
        if not isinstance(found, Pipeline):
            terminal.print(f"{name}: cannot be used")
            terminal.print(f"  package: {package}")
            terminal.print(f"  error: {found}")
            continue
        terminal.print(f"{name}: {found.summary}")
        if package != "ottla":
            terminal.print(f"  package: {package}")
        _describe(found, terminal)
    return 0


def _row_of_error(name: str, package: str, error: str) -> Row:
    empty = dict.fromkeys(("topics_in", "topics_out", "tables_out", "feeds"), "")
    head = {"pipeline": name, "package": package}
    return {**head, **empty, "parameters": {}, "summary": "", "error": error}


def _describe(pipeline: Pipeline, terminal: Terminal) -> None:
    terminal.print(f"  topics in: {', '.join(each.topic for each in pipeline.fed_topics)}")
    for kind, is_table in (("topics", False), ("tables", True)):
        names = [each.topic for each in pipeline.outputs if each.is_table is is_table]
        if names:
            terminal.print(f"  {kind} out: {', '.join(names)}")
    if feeds_of(pipeline):
        terminal.print(f"  feeds: {', '.join(feeds_of(pipeline))}")
    if pipeline.parameters:
        known = ", ".join(f"{key}={value}" for key, value in pipeline.parameters.items())
        terminal.print(f"  parameters: {known}")


def _new(arguments: Namespace, terminal: Terminal) -> int:

    if arguments.pipeline is None:
        raise UsageError("'new' needs a name for the pipeline")
    try:
        written = write_pipeline(arguments.pipeline, Path(arguments.pipeline))
    except PipelineError as error:
        raise CommandError(str(error)) from None
    for path in written:
        terminal.print(f"wrote {path}")
    terminal.remark(f"try it: ottla pipeline run {arguments.pipeline}/pipeline.py")
    return 0


def pipeline_of(arguments: Namespace, terminal: Terminal) -> Pipeline:
    """The pipeline that is named, over the topics that it is to read."""
    if arguments.pipeline is None:
        raise UsageError(f"'{arguments.action}' needs the name of a pipeline")
    try:
        pipeline = load_pipeline(arguments.pipeline)
    except PipelineError as error:
        if error.trace:
            terminal.note(error.trace)
        raise CommandError(str(error)) from None
    if not arguments.read:
        return pipeline
    try:
        return pipeline.reading(_pairs("--read", "INPUT=TOPIC", arguments.read))
    except ValueError as error:
        raise UsageError(f"--read: {error}") from None


@contextmanager
def own_failures(pipeline: Pipeline, word: str, terminal: Terminal) -> Iterator[None]:
    """Show the lines of a user's own pipeline that have failed, before the error is named.

    Of a query whose state is that of another one, or whose input is, it names the remedy.
    """
    try:
        yield
    except OutputGoneError as error:
        raise CommandError(
            f"{pipeline.name} cannot go on where it was: {error}; 'ottla pipeline reset {word}' "
            "lets it begin anew, over what is in its topics now"
        ) from None
    except PipelineError as error:
        raise CommandError(str(error)) from None
    except Exception as error:
        # Exceptions of Spark have been turned into a line by then.
        frames = own_frames(error.__cause__ or error, pipeline.file) if pipeline.file else []
        if frames:
            terminal.note("".join(frames).rstrip())
        if OTHER_STATE.search(str(error)):
            raise CommandError(
                f"the query of {pipeline.name} has changed since it was run last: "
                f"'ottla pipeline reset {word}' lets it begin anew, over the same input"
            ) from error
        if lost := OTHER_LOG.search(str(error)):
            raise CommandError(
                f"{pipeline.name} cannot go on where it was: {lost[1]}; 'ottla pipeline reset "
                f"{word}' lets it begin anew, over what is in its topics now"
            ) from error
        raise


def _reset(pipeline: Pipeline, arguments: Namespace, terminal: Terminal) -> int:
    from ottla.cli.pipeline_run import reset

    if arguments.bootstrap_server is not None:
        check_reachable(arguments.bootstrap_server, {})
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
        check_reachable(arguments.bootstrap_server, {})
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
        writes_progress=arguments.progress,
        has_console=arguments.console,
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

    if arguments.again and arguments.log is None and not arguments.input:
        raise UsageError("--again goes with --log or --input")
    rate = DEFAULT_RATE if arguments.rate is None else arguments.rate
    if arguments.input:
        for option in ("--feed", "--log", *MADE_UP):
            forbid_with(arguments, "--input", (option,))
        return input_source(pipeline, arguments.input, rate, again=arguments.again)
    name = _feed_name(pipeline, arguments, is_new)
    if name == NO_FEED:
        for option in FEED_OPTIONS:
            if given(arguments, option):
                raise UsageError(f"{option} needs a feed: --feed NAME")
        return None
    if name not in feeds_of(pipeline):
        known = ", ".join(feeds_of(pipeline)) or "none"
        raise UsageError(f"{pipeline.name} has no feed '{name}' (there is: {known})")
    log = Path(arguments.log) if arguments.log is not None else None
    if log is not None and not log.is_file():
        raise CommandError(f"--log {log}: there is no such file")
    events = DEFAULT_EVENTS if arguments.events is None else arguments.events
    if events < 1:
        raise UsageError(f"--events {events}: must be at least 1")
    if name not in pipeline.feeds:
        for option in MADE_UP:
            if given(arguments, option):
                raise UsageError(f"{option}: the sample of {pipeline.name} is a file")
        return sample_source(pipeline, rate)
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    feed = pipeline.feeds[name]
    if log is not None:
        return log_source(pipeline, feed, log, rate, again=arguments.again)
    words = f"The feed {name} (seed {seed})"
    return EventSource(words, feed(FeedRequest(events, seed)), rate, events)


def sample_source(pipeline: Pipeline, rate: float) -> EventSource:
    """The files that come with a pipeline."""
    from ottla.cli.pipeline_run import EventSource
    from ottla.pipelines.topics import sample_files

    try:
        files = sample_files(pipeline)
    except (LogError, OSError) as error:
        raise CommandError(str(error)) from None
    names = ", ".join(each.path.name for each in files)
    return EventSource(f"The sample {names}", per_second=rate, files=files)


def input_source(
    pipeline: Pipeline, inputs: Sequence[str], rate: float, *, again: bool
) -> EventSource:
    """Files of rows, each for the topic that is named, or for the only one."""
    from ottla.cli.pipeline_run import EventSource
    from ottla.pipelines.topics import LogFeed

    sources = {each.topic: each for each in pipeline.fed_topics}
    files = []
    for each in inputs:
        topic, _, name = each.partition("=")
        if topic not in sources:
            if len(sources) != 1 or (name and not Path(each).exists()):
                known = ", ".join(sources)
                raise UsageError(f"--input {each}: name its topic, TOPIC=FILE (there is: {known})")
            (topic,), name = sources, each
        path = Path(name)
        if not path.is_file():
            raise CommandError(f"--input {path}: there is no such file")
        try:
            files.append(LogFeed.of_rows(pipeline, sources[topic], path, again))
        except (LogError, OSError) as error:
            raise CommandError(f"--input {error}") from None
    names = ", ".join(each.path.name for each in files)
    return EventSource(f"The rows of {names}", per_second=rate, files=files)


def log_source(
    pipeline: Pipeline, feed: Feed, path: Path, rate: float | None = None, *, again: bool = False
) -> EventSource:
    """The lines of a log, or the reports that follow from them; refuses a file that is no log."""
    from ottla.cli.pipeline_run import EventSource
    from ottla.pipelines.topics import LogFeed

    try:
        log = AccessLog(path)
    except (LogError, OSError) as error:
        raise CommandError(f"--log {error}") from None
    words = f"The access log {path.name}" + (f" ({log.compression})" if log.compression else "")
    return EventSource(words, per_second=rate, files=[LogFeed(pipeline, feed, path, again)])


def _feed_name(pipeline: Pipeline, arguments: Namespace, is_new: bool) -> str:
    if arguments.feed is not None:
        if arguments.log is not None and arguments.feed != "log":
            raise UsageError(f"--log goes with --feed log, not with --feed {arguments.feed}")
        return str(arguments.feed)
    if arguments.log is not None:
        return "log"
    if arguments.bootstrap_server is not None or arguments.read or not is_new:
        return NO_FEED
    if SAMPLE_FEED not in feeds_of(pipeline):
        raise CommandError(
            f"{pipeline.name} has no sample to begin with: give it --input FILE, or topics that "
            "have records by --bootstrap-server"
        )
    return SAMPLE_FEED
