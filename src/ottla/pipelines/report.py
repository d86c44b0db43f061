"""One HTML page with everything a run found: it needs no network and no other file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ottla.pipelines.execution import Tally
from ottla.pipelines.pipeline import Parameters, Section
from ottla.pipelines.plots import seconds_plot
from ottla.pipelines.tables import ResultTable, is_number, text_of

TEMPLATE = Path(__file__).with_name("report.html")
SHOWN_ROWS = 20
PAGE_ROWS = 1000
"""The rows of a table that the page has; its Parquet files have all."""
MADE = "made"
"""The section about how the report was made: batches and steps."""
MAX_CELL_WIDTH = 400
SHORT_CELL = 20
PLOTTED_BATCHES = 500
LEAST_PLOTTED = 3
LISTED_BATCHES = 10


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report; a page that is rewritten during the run reloads itself."""

    title: str
    summary: str
    source: str
    cards: Sequence[Card]
    parts: Sequence[Part]
    made: str
    progress_plot: str
    batches: ResultTable
    steps: Sequence[tuple[str, float]]
    versions: str
    refresh_s: int = 0


@dataclass(frozen=True, slots=True)
class Card:
    """A number at the top of the page; good or bad news where it is either.

    `section` is the name of the section that shows what the number counts.
    """

    value: object
    label: str
    is_good: bool | None = None
    section: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the pipeline with its table, and its plot as SVG; empty where it has none."""

    name: str
    title: str
    note: str
    table: ResultTable
    plot: str = ""

    @classmethod
    def of(cls, section: Section, table: ResultTable, parameters: Parameters) -> Part:
        """A table without rows has no plot."""
        draw = section.plot
        plot = draw(table, parameters) if draw is not None and table.rows else ""
        return cls(section.name, section.title, section.note, table, plot)


def write_report(report: Report, path: Path) -> None:
    """Replace the page atomically: a reader sees the old one or the new one."""
    fresh = path.with_suffix(".part")
    fresh.write_text(render(report), encoding="utf-8")
    os.replace(fresh, path)


def render(report: Report) -> str:
    """The page; everything that comes from the events is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["cell"] = partial(text_of, width=MAX_CELL_WIDTH)
    environment.tests["numeric"] = is_number
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report, shown_rows=SHOWN_ROWS, page_rows=PAGE_ROWS, short_cell=SHORT_CELL, made=MADE
    )


def progress_plot(tally: Tally) -> str:
    """The newest batches over time: how fast, how far behind, and how long each took.

    They are of several queries, so no line joins the points. Two or fewer give no plot.
    """
    batches = tally.batches[-PLOTTED_BATCHES:]
    if len(batches) < LEAST_PLOTTED:
        return ""
    series = {
        "rows per second": [batch.rows_per_second for _, batch in batches],
        "records waiting": [float(batch.lag) for _, batch in batches],
        "seconds per batch": [batch.seconds for _, batch in batches],
    }
    return seconds_plot("Micro-batches", [at_s for at_s, _ in batches], series)


def batches_table(tally: Tally) -> ResultTable:
    """The newest batches, the last one on top."""
    newest = reversed(tally.batches[-LISTED_BATCHES:])
    rows = [
        {
            "query": batch.query,
            "batch": batch.number,
            "at_second": round(at_s, 1),
            "rows": batch.rows,
            "rows_per_second": round(batch.rows_per_second),
            "seconds": round(batch.seconds, 2),
            "records_waiting": batch.lag,
        }
        for at_s, batch in newest
    ]
    return ResultTable(list(rows[0]) if rows else [], rows)
