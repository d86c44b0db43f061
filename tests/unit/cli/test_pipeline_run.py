"""What a run of a pipeline says, what its report counts, and what a reset removes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ottla.cli.pipeline_run import (
    BatchLines,
    RunOutcome,
    Steps,
    cards,
    remove_results,
    unparsed,
    unparsed_section,
)
from ottla.cli.terminal import Terminal
from ottla.pipelines.execution import Batch, Tally
from ottla.pipelines.pipeline import load_pipeline
from ottla.pipelines.tables import ResultTable

# What a run says on the terminal.


def batch(number, rows=100, late=0):
    return Batch("q", number, rows, 0.5, lag=300, late=late, state_rows=0, observed={})


def pipe():
    """A terminal whose streams are pipes."""
    return Terminal(out=io.StringIO(), err=io.StringIO())


def lines_on(terminal, **options):
    with terminal.progress("queries", "rows") as progress:
        return BatchLines(terminal, Tally(), progress, **options)


class Screen(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        return True


def test_each_batch_has_a_line():
    """The line of a batch has rate, time, lag and late rows."""
    terminal = pipe()

    lines_on(terminal).add(1.25, batch(3, late=2))

    assert terminal.out.getvalue() == (
        "    1.2 s  q #3: 100 rows, 200 rows/s, 0.50 s a batch, lag 300, 2 late\n"
    )


def test_person_sees_a_bar_in_place_of_lines(monkeypatch):
    """The bar shows the share of the records that was read; each step leaves one line."""
    monkeypatch.setenv("COLUMNS", "120")
    times = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(Terminal, "now_ms", lambda self: next(times))
    terminal = Terminal(out=Screen(), err=Screen())
    with Steps(terminal).step("queries") as step:
        tally = Tally()
        tally.add(1.0, Batch("q", 1, 100, 0.5, 300, 0, 0, {"t": {"rows": 100, "malformed": 0}}))
        BatchLines(terminal, tally, step.progress).add(1.0, tally.batches[0][1])

    (line,) = terminal.out.getvalue().splitlines()
    assert line.startswith("queries ... ")
    begun, bar, _ = terminal.err.getvalue().split("\r\x1b[K")[1:]
    assert begun == "queries ..."
    assert bar == "queries  ####............  25 %  100 rows  100/s  3 s left  lag 300"


def test_batches_of_a_pause_share_a_line():
    """A run that goes on for days does not print a line for each."""
    terminal = pipe()
    lines = lines_on(terminal, pause_s=1.0)

    for number, at_s in enumerate((1.0, 1.3, 1.6, 2.1)):
        lines.add(at_s, batch(number))

    out = terminal.out.getvalue()
    assert [line.split(": ")[0].strip() for line in out.splitlines()] == [
        "1.0 s  q #0",
        "2.1 s  3 batches",
    ]
    assert "300 rows, 200 rows/s, 0.50 s a batch" in out


def test_step_that_fails_is_not_done():
    """The line is ended, and the step is none of those that were done."""
    terminal = pipe()
    out = terminal.out
    steps = Steps(terminal)

    with pytest.raises(ValueError, match="no"), steps.step("trying"):
        raise ValueError("no")
    with steps.step("counting") as step:
        step.rows = 5

    assert out.getvalue().splitlines()[0] == "trying ... not done"
    assert "5 rows" in out.getvalue().splitlines()[1]
    assert [name for name, _ in steps.done] == ["counting"]


# What the report counts at its top.


def test_lines_that_did_not_parse_are_counted_though_they_have_rows():
    """The card said 0 above a table with one of them: only the sources' failures were counted."""
    pipeline = load_pipeline("web_traffic")
    completeness = ResultTable(["malformed"], [{"malformed": 1}])
    tables = dict.fromkeys((section.name for section in pipeline.sections), ResultTable([], []))

    count = unparsed(pipeline, tables | {pipeline.sections[-1].name: completeness})

    shown = {card.label: card for card in cards(Tally(), RunOutcome(), count)}
    assert (shown["did not parse"].value, shown["did not parse"].is_good) == (1, False)
    assert cards(Tally(), RunOutcome(), 0)[1].is_good is None


def test_numbers_lead_to_the_records_that_they_count():
    """Nothing led from "1 did not parse" to the line."""
    pipeline = load_pipeline("web_traffic")
    names = {section.name for section in pipeline.sections}
    section = unparsed_section(pipeline)
    links = {each.label: each.section for each in cards(Tally(), RunOutcome(), 1, section)}

    assert links["did not parse"] == "malformed"
    assert links["waiting"] == "made"
    assert links.keys() >= {"micro-batches", "seconds per batch"}
    assert section in names


# What a reset removes, and what it leaves alone.


def test_only_what_runs_made_is_removed(tmp_path):
    """The folder for the output may be anybody's."""
    for name in ("checkpoints/ranking-counts", "trending", "mine", "broker"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("report.html", "spark.log", "mine.html"):
        (tmp_path / name).touch()

    removed = remove_results(load_pipeline("ranking"), tmp_path)

    assert removed == ["checkpoints", "trending", "report.html", "spark.log"]
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == [
        "broker",
        "mine",
        "mine.html",
    ]
