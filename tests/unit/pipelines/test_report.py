"""The report: one page that loads nothing, and that no line of a log can break."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from ottla.pipelines.execution import Batch, Tally
from ottla.pipelines.pipeline import Section
from ottla.pipelines.plots import bars_plot
from ottla.pipelines.report import (
    PAGE_ROWS,
    SHOWN_ROWS,
    Card,
    Part,
    Report,
    batches_table,
    progress_plot,
    render,
    write_report,
)
from ottla.pipelines.tables import ResultTable

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = '/<script src="http://evil.example/x.js"></script>?$x$\x00\u6f22'
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER_LIMIT_S = 120
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
    table = ResultTable(("path", "requests", "seen"), rows)
    section = Section("top_pages", "Top pages", "A note.", lambda *_: None, plot)
    parts = [Part.of(section, table, {"limit": "2"})]
    cards = [Card(10, "events in"), Card(lost, "lost", lost == 0, "top_pages")]
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
    return bars_plot(table.column("path")[:40], table.column("requests")[:40], "requests")


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
    """Numbers are cards, good or bad; a table shows its first rows; two plots stand there."""
    page = Page(html)

    assert {"events in", "lost", "one step", "1.2", "2026-01-01 00:00", "versions"} <= set(
        page.texts
    )
    assert page.tags.count("svg") == 2
    assert f"/page-{SHOWN_ROWS - 2}" in page.texts
    assert html.count('class="card bad"') == 1
    assert html.count("<tr hidden>") == 11


def test_long_table_names_its_files():
    """What is more than a page can hold is in Parquet."""
    texts = Page(render(report(map(str, range(PAGE_ROWS + 1))))).texts

    assert "The first 1,000 of 1,001 rows are in this page, all of them in" in texts
    assert "top_pages/" in texts


def test_number_leads_to_what_it_counts(html):
    """A card is a link to the section with the rows."""
    assert '<a href="#top_pages">lost</a>' in html
    assert '<section id="top_pages">' in html
    assert '<a href="#">' not in html


def test_events_cannot_write_into_the_page(html):
    """What somebody sent is text, in tables and in plots."""
    assert html.count("<script") == 1
    assert "&lt;script" in html
    assert "\x00" not in html


def test_page_follows_the_colours_of_the_system(html):
    """Dark where the reader's system is; plots, whose letters are dark, are turned round."""
    assert "@media (prefers-color-scheme: dark)" in html
    assert ".plot svg { filter: invert(.9)" in html


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
    html = render(report(refresh_s=5))

    assert 'http-equiv="refresh" content="5"' in html
    assert 'class="again" data-seconds="5"' in html
    assert "refresh" not in render(report())


def test_page_is_replaced_at_once(tmp_path):
    """Nobody reads half a page, and nothing is left beside it."""
    path = tmp_path / "report.html"
    for title in ("first", "second"):
        write_report(report(title=title), path)

    assert "<h1>second</h1>" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


# What the script of the page does, in a browser.


@pytest.fixture(scope="session")
def browser() -> str:
    """The program of a Chromium."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no Chromium on PATH: none of {', '.join(BROWSERS)}")
    return found


@pytest.fixture
def result_of(browser, tmp_path):
    """Load a page in the browser, run a script on it, and return what the script returns."""

    def run(html: str, script: str) -> object:
        page = tmp_path / "report.html"
        first = "<script>const faults = []; onerror = text => { faults.push(text); };</script>"
        last = (
            "<script>document.body.dataset.result = JSON.stringify("
            f"faults.length ? {{faults}} : (() => {{ {script} }})());</script>"
        )
        html = html.replace("<head>", f"<head>{first}").replace("</body>", f"{last}</body>")
        page.write_text(html, encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/user"]
        done = subprocess.run(
            [browser, *flags, "--window-size=1200,900", "--dump-dom", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=BROWSER_LIMIT_S,
            check=True,
        )
        results = []

        class Body(HTMLParser):
            def handle_starttag(self, tag, attributes):
                if tag == "body":
                    results.append(json.loads(dict(attributes)["data-result"]))

        Body().feed(done.stdout)
        return results[0]

    return run


TOOLS = """
    const section = document.querySelector("#top_pages");
    const rows = () => [...section.querySelectorAll("tbody tr")].filter(row => !row.hidden);
    const column = number => rows().map(row => row.cells[number].textContent);
    const head = number => section.querySelectorAll("th button")[number];
"""


def numbered_page() -> str:
    """A page with a table of 30 rows that is neither sorted by text nor by number."""
    rows = [
        {"path": f"/{n * 7 % 30}", "requests": n * 7 % 30 * 100, "seen": START} for n in range(30)
    ]
    rows[3]["requests"] = None
    table = ResultTable(("path", "requests", "seen"), rows)
    section = Section("top_pages", "Top pages", "", lambda *_: None, plot)
    shown = ResultTable(
        ("path", "requests"), [{**row, "requests": row["requests"] or 0} for row in rows]
    )
    drawn = plot(ResultTable(shown.columns, shown.rows[:3]), {})
    return render(report(parts=[Part(section.name, "Top pages", "", table, drawn)]))


def test_table_is_sorted_by_a_click(result_of):
    """Numbers by their value, a dash first; a second click turns the order round."""
    script = "head(1).click(); const up = column(1); head(1).click(); return [up, column(1)];"
    up, down = result_of(numbered_page(), TOOLS + script)

    assert up[:4] == ["-", "0", "100", "200"]
    assert down[:3] == ["2,900", "2,800", "2,700"]
    assert len(up) == len(down) == SHOWN_ROWS


@pytest.mark.wide
def test_all_rows_are_shown_and_searched(result_of):
    """The button shows what is hidden; a search finds hidden rows too."""
    script = """
        const before = rows().length, more = section.querySelector(".more");
        const search = section.querySelector(".search");
        const find = text => {
          search.value = text;
          search.dispatchEvent(new Event("input"));
          return column(0);
        };
        const found = find("/23"), after = find("").length;
        more.click();
        const all = rows().length, text = more.textContent;
        more.click();
        return [before, found, after, all, text, rows().length];
    """
    found = result_of(numbered_page(), TOOLS + script)

    assert found == [20, ["/23"], 20, 30, "Show the first 20 rows", 20]


@pytest.mark.wide
def test_plot_tells_the_value_below_the_pointer(result_of):
    """By pointer and by key; a drag shows a part of it, Escape the whole again."""
    script = """
        const svg = section.querySelector("svg"), tip = section.querySelector(".plot + .tip");
        const box = svg.getBoundingClientRect(), points = JSON.parse(svg.dataset.points);
        const at = (type, x, y) => svg.dispatchEvent(new PointerEvent(type, { pointerType: "mouse",
          clientX: box.left + x * box.width, clientY: box.top + y * box.height }));
        const key = name => svg.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
        at("pointermove", .5, points.at[1]);
        const second = tip.textContent;
        key("ArrowDown");
        const view = () => svg.getAttribute("viewBox").split(" ").map(Number);
        const third = tip.textContent, whole = view();
        at("pointerdown", .25, .5); at("pointerup", .75, .5);
        const part = view().map((each, n) => each / whole[n % 2 + 2]);
        key("Escape");
        return [second, third, part, String(view()) === String(whole)];
    """
    second, third, part, is_whole = result_of(numbered_page(), TOOLS + script)

    assert (second, third) == ("/7: requests 700", "/14: requests 1,400")
    assert part == pytest.approx([0.25, 0.25, 0.5, 0.5], abs=0.02)
    assert is_whole


@pytest.mark.wide
def test_page_of_a_run_under_way_can_be_kept(result_of):
    """A button stops the page from loading itself again, and lets it go on."""
    script = """
        const again = document.querySelector(".again"), words = [again.textContent];
        again.click(); words.push(again.textContent);
        again.click(); words.push(again.textContent);
        return words;
    """
    keep = "Keep this page as it is"

    assert result_of(render(report(refresh_s=600)), script) == [keep, "Go on", keep]


@pytest.mark.wide
def test_record_is_named_by_the_command_that_reads_it(result_of):
    """A table with topic, partition and offset leads to each record; a hostile name does not."""
    names = ("web-traffic", "x; rm -rf /")
    rows = [{"_topic": name, "_partition": 1, "_offset": 12345} for name in names]
    table = ResultTable(("_topic", "_partition", "_offset"), rows)
    html = render(report(parts=[Part("top_pages", "Lines", "", table)]))
    script = """
        const buttons = section.querySelectorAll("td button");
        buttons[0].click();
        const code = section.querySelector("output code");
        return [buttons.length, code.textContent, String(getSelection())];
    """
    count, command, selected = result_of(html, TOOLS + script)

    expected = "ottla console-consumer --topic web-traffic --partition 1 --offset 12345"
    assert count == 1
    assert command == selected == f"{expected} --max-messages 1"
