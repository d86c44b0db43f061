"""The report: one page that loads nothing, and that no line of a log can break."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from ottla.pipelines.report import SHOWN_ROWS, Run, render
from ottla.pipelines.tables import Table
from ottla.pipelines.web_traffic.pipeline import Reconciliation

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


def run(pages=(), minutes=(), lost=0):
    """A run with these pages and minutes; every other table has a row or none accordingly."""
    some = bool(minutes)
    tables = {
        "traffic_per_minute": Table(
            ("minute", "requests", "bytes", "clients"),
            [
                {"minute": minute, "requests": 3, "bytes": 2_000_000, "clients": 2}
                for minute in minutes
            ],
        ),
        "top_pages": Table(("path", "requests"), [{"path": path, "requests": 9} for path in pages]),
        "errors": Table(("status", "path"), [{"status": 404, "path": HOSTILE}] * some),
        "crawlers_by_user_agent": Table(("user_agent",), [{"user_agent": HOSTILE}] * some),
        "crawlers_by_rate": Table(("client", "peak"), [{"client": HOSTILE, "peak": 77}] * some),
        "malformed": Table(("problem", "raw"), [{"problem": "p", "raw": b"<b>\xff"}] * some),
    }
    counts = Reconciliation(
        in_topic=10, rows=10 - lost, distinct=10 - lost, malformed=1, dead_letters=1
    )
    return Run("A source", 10, counts, 30, tables, [("one step", 1.25)], "versions")


@pytest.fixture(scope="module")
def html():
    minutes = [START + timedelta(minutes=n) for n in (0, 1, 2, 50, 51)]
    pages = [HOSTILE, *(f"/page-{n}" for n in range(30))]
    return render(run(pages, minutes, lost=2))


def test_page_loads_nothing(html):
    """No script, no style sheet, no image, no font from elsewhere."""
    page = Page(html)

    assert page.loads == []
    assert not {"script", "link", "img", "iframe", "object", "image"} & set(page.tags)
    assert "@import" not in html
    assert html.count("url(") == html.count("url(#")


def test_page_shows_counts_tables_and_plots(html):
    """The counts are cards, each table is cut at its limit, three plots stand in the page."""
    page = Page(html)

    assert {"events in", "lost", "one step", "1.2", "404", "versions"} <= set(page.texts)
    assert page.tags.count("svg") == 3
    assert f"/page-{SHOWN_ROWS - 2}" in page.texts
    assert html.count('class="card bad"') == 1
    assert "11 more rows are in" in page.texts


def test_log_cannot_write_into_the_page(html):
    """What a client put into its request is text, in tables and in plots."""
    assert "<script" not in html
    assert "&lt;script" in html
    assert "\x00" not in html


def test_empty_run_is_a_page_too():
    """Nothing to plot, and every table says so."""
    page = Page(render(run()))

    assert page.texts.count("None.") == 5
    assert "svg" not in page.tags
