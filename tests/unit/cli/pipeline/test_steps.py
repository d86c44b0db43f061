"""What a run says on the terminal."""

from __future__ import annotations

import io

import pytest

from ottla.cli.pipeline.steps import BatchLines, Steps
from ottla.cli.terminal import Terminal
from ottla.pipelines.progress import Batch


def batch(number, rows=100, late=0):
    return Batch("q", number, rows, 0.5, lag=7, late=late, state_rows=0, observed={})


def test_each_batch_has_a_line():
    """With rate, time, lag and late rows."""
    out = io.StringIO()

    BatchLines(Terminal(out=out)).add(1.25, batch(3, late=2))

    assert out.getvalue() == (
        "    1.2 s  q #3: 100 rows, 200 rows/s, 0.50 s a batch, lag 7, 2 late\n"
    )


def test_batches_of_a_pause_share_a_line():
    """A run that goes on for days does not print a line for each."""
    out = io.StringIO()
    lines = BatchLines(Terminal(out=out), pause_s=1.0)

    for number, at_s in enumerate((1.0, 1.3, 1.6, 2.1)):
        lines.add(at_s, batch(number))

    assert [line.split(": ")[0].strip() for line in out.getvalue().splitlines()] == [
        "1.0 s  q #0",
        "2.1 s  3 batches",
    ]
    assert "300 rows, 200 rows/s, 0.50 s a batch" in out.getvalue()


def test_step_that_fails_is_not_done():
    """The line is ended, and the step is none of those that were done."""
    out = io.StringIO()
    steps = Steps(Terminal(out=out))

    with pytest.raises(ValueError, match="no"), steps.step("trying"):
        raise ValueError("no")
    with steps.step("counting") as step:
        step.rows = 5

    assert out.getvalue().splitlines()[0] == "trying ... not done"
    assert "5 rows" in out.getvalue().splitlines()[1]
    assert [name for name, _ in steps.done] == ["counting"]
