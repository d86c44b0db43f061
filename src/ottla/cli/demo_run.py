"""One run of the demo: its events, the pipeline that reads them, and whether each arrived once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.pipeline_plan import log_source
from ottla.cli.pipeline_run import EventSource, PipelineRun, Plan, remove_results
from ottla.pipelines.execution import RunOptions
from ottla.pipelines.pipeline import FeedRequest
from ottla.pipelines.site_traffic import DEFAULT_EVENTS, DEFAULT_SEED
from ottla.pipelines.web_traffic import COMPLETENESS, DEAD_LETTERS, PIPELINE

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from ottla.cli.pipeline_run import RunOutcome
    from ottla.cli.terminal import Terminal

MAX_OFFSETS_PER_TRIGGER: Final = 100_000


def event_source(arguments: Namespace) -> EventSource:
    """A log file, or generated events where none is given."""
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
    words = f"{events:,} generated events (no log was given; seed {seed})"
    return EventSource(words, feed(FeedRequest(events, seed)), count=events)


def run_demo(
    terminal: Terminal, source: EventSource, output: Path, folder: Path, *, has_console: bool
) -> int:
    """Run the pipeline from its beginning, with a broker in `folder`; 1 if anything is amiss."""
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
