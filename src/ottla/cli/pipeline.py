"""`ottla pipeline`: the options, and which action they ask for."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages
from ottla.cli.console_process import add_console_of_run
from ottla.cli.options import add_flag, add_fraction, add_integer, add_repeated, pairs_of
from ottla.cli.table import TEXT, Row, add_format, show_rows
from ottla.cli.terminal import Terminal, check_reachable
from ottla.pipelines.pipeline import (
    DEFAULT_EVENTS,
    DEFAULT_RATE,
    PIPELINES,
    OutputGoneError,
    Pipeline,
    PipelineError,
    installed_pipelines,
    load_installed,
    load_pipeline,
    own_frames,
    write_pipeline,
)
from ottla.pipelines.site_traffic import DEFAULT_SEED

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from ottla.cli.pipeline_run import RunOutcome

ACTIONS = ("list", "new", "run", "reset")
DEFAULT_OUTPUT = "pipeline-output"
OTHER_STATE = re.compile(r"STATE_STORE_\w*NOT_COMPATIBLE|NOT_MATCH_IN_STATE_METADATA")
"""Spark's words where the state in a checkpoint has other columns, or is of other operators."""
OTHER_LOG = re.compile(r"DataLossError: (.+?); set the option failOnDataLoss")
"""The source's words where a topic has lost records, or is another one of its name."""


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
        from ottla.cli.pipeline_plan import plan_of  # PySpark
        from ottla.cli.pipeline_run import PipelineRun, reset

        if arguments.action == "reset":
            if arguments.bootstrap_server is not None:
                check_reachable(arguments.bootstrap_server, {})
            return reset(pipeline, Path(arguments.output), arguments.bootstrap_server, terminal)

        def conclude(outcome: RunOutcome) -> int:
            terminal.print(
                f"{pipeline.name}: {outcome.events_in} events in, {outcome.read} read, "
                f"{outcome.malformed} did not parse, {outcome.late} late"
            )
            return 0

        run = PipelineRun(plan_of(pipeline, arguments), terminal)
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
        least=1,
    )
    add_integer(
        parser,
        "--report-every",
        "N",
        "Write the report after so many micro-batches, and in the end (--continuous). Default: 20.",
        least=1,
        default=20,
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
    add_integer(
        parser, "--events", "N", f"Make up so many events. Default: {DEFAULT_EVENTS}.", least=1
    )
    add_integer(
        parser, "--seed", "S", f"The same seed makes the same events. Default: {DEFAULT_SEED}."
    )
    add_fraction(
        parser,
        "--rate",
        "N",
        f"Publish so many events a second (--continuous). Default: {DEFAULT_RATE:.0f}.",
        is_positive=True,
    )


def row_of(pipeline: Pipeline, package: str = "ottla") -> Row:
    """The topics of a pipeline, and the name and parameters that `run` takes."""
    return {
        "pipeline": pipeline.name,
        "package": package,
        "topics_in": ", ".join(each.topic for each in pipeline.fed_topics),
        "topics_out": ", ".join(each.topic for each in pipeline.outputs if not each.is_table),
        "tables_out": ", ".join(each.topic for each in pipeline.outputs if each.is_table),
        "feeds": ", ".join(pipeline.feed_names),
        "parameters": dict(pipeline.parameters),
        "summary": pipeline.summary,
        "error": "",
    }


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
    if pipeline.feed_names:
        terminal.print(f"  feeds: {', '.join(pipeline.feed_names)}")
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
        return pipeline.reading(pairs_of("--read", "INPUT=TOPIC", arguments.read))
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
