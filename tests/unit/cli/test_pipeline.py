"""`ottla pipeline` before it starts anything: what the options ask for, and wrong ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from sys import path as folders_of_python

import pytest

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import option_parser
from ottla.cli.pipeline import PipelineCommand, own_failures, pipeline_of
from ottla.cli.pipeline_plan import plan_of
from ottla.cli.terminal import Terminal
from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.pipeline import PIPELINES, FeedRequest, load_pipeline


def plan(tmp_path, *words, name="ranking"):
    arguments = option_parser(PipelineCommand()).parse_args(
        ["run", name, "--output", str(tmp_path), *words]
    )
    return plan_of(load_pipeline(name), arguments)


def test_list_shows_every_pipeline():
    """Each pipeline has its topics, feeds and parameters."""
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
    (file,) = source.files
    (event,) = file.feed(FeedRequest(0, 0, AccessLog(file.path)))

    assert (event.topic, event.key) == ("interactions", b"/a")
    assert file.again


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
        (("--from", "{"), "--from: '{' is no JSON like {"),
        (
            ("--from", '{"clicks": {"0": 1}}'),
            "--from: ranking does not read 'clicks' (it reads: interactions)",
        ),
        (("--from", "noon"), "--from: 'noon' is none of: earliest, latest, a time"),
        (("--from", "2026-03-02T08:00:00"), "--from: '2026-03-02T08:00:00' is none of"),
        (("--param", "late"), "--param 'late' is not of the form NAME=VALUE"),
        (("--param", "x=1"), "--param: ranking has no parameter 'x' (there is: late)"),
        (("--feed", "host"), "ranking has no feed 'host' (there is: sample, log)"),
        (("--feed", "sample", "--log", "x"), "--log goes with --feed log, not with --feed sample"),
        (("--feed", "none", "--events", "3"), "--events needs a feed: --feed NAME"),
        (("--log", "/no/such.log"), "--log /no/such.log: there is no such file"),
        (("--events", "0"), "--events takes a number from 1 on, not '0'"),
        (("--report-every", "0"), "--report-every takes a number from 1 on, not '0'"),
        (("--max-offsets-per-trigger", "0"), "--max-offsets-per-trigger takes a number from 1 on"),
        (
            ("--continuous", "--rate", "-5"),
            "--rate takes a number above 0, 1000000000 at most",
        ),
        (("--continuous", "--rate", "nan"), "--rate takes a number such as 0.5, not 'nan'"),
        (("--continuous", "--trigger", "soon"), "--trigger soon: must be a length of time"),
        (("--continuous", "--trigger", "1 month"), "--trigger 1 month: must be a length of time"),
        (("--param", "late=noon"), "--param: late=noon: must be a length of time, such as 10 min"),
        (("--param", "late=10"), "--param: late=10: must be a length of time, such as 10 minutes"),
    ],
)
def test_wrong_options_are_told(tmp_path, words, said):
    """Before a broker is started for nothing."""
    with pytest.raises((CommandError, UsageError)) as error:
        plan(tmp_path, *words)

    assert said in str(error.value)


@pytest.mark.parametrize("late", ["90 seconds", "1 hour 30 minutes", "0.5 days", "interval 1 week"])
def test_lengths_of_time_are_as_spark_reads_them(tmp_path, late):
    """With their units; a number alone is none."""
    options = ("--param", f"late={late}", "--continuous", "--trigger", late)

    assert plan(tmp_path, *options).options.parameters == {"late": late}


@pytest.mark.parametrize("name", PIPELINES)
def test_parameter_has_a_value_of_the_kind_of_its_default(name):
    """A word for a number would end a run on Spark, without its name."""
    pipeline = load_pipeline(name)
    wrong = {key: f"{value}x" for key, value in pipeline.parameters.items() if value[:1].isdigit()}

    assert pipeline.with_parameters(pipeline.parameters) == pipeline.parameters
    for key, value in wrong.items():
        with pytest.raises(ValueError, match=f"{key}={value}: must be a "):
            pipeline.with_parameters({key: value})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "'run' needs the name of a pipeline"),
        (("run", "rankin"), "there is no pipeline 'rankin'; did you mean ranking?"),
        (("reset", "zzz"), "there is no pipeline 'zzz'; 'ottla pipeline list' shows them all."),
    ],
)
def test_pipeline_that_does_not_exist_is_told(words, said):
    """The error names the pipeline that may be meant."""
    arguments = option_parser(PipelineCommand()).parse_args(words)

    with pytest.raises((CommandError, UsageError)) as error:
        PipelineCommand().run(arguments, Terminal(out=io.StringIO()))

    assert str(error.value) == said


def test_inputs_can_be_other_topics(tmp_path):
    """A pipeline reads the topics of a site; it has no feed for them."""
    arguments = option_parser(PipelineCommand()).parse_args(
        ["run", "ranking", "--output", str(tmp_path), "--read", "interactions=clicks"]
    )
    pipeline = pipeline_of(arguments, Terminal())

    assert [each.topic for each in pipeline.inputs] == ["clicks"]
    assert pipeline.inputs[0].schema == load_pipeline("ranking").inputs[0].schema
    assert plan_of(pipeline, arguments).source is None


@pytest.mark.parametrize("words", [["sales=shipments"], ["sales=x", "shipments=x"]])
def test_two_inputs_have_two_topics(words):
    """Else one of them would be missing where the query looks for it."""
    options = [part for word in words for part in ("--read", word)]
    arguments = option_parser(PipelineCommand()).parse_args(["run", "retail", *options])

    with pytest.raises(UsageError, match="the pipeline has another use for this topic"):
        pipeline_of(arguments, Terminal())


def test_two_inputs_may_change_places():
    """Each has a topic of its own then, too."""
    changed = load_pipeline("retail").reading({"sales": "shipments", "shipments": "sales"})

    assert [each.topic for each in changed.inputs] == ["shipments", "sales"]


def run(*words):
    """What a command prints, and what it says besides."""
    out, err = io.StringIO(), io.StringIO()
    arguments = option_parser(PipelineCommand()).parse_args(words)
    assert PipelineCommand().run(arguments, Terminal(out=out, err=err)) == 0
    return out.getvalue(), err.getvalue()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Somebody in a folder of their own, who has asked for a new pipeline."""
    monkeypatch.setattr("sys.path", [*folders_of_python])
    monkeypatch.chdir(tmp_path)
    run("new", "orders")
    return Path("orders/pipeline.py")


def own_plan(*words):
    arguments = option_parser(PipelineCommand()).parse_args(["run", *words])
    return plan_of(pipeline_of(arguments, Terminal()), arguments)


def test_new_pipeline_is_three_files(tmp_path, monkeypatch):
    """They are named; what is there already is left alone."""
    monkeypatch.chdir(tmp_path)

    out, _ = run("new", "orders")

    assert out.splitlines() == [
        "wrote orders/pipeline.py",
        "wrote orders/sample.csv",
        "wrote orders/test_orders.py",
    ]
    with pytest.raises(CommandError, match="orders: is there already; nothing was written"):
        run("new", "orders")
    with pytest.raises(UsageError, match="'new' needs a name for the pipeline"):
        run("new")


def test_first_run_reads_the_sample_and_later_ones_what_they_are_given(own, tmp_path):
    """A pipeline in a file has a folder of results as others have."""
    first = own_plan(str(own))
    Path("pipeline-output/orders").mkdir(parents=True)

    assert (first.folder, first.source.words) == (
        Path("pipeline-output/orders"),
        "The sample sample.csv",
    )
    assert own_plan(str(own)).source is None
    assert own_plan(str(own), "--feed", "sample").source.words == "The sample sample.csv"
    may = tmp_path / "may.csv"
    may.write_text("time,item,quantity,price\n")
    given = own_plan(str(own), "--input", "may.csv", "--input", f"orders={may}", "--again")
    assert given.source.words == "The rows of may.csv, may.csv"
    assert [file.again for file in given.source.files] == [True, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--input", "no.csv"), "--input no.csv: there is no such file"),
        (("--input", "x=no.csv"), "--input x=no.csv: name its topic, TOPIC=FILE (there is: orders"),
        (
            ("--input", "orders/pipeline.py"),
            "--input orders/pipeline.py: its first line is no header of CSV: unexpected end",
        ),
        (("--input", "a", "--log", "b"), "option --input cannot be used with option --log"),
        (("--input", "a", "--seed", "1"), "option --input cannot be used with option --seed"),
        (("--again",), "--again goes with --log or --input"),
        (("--feed", "log"), "orders has no feed 'log' (there is: sample)"),
        (("--events", "3"), "--events: the sample of orders is a file"),
        (("--input", "orders/sample.csv", "--rate", "2"), "--rate goes with --continuous"),
    ],
)
def test_wrong_input_of_an_own_pipeline_is_told(own, words, said):
    """Before anything is started."""
    with pytest.raises(CommandError) as error:
        own_plan(str(own), *words)

    assert said in str(error.value)


def test_file_names_its_topic_where_there_are_several(tmp_path):
    """Sales and shipments have files of their own."""
    (tmp_path / "a.csv").write_text("item,quantity,time\n")

    with pytest.raises(UsageError, match=r"name its topic, TOPIC=FILE \(there is: sales, ship"):
        plan(tmp_path, "--input", str(tmp_path / "a.csv"), name="retail")
    found = plan(tmp_path, "--input", f"shipments={tmp_path / 'a.csv'}", name="retail")
    assert [file.source.topic for file in found.source.files] == ["shipments"]


def test_pipeline_without_a_sample_asks_for_input(own):
    """It would wait for nothing."""
    text = own.read_text()
    own.write_text(re.sub("samples={.*},", "", text))

    with pytest.raises(CommandError, match="orders has no sample to begin with: give it --input"):
        own_plan(str(own))


def test_own_lines_are_shown_where_a_file_fails(own):
    """The trace is on stderr, and the last line says which file."""
    own.write_text("def totals():\n    return TOTALS\n\ntotals()\n")
    terminal = Terminal(out=io.StringIO(), err=io.StringIO())
    arguments = option_parser(PipelineCommand()).parse_args(["run", str(own)])

    with pytest.raises(CommandError, match="cannot be imported: NameError: name 'TOTALS' is not"):
        pipeline_of(arguments, terminal)

    assert (
        terminal.err.getvalue().splitlines()[0].endswith('orders/pipeline.py", line 4, in <module>')
    )
    assert "return TOTALS" in terminal.err.getvalue()


def test_lines_of_build_are_shown_where_a_run_fails(own):
    """The lines are those of the user's file, and none of Ottla."""
    own.write_text(own.read_text().replace("totals(topics[SALES])", 'topics["sales"]'))
    pipeline = load_pipeline(own)
    terminal = Terminal(out=io.StringIO(), err=io.StringIO())

    with pytest.raises(KeyError), own_failures(pipeline, "x", terminal):
        pipeline.built({}, {})

    first, line, *_ = terminal.err.getvalue().splitlines()
    assert first.endswith("in build")
    assert line.strip() == 'return {TOTALS: topics["sales"]}'


@pytest.mark.parametrize(
    "spark_says",
    [
        "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match existing",
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing",
        "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] Streaming stateful operator",
    ],
)
def test_query_that_has_changed_is_told_what_to_do(spark_says):
    """Spark names the state, which nobody has made by hand."""
    pipeline = load_pipeline("word_count")

    with pytest.raises(CommandError) as error, own_failures(pipeline, "my.py:W", Terminal()):
        raise CommandError(f"Spark failed, spark.log has all of it: {spark_says}")

    assert str(error.value) == (
        "the query of word_count has changed since it was run last: 'ottla pipeline reset my.py:W' "
        "lets it begin anew, over the same input"
    )


def test_pipeline_whose_topic_was_created_again_is_told_what_to_do():
    """The source names an option of its own, which no pipeline has."""
    pipeline = load_pipeline("word_count")
    what = "lines: was deleted and created again"
    advice = "set the option failOnDataLoss to false to go on with what is there"

    with pytest.raises(CommandError) as error, own_failures(pipeline, "my.py:W", Terminal()):
        raise CommandError(f"Spark failed: ottla.spark.readers.DataLossError: {what}; {advice}")

    assert str(error.value) == (
        f"word_count cannot go on where it was: {what}; 'ottla pipeline reset my.py:W' lets it "
        "begin anew, over what is in its topics now"
    )


def test_list_shows_pipelines_of_packages(own, monkeypatch):
    """Beside Ottla's own; one that cannot be imported is listed with its error."""
    values = {"orders": "shop_orders:PIPELINE", "broken": "no_such_shop:PIPELINE"}
    Path("shop_orders.py").write_text(own.read_text().replace("__file__", repr(str(own.resolve()))))
    monkeypatch.syspath_prepend(Path.cwd())
    points = [EntryPoint(name, value, "ottla.pipelines") for name, value in values.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)

    text, _ = run("list")
    rows = {row["pipeline"]: row for row in json.loads(run("list", "--format", "json")[0])}

    assert text.split("broken: ")[1].splitlines() == [
        "cannot be used",
        "  package: no_such_shop",
        "  error: no_such_shop:PIPELINE: cannot be imported: ModuleNotFoundError: No module named "
        "'no_such_shop'",
        "orders: How many of each item were sold, and what they have earned.",
        "  package: shop_orders",
        "  topics in: orders",
        "  topics out: orders-totals",
        "  feeds: sample",
    ]
    assert list(rows) == [*PIPELINES, "broken", "orders"]
    assert {frozenset(row) for row in rows.values()} == {frozenset(rows["orders"])}
    assert (rows["ranking"]["package"], rows["ranking"]["error"]) == ("ottla", "")
    assert "No module named" in rows["broken"]["error"]
    assert run("list", "--format", "table")[0].count("\n") == len(rows) + 1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("visits=clicks", "ranking has no input 'visits' (there is: interactions)"),
        ("clicks", "--read 'clicks' is not of the form INPUT=TOPIC"),
        ("interactions=", "--read: interactions=: '' is no topic's name"),
        ("interactions=a b", "--read: interactions=a b: 'a b' is no topic's name"),
        ("interactions=ranking-counts", "the pipeline has another use for this topic"),
    ],
)
def test_wrong_inputs_are_refused(word, said):
    """The error names the inputs that there are."""
    arguments = option_parser(PipelineCommand()).parse_args(["run", "ranking", "--read", word])

    with pytest.raises(UsageError, match=re.escape(said)):
        pipeline_of(arguments, Terminal())
