"""`ottla pipeline` before it starts anything: what the options ask for, and wrong ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
from pathlib import Path

import pytest

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import option_parser
from ottla.cli.pipeline import PipelineCommand, pipeline_of, plan_of
from ottla.cli.terminal import Terminal
from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.pipeline import PIPELINES, FeedRequest, load_pipeline


def plan(tmp_path, *words, name="ranking"):
    arguments = option_parser(PipelineCommand()).parse_args(
        ["run", name, "--output", str(tmp_path), *words]
    )
    return plan_of(load_pipeline(name), arguments, Terminal())


def test_list_shows_every_pipeline():
    """With its topics, feeds and parameters."""
    out = io.StringIO()
    arguments = option_parser(PipelineCommand()).parse_args(["list"])

    assert PipelineCommand().run(arguments, Terminal(out=out)) == 0
    lines = out.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith(" ")] == list(PIPELINES)
    assert "  topics in: interactions" in lines
    assert "  parameters: late=10 minutes" in lines


def test_list_can_be_read_by_programs():
    """A row for each pipeline; its parameters are an object."""
    out = io.StringIO()
    arguments = option_parser(PipelineCommand()).parse_args(["list", "--format", "json"])

    PipelineCommand().run(arguments, Terminal(out=out))

    rows = {row["pipeline"]: row for row in json.loads(out.getvalue())}
    assert list(rows) == list(PIPELINES)
    assert rows["ranking"]["topics_in"] == "interactions"
    assert rows["ranking"]["parameters"]["late"] == "10 minutes"


def test_made_up_events_are_the_first_input(tmp_path):
    """A broker of its own has sample events at the first run, and goes on with them at the next."""
    first = plan(tmp_path, "--events", "5", "--seed", "3")
    (tmp_path / "ranking").mkdir()

    assert first.source.words == "The feed sample (seed 3)"
    assert len(list(first.source.events)) == 5
    assert (first.servers, first.is_continuous) == (None, False)
    assert plan(tmp_path).source is None


def test_log_is_the_feed_of_that_name(tmp_path):
    """Its lines are read as the pipeline wants them."""
    log = tmp_path / "access.log"
    log.write_text('192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1 "-" "x"\n')

    source = plan(tmp_path, "--log", str(log), "--again").source
    (event,) = source.log.feed(FeedRequest(0, 0, AccessLog(source.log.path)))

    assert (event.topic, event.key) == ("interactions", b"/a")
    assert source.log.again


def test_log_that_cannot_be_read_is_refused(tmp_path):
    """Before a broker or Spark is started; one that can says how it is compressed."""
    log = tmp_path / "access.log.bz2"
    log.write_bytes(bz2.compress(b"line"))
    with pytest.raises(CommandError, match=r"is compressed with bzip2; gzip and zstd are read"):
        plan(tmp_path, "--log", str(log))
    log.write_bytes(gzip.compress(b"line"))

    assert plan(tmp_path, "--log", str(log)).source.words == (
        "The access log access.log.bz2 (gzip)"
    )


def test_options_reach_the_run(tmp_path):
    """Parameters, the start, the pace and the master."""
    found = plan(
        tmp_path,
        *("--continuous", "--rate", "7", "--trigger", "2 seconds", "--from", "latest"),
        *("--param", "late=1 hour", "--max-offsets-per-trigger", "9", "--master", "local[4]"),
    )

    assert found.is_continuous
    assert (found.source.per_second, found.master) == (7.0, "local[4]")
    assert found.options.start.options == {"startingOffsets": "latest"}
    assert found.options.parameters == {"late": "1 hour"}
    assert (found.options.trigger, found.options.max_offsets_per_trigger) == ("2 seconds", 9)
    assert found.folder == Path(tmp_path) / "ranking"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--once", "--continuous"), "--once cannot be used with option --continuous"),
        (("--rate", "5"), "--rate goes with --continuous"),
        (("--once", "--trigger", "1 second"), "--trigger goes with --continuous"),
        (("--from", "noon"), "--from: 'noon' is none of: earliest, latest, a time"),
        (("--from", "2026-03-02T08:00:00"), "--from: '2026-03-02T08:00:00' is none of"),
        (("--param", "late"), "--param 'late' is not of the form NAME=VALUE"),
        (("--param", "x=1"), "--param: ranking has no parameter 'x' (there is: late)"),
        (("--feed", "host"), "ranking has no feed 'host' (there is: sample, log)"),
        (("--feed", "sample", "--log", "x"), "--log goes with --feed log, not with --feed sample"),
        (("--feed", "none", "--events", "3"), "--events needs a feed: --feed NAME"),
        (("--log", "/no/such.log"), "--log /no/such.log: there is no such file"),
        (("--events", "0"), "--events 0: must be at least 1"),
        (("--report-every", "0"), "--report-every 0: must be at least 1"),
    ],
)
def test_wrong_options_are_told(tmp_path, words, said):
    """Before a broker is started for nothing."""
    with pytest.raises((CommandError, UsageError)) as error:
        plan(tmp_path, *words)

    assert said in str(error.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "'run' needs the name of a pipeline"),
        (("run", "rankin"), "there is no pipeline 'rankin'; did you mean ranking?"),
        (("reset", "zzz"), "there is no pipeline 'zzz'; 'ottla pipeline list' shows them all."),
    ],
)
def test_pipeline_that_does_not_exist_is_told(words, said):
    """With the one that may be meant."""
    arguments = option_parser(PipelineCommand()).parse_args(words)

    with pytest.raises((CommandError, UsageError)) as error:
        PipelineCommand().run(arguments, Terminal(out=io.StringIO()))

    assert str(error.value) == said


def test_inputs_can_be_other_topics(tmp_path):
    """A pipeline reads the topics of a site; it has no feed for them."""
    arguments = option_parser(PipelineCommand()).parse_args(
        ["run", "ranking", "--output", str(tmp_path), "--read", "interactions=clicks"]
    )
    pipeline = pipeline_of(arguments)

    assert [each.topic for each in pipeline.inputs] == ["clicks"]
    assert pipeline.inputs[0].schema == load_pipeline("ranking").inputs[0].schema
    assert plan_of(pipeline, arguments, Terminal()).source is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("visits=clicks", "ranking has no input 'visits' (there is: interactions)"),
        ("clicks", "--read 'clicks' is not of the form INPUT=TOPIC"),
    ],
)
def test_wrong_inputs_are_refused(word, said):
    """With what there is."""
    arguments = option_parser(PipelineCommand()).parse_args(["run", "ranking", "--read", word])

    with pytest.raises(UsageError, match=re.escape(said)):
        pipeline_of(arguments)
