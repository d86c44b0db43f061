"""`ottla demo`: events through a broker and a Spark pipeline into a report, in one command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages
from ottla.cli.console_process import add_console_of_run
from ottla.cli.options import add_integer
from ottla.cli.pipeline import log_source
from ottla.cli.terminal import Terminal
from ottla.pipelines.pipeline import FeedRequest
from ottla.pipelines.site_traffic import DEFAULT_EVENTS, DEFAULT_SEED
from ottla.runtime.own_folder import own_folder

if TYPE_CHECKING:
    from ottla.cli.pipeline_run import EventSource, RunOutcome

MAX_OFFSETS_PER_TRIGGER = 100_000
DEFAULT_OUTPUT = "demo-output"


class DemoCommand(Command):
    """Starts a broker, publishes web-site events, runs a pipeline, checks and reports."""

    name = "demo"
    examples = ("ottla demo --events 20000", "ottla demo --log access.log --output report")

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--log",
            metavar="PATH",
            help="Replay this access log, also from gzip or zstd. Default: generated events.",
        )
        add_integer(parser, "--events", "N", "Generate so many events. Default: 100000.")
        add_integer(
            parser,
            "--seed",
            "S",
            "Generate other events: the same seed makes the same ones. Default: 2011.",
        )
        parser.add_argument(
            "--output",
            metavar="DIR",
            default=DEFAULT_OUTPUT,
            help="Folder for the Parquet tables and report.html; what a former run left in it is "
            f"replaced. Default: {DEFAULT_OUTPUT}.",
        )
        add_console_of_run(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        source = event_source(arguments)
        require_packages()
        with own_folder("ottla-demo-") as folder:
            output = Path(arguments.output)
            return run_demo(terminal, source, output, folder, has_console=arguments.console)


def event_source(arguments: Namespace) -> EventSource:
    """A log file, or generated events where none is given."""
    from ottla.cli.pipeline_run import EventSource
    from ottla.pipelines.web_traffic import PIPELINE

    feed = PIPELINE.feeds["sample"]
    if arguments.log is not None:
        if arguments.events is not None or arguments.seed is not None:
            raise UsageError("--events and --seed go with generated events, not with --log")
        path = Path(arguments.log)
        if not path.is_file():
            raise CommandError(f"--log {path}: there is no such file")
        return log_source(PIPELINE, PIPELINE.feeds["log"], path)
    events = DEFAULT_EVENTS if arguments.events is None else arguments.events
    seed = DEFAULT_SEED if arguments.seed is None else arguments.seed
    if events < 1:
        raise UsageError(f"--events {events}: must be at least 1")
    words = f"{events:,} generated events (no log was given; seed {seed})"
    return EventSource(words, feed(FeedRequest(events, seed)), count=events)


def run_demo(
    terminal: Terminal, source: EventSource, output: Path, folder: Path, *, has_console: bool
) -> int:
    """Run the pipeline from its beginning, with a broker in `folder`; 1 if anything is amiss."""
    from ottla.cli.pipeline_run import PipelineRun, Plan, remove_results
    from ottla.pipelines.execution import RunOptions
    from ottla.pipelines.web_traffic import COMPLETENESS, PIPELINE

    remove_results(PIPELINE, output)
    plan = Plan(
        pipeline=PIPELINE,
        folder=output,
        source=source,
        options=RunOptions(max_offsets_per_trigger=MAX_OFFSETS_PER_TRIGGER),
        broker_data=folder / "data",
        has_console=has_console,
    )

    def check(outcome: RunOutcome) -> int:
        (counts,) = outcome.tables[COMPLETENESS].rows
        return conclude(terminal, outcome.events_in, counts)

    return PipelineRun(plan, terminal).run(check)


def conclude(terminal: Terminal, published: int, counts: Mapping[str, Any]) -> int:
    """Print whether every event arrived, and arrived once; the exit status says it, too."""
    from ottla.pipelines.web_traffic import DEAD_LETTERS

    rows, malformed = counts["rows"], counts["malformed"]
    terminal.print(
        f"{rows - malformed:,} parsed + {malformed:,} malformed = {rows:,} rows; "
        f"{counts['dead_letters']:,} in {DEAD_LETTERS}"
    )
    # Each acknowledged record must be in the topic, and in the table; once.
    lost = published - counts["in_topic"] + counts["lost"]
    terminal.print(
        f"demo: {published} events in, {rows} read by the pipeline, "
        f"{lost} lost, {counts['duplicated']} duplicated"
    )
    return int(any((lost, counts["duplicated"], counts["unreported"])))
