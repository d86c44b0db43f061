"""The report: one page that loads nothing, and that no line of a log can break."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from ottla.pipelines.pipeline import Section
from ottla.pipelines.plots import bars_plot
from ottla.pipelines.progress import Batch, Tally
from ottla.pipelines.report import (
    SHOWN_ROWS,
    Card,
    Part,
    Report,
    batches_table,
    progress_plot,
    render,
    write_report,
)
from ottla.pipelines.tables import Table

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = '/<script src="http://evil.example/x.js"></script>?$x$\x00\u6f22'
VOID = {"meta", "link", "br", "img", "input", "hr"}
LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """Checks nesting; keeps tags, what would be loaded, and the text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.loads, self.texts = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in LOADING and value[:1] != "#"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def batch(number=0, rows=10, seconds=0.5, lag=3):
    return Batch("q", number, rows, seconds, lag, late=0, state_rows=0, observed={})


def report(pages=(), lost=0, batches=(), **changes):
    """A report on these pages and batches."""
    tally = Tally()
    for at_s, each in enumerate(batches):
        tally.add(at_s, each)
    rows = [{"path": path, "requests": 9, "seen": START} for path in pages]
    table = Table(("path", "requests", "seen"), rows)
    section = Section("top_pages", "Top pages", "A note.", lambda *_: None, plot)
    parts = [Part.of(section, table, {"limit": "2"})]
    cards = [Card(10, "events in"), Card(lost, "lost", lost == 0)]
    fields = {
        "title": "A title",
        "summary": "What it does.",
        "source": HOSTILE,
        "cards": cards,
        "parts": parts,
        "made": "By hand.",
        "progress_plot": progress_plot(tally),
        "batches": batches_table(tally),
        "steps": [("one step", 1.25)],
        "versions": "versions",
    }
    return Report(**{**fields, **changes})


def plot(table, parameters):
    return bars_plot(table.column("path"), table.column("requests"), "requests")


@pytest.fixture(scope="module")
def html():
    pages = [HOSTILE, *(f"/page-{n}" for n in range(30))]
    return render(report(pages, lost=2, batches=[batch(n) for n in range(3)]))


def test_page_loads_nothing(html):
    """No script, no style sheet, no image, no font from elsewhere; one script is in the page."""
    page = Page(html)

    assert page.loads == []
    assert page.tags.count("script") == 1
    assert "<script>" in html
    assert not {"link", "img", "iframe", "object", "image"} & set(page.tags)
    assert "@import" not in html
    assert html.count("url(") == html.count("url(#")


def test_page_shows_cards_tables_and_plots(html):
    """Numbers are cards, good or bad; each table is cut at its limit; two plots stand there."""
    page = Page(html)

    assert {"events in", "lost", "one step", "1.2", "2026-01-01 00:00", "versions"} <= set(
        page.texts
    )
    assert page.tags.count("svg") == 2
    assert f"/page-{SHOWN_ROWS - 2}" in page.texts
    assert html.count('class="card bad"') == 1
    assert "11 more rows are in" in page.texts


def test_events_cannot_write_into_the_page(html):
    """What somebody sent is text, in tables and in plots."""
    assert html.count("<script") == 1
    assert "&lt;script" in html
    assert "\x00" not in html


def test_page_follows_the_colours_of_the_system(html):
    """Dark where the reader's system is; plots, whose letters are dark, keep a light ground."""
    assert "@media (prefers-color-scheme: dark)" in html
    assert ".plot svg { background: #ffffff" in html


def test_empty_run_is_a_page_too():
    """Nothing to plot, and the table says so."""
    page = Page(render(report()))

    assert page.texts.count("None.") == 1
    assert "svg" not in page.tags


def test_one_batch_is_a_row_and_no_plot():
    """A single point in three empty panels told nothing; the newest batches are listed."""
    page = Page(render(report(batches=[batch(7, rows=1234)])))

    assert "svg" not in page.tags
    assert {"7", "1,234", "records waiting"} <= set(page.texts)


def test_short_cells_are_not_broken():
    """Names and moments stay on one line on a narrow screen, where tables scroll; texts do not."""
    html = render(report(["person-1", "a text that needs more than a line"]))

    assert '<td class="short">person-1</td>' in html
    assert '<td class="short">2026-01-01 00:00</td>' in html
    assert '<td class="long">a text that needs' in html


def test_page_of_a_run_under_way_is_loaded_again():
    """While a pipeline runs, a browser shows what it has done so far."""
    assert 'http-equiv="refresh" content="5"' in render(report(refresh_s=5))
    assert "refresh" not in render(report())


def test_page_is_replaced_at_once(tmp_path):
    """Nobody reads half a page, and nothing is left beside it."""
    path = tmp_path / "report.html"
    for title in ("first", "second"):
        write_report(report(title=title), path)

    assert "<h1>second</h1>" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]
