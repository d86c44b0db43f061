"""`ottla demo` before it starts anything: its options, and what it needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ottla.cli.command import CommandError, UsageError
from ottla.cli.demo import DemoCommand, cause_of, clear_output, event_source, require_packages
from ottla.cli.options import option_parser
from ottla.pipelines.site_activity import SiteActivity


def source(*words):
    return event_source(option_parser(DemoCommand()).parse_args(words))


def test_events_are_generated_where_no_log_is_given():
    """It says that they are made up, and from which seed."""
    made = source("--events", "3", "--seed", "4")

    assert made.words == "3 generated events (no log was given; seed 4)"
    assert [line.value for line in made.lines] == list(SiteActivity(4, 3).lines())
    assert "100,000 generated events" in source().words


def test_log_is_replayed(tmp_path):
    """Each line of the file is an event."""
    path = tmp_path / "my.log"
    path.write_bytes(b"a 1\nb 2\n")

    assert [line.key for line in source("--log", str(path)).lines] == [b"a", b"b"]
    assert source("--log", str(path)).words == "The access log my.log"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--log", "/no/such.log"), "--log /no/such.log: there is no such file"),
        (("--log", "x", "--seed", "1"), "--events and --seed go with generated events"),
        (("--events", "0"), "--events 0: must be at least 1"),
    ],
)
def test_wrong_options_are_told(words, said):
    """Before a broker is started for nothing."""
    with pytest.raises((CommandError, UsageError), match=said):
        source(*words)


def test_missing_java_is_told_in_one_line(monkeypatch):
    """With the package to install."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    with pytest.raises(CommandError, match="openjdk-17-jre-headless"):
        require_packages()


def test_missing_packages_are_told(monkeypatch):
    """Where only the core is installed."""
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(CommandError, match=r"pyspark, pyarrow, matplotlib, jinja2 missing: pip"):
        require_packages()


def test_only_what_a_former_run_made_is_removed(tmp_path):
    """The folder for the output may be anybody's."""
    output = tmp_path / "out"
    (output / "events" / "batch_id=0").mkdir(parents=True)
    (output / "mine").mkdir()
    for name in ("report.html", "spark.log", "mine.html"):
        (output / name).touch()

    clear_output(output)

    assert sorted(path.name for path in Path(output).iterdir()) == ["mine", "mine.html"]


def test_cause_of_a_failure_is_one_sentence():
    """Of Spark's page of text the line of ours, or the first one."""
    assert cause_of(Exception("Job aborted\n  at x\nottla.spark.E: lost\n at y")) == (
        "ottla.spark.E: lost"
    )
    assert cause_of(Exception("first\nsecond")) == "first"
    assert cause_of(ValueError()) == "ValueError"
