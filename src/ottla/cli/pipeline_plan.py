"""The plan of `ottla pipeline run`, by its options: the events to publish, and how to read.

Mistakes in the options are errors here, before anything is started.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import forbid_with, given, pairs_of
from ottla.cli.pipeline_run import EventSource, Plan
from ottla.cli.terminal import check_reachable
from ottla.pipelines.access_log import AccessLog, LogError
from ottla.pipelines.execution import RunOptions, Start
from ottla.pipelines.pipeline import (
    DEFAULT_EVENTS,
    DEFAULT_RATE,
    INTERVAL,
    SAMPLE_FEED,
    FeedRequest,
)
from ottla.pipelines.site_traffic import DEFAULT_SEED
from ottla.pipelines.topics import LogFeed, sample_files

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ottla.pipelines.pipeline import Feed, Pipeline

NO_FEED: Final = "none"
FEED_OPTIONS: Final = ("--log", "--input", "--again", "--events", "--seed", "--rate")
MADE_UP: Final = ("--events", "--seed")


def plan_of(pipeline: Pipeline, arguments: Namespace) -> Plan:
    """The plan that the options ask for; mistakes are reported before anything is started."""
    forbid_with(arguments, "--once", ("--continuous",))
    for option in ("--trigger", "--rate"):
        if given(arguments, option) and not arguments.continuous:
            raise UsageError(f"{option} goes with --continuous")
    if arguments.trigger is not None and not INTERVAL.fullmatch(arguments.trigger.strip()):
        raise UsageError(f"--trigger {arguments.trigger}: must be a length of time: '5 seconds'")
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
    try:
        start = Start.parse(arguments.start)
    except ValueError as error:
        raise UsageError(f"--from: {error}") from None
    inputs = [each.topic for each in pipeline.inputs]
    for topic in {each.topic for each in start.offsets or ()} - {*inputs}:
        known = ", ".join(inputs)
        raise UsageError(f"--from: {pipeline.name} does not read '{topic}' (it reads: {known})")
    parameters = pairs_of("--param", "NAME=VALUE", arguments.param)
    try:
        pipeline.with_parameters(parameters)
    except ValueError as error:
        raise UsageError(f"--param: {error}") from None
    return RunOptions(start, parameters, arguments.max_offsets_per_trigger, arguments.trigger)


def source_of(pipeline: Pipeline, arguments: Namespace, *, is_new: bool) -> EventSource | None:
    """The feed that was asked for; none where there is nothing to publish."""
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
    if name not in pipeline.feed_names:
        known = ", ".join(pipeline.feed_names) or "none"
        raise UsageError(f"{pipeline.name} has no feed '{name}' (there is: {known})")
    log = Path(arguments.log) if arguments.log is not None else None
    if log is not None and not log.is_file():
        raise CommandError(f"--log {log}: there is no such file")
    events = DEFAULT_EVENTS if arguments.events is None else arguments.events
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
    if SAMPLE_FEED not in pipeline.feed_names:
        raise CommandError(
            f"{pipeline.name} has no sample to begin with: give it --input FILE, or topics that "
            "have records by --bootstrap-server"
        )
    return SAMPLE_FEED
