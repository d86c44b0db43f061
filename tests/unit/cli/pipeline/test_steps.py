"""What a run says on the terminal."""

from __future__ import annotations

import io

import pytest

from ottla.cli.pipeline.steps import BatchLines, Steps
from ottla.cli.terminal import Terminal
from ottla.pipelines.progress import Batch, Tally


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
    """With rate, time, lag and late rows."""
    terminal = pipe()

    lines_on(terminal).add(1.25, batch(3, late=2))

    assert terminal.out.getvalue() == (
        "    1.2 s  q #3: 100 rows, 200 rows/s, 0.50 s a batch, lag 300, 2 late\n"
    )


def test_person_sees_a_bar_in_place_of_lines(monkeypatch):
    """How much of what is in the topics was read; each step leaves one line."""
    monkeypatch.setenv("COLUMNS", "120")
    times = iter(range(0, 100_000, 1000))
    monkeypatch.setattr(Terminal, "now_ms", lambda self: next(times))
    terminal = Terminal(out=Screen(), err=Screen())
    with Steps(terminal).step("queries") as step:
        tally = Tally()
        tally.add(1.0, Batch("q", 1, 100, 0.5, 300, 0, 0, {"t": (100, 0)}))
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
