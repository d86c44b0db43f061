"""The pages that people see, in a real browser: each pipeline's report, and the page of a site.

Each is opened on a wide screen and on a telephone, light and dark. A picture of each is kept in
artifacts/pages, for people to look at; none is compared.
"""

from __future__ import annotations

import itertools
import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from breadth import some

from ottla import pipelines
from ottla.cli.pipeline_run import RunOutcome, cards, faults, parts, title_of
from ottla.pipelines.execution import Batch, Tally
from ottla.pipelines.pipeline import PIPELINES, load_pipeline
from ottla.pipelines.report import Report, batches_table, progress_plot, render
from ottla.pipelines.tables import ResultTable
from ottla.site.ledger import Entry
from ottla.site.whole_site import PageState, ReaderRow, TopicRow, write_page

# A page is opened and looked at four times by a browser that a busy machine starves.
pytestmark = pytest.mark.timeout(1200)

PICTURES = Path(__file__).resolve().parents[2] / "artifacts" / "pages"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VIEWS = list(itertools.product((1280, 390), ("light", "dark")))
ROWS = 22
DROP_ROWS = """() => {
  for (const row of document.querySelectorAll("tbody tr:nth-child(n+7):not(:last-child)"))
    row.remove()
}"""
"""Rows of a table are like its first six and its last; axe-core takes its time for each cell."""
DROP_LIKE_ROWS = """() => {
  for (const body of document.querySelectorAll("tbody")) {
    const seen = new Set()
    for (const row of [...body.rows].slice(2, -1)) {
      const look = row.innerHTML.replace(/>[^<]*/g, ">")
      seen.has(look) ? row.remove() : seen.add(look)
    }
  }
}"""
"""Rows of the same elements with the same attributes have the same colours."""
FIND_VIOLATIONS = """async (rules) =>
  (await axe.run({...(rules && {runOnly: rules}), resultTypes: ["violations"]})).violations"""
OF_COLOURS = ["color-contrast", "link-in-text-block"]
OF_PLACES = ["target-size", "scrollable-region-focusable", "css-orientation-lock"]
"""The rules whose answer depends on the scheme, or on the width, where no style asks for it."""
FIND_CONDITIONS = """() => [...document.styleSheets].flatMap(sheet =>
  [...sheet.cssRules].filter(rule => rule.media).map(rule => rule.conditionText))"""
CONDITIONS = {"(prefers-color-scheme: dark)", "print"}
"""With another one, as of a width, elements may come and go: all rules are to be asked again."""
LONG_PATH = "/a/" + "quite-a-long-name-of-a-page/" * 6


@pytest.fixture(scope="module")
def page():
    """One page of a Chromium, without a network: a name is never resolved."""
    # No test that runs a loop of its own may come between: they would share the thread's loop.
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: make brings it")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no Chromium on PATH: none of {', '.join(BROWSERS)}")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found.new_page()
        found.close()


@pytest.fixture
def looked_at(page, tmp_path):
    """Open a page in each view, keep a picture of it, and tell what is wrong with it."""
    from axe_playwright_python.base import AXE_SCRIPT

    def look(name: str, html: str) -> list[str]:
        path = tmp_path / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        PICTURES.mkdir(parents=True, exist_ok=True)
        wrong, words, asked = [], [], []
        listeners = {
            "console": lambda said: words.append(said.text),
            "pageerror": lambda error: words.append(str(error)),
            "request": lambda request: asked.append(request.url),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(path.as_uri())
        for width, theme in VIEWS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            picture = PICTURES / f"{name}-{width}-{theme}.jpeg"  # a PNG takes twice the time
            page.screenshot(path=picture, full_page=True, quality=90)
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if overflow > 0:
                wrong.append(f"{name} at {width} in {theme}: {overflow} pixels beyond the edge")
        is_plain = set(page.evaluate(FIND_CONDITIONS)) <= CONDITIONS
        page.evaluate(DROP_ROWS)
        page.evaluate(AXE_SCRIPT)
        for width, theme in VIEWS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            rules = None
            if is_plain and (width, theme) != VIEWS[0]:
                page.evaluate(DROP_LIKE_ROWS)
                rules = OF_COLOURS if width == VIEWS[0][0] else OF_COLOURS + OF_PLACES
            wrong += [
                f"{name} at {width} in {theme}: {rule['id']}: "
                f"{[node['html'][:120] for node in rule['nodes'][:3]]}"
                for rule in page.evaluate(FIND_VIOLATIONS, rules)
            ]
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.goto("about:blank")
        wrong += [f"{name}: the console says {each}" for each in words]
        wrong += [f"{name}: asks for {each}" for each in asked if each != path.as_uri()]
        return wrong

    return look


def result_of(name: str, section: str) -> ResultTable:
    """The rows that the samples give, again and again, a minute later each time."""
    folder = Path(pipelines.__file__).parent / "samples" / name / "expected"
    lines = (folder / f"{section}.jsonl").read_text(encoding="utf-8").splitlines()
    known = [json.loads(line) for line in lines]
    rows = [
        {key: changed(key, value, number) for key, value in known[number % len(known)].items()}
        for number in range(ROWS if len(known) > 1 else 1)
    ]
    return ResultTable(list(known[0]), rows)


def changed(key: str, value: object, number: int) -> object:
    """A moment becomes one, later with each row; some paths are long."""
    if key == "path" and number % 4 == 3:
        return LONG_PATH + str(number)
    if isinstance(value, str) and value[:2] == "20" and value.endswith("Z"):
        return datetime.fromisoformat(value) + timedelta(minutes=number)
    return value


def report_of(name: str, refresh_s: int = 0) -> str:
    """The page of a pipeline, as a run makes it from its tables."""
    pipeline = load_pipeline(name)
    tables = {each.name: result_of(name, each.name) for each in pipeline.sections}
    tally = Tally()
    for number in range(12):
        tally.add(float(number), Batch(name, number, 1000, 0.25, 11 - number, 0, 5, {}))
    outcome = RunOutcome(published={each.topic: 6000 for each in pipeline.fed_topics})
    report = Report(
        title=title_of(pipeline),
        summary=pipeline.summary,
        source="Made from the samples",
        cards=[*cards(tally, outcome, 1, pipeline.sections[0].name), *faults(pipeline, tables)],
        parts=parts(pipeline, tables, pipeline.parameters),
        made="By a test.",
        progress_plot=progress_plot(tally),
        batches=batches_table(tally),
        steps=[("starting a broker", 1.25), ("running the pipeline", 12.5)],
        versions="of no matter",
        refresh_s=refresh_s,
    )
    return render(report)


def site_page(folder: Path, refresh_s: int) -> str:
    """The page of a site that is running, or that has ended with a ledger."""
    readers = ("news-feed", "search-index", "login-counters", "warehouse", "late-joiner")
    right = [Entry(each, "page-views", 100, "documents", 100, 100, 0, 0) for each in readers]
    wrong = Entry("ranking", "clicks", 1_000_000, "clicks", 1_000_000, 999_999, 1, 0)
    flow = PageState(
        92.5,
        [TopicRow("page-views", 1_200_000, 960.5), TopicRow("searches", 0, 0.0)],
        [ReaderRow(each, "page-views", 900_000, 300_000, 3) for each in readers],
        [(6.0, "the reader spark is killed"), (9.5, "the reader spark is started again")],
        [] if refresh_s else [*right, wrong],
        refresh_s,
    )
    write_page(flow, folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.wide
@pytest.mark.parametrize("name", some(some(PIPELINES)))
def test_report_is_seen_by_everyone(looked_at, name):
    """No violation of axe-core's rules, no word on the console, no request, nothing cut off."""
    assert looked_at(name, report_of(name)) == []


@pytest.mark.wide
def test_report_of_a_run_under_way_is_seen_by_everyone(looked_at):
    """The page that loads itself again has no fault either."""
    assert looked_at("web_traffic-running", report_of("web_traffic", refresh_s=600)) == []


@pytest.mark.wide
@pytest.mark.parametrize("state", ["running", "ended"])
def test_site_is_seen_by_everyone(looked_at, tmp_path, state):
    """The live page of a site, and what it leaves behind."""
    html = site_page(tmp_path, refresh_s=600 if state == "running" else 0)

    assert looked_at(f"site-{state}", html) == []


@pytest.mark.wide
@pytest.mark.parametrize("theme", some(["light", "dark"]))
def test_fault_of_one_view_is_found(looked_at, theme):
    """Words that only one scheme hides, and elements that only a narrow screen shows."""
    shown = "@media (max-width: 500px) { main > img { display: inline } }"
    style = f"@media (prefers-color-scheme: {theme}) {{ p {{ color: #777; background: #888 }} }}"
    html = (
        '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">'
        "<title>a page</title><style>{}</style><main><h1>faults</h1><p>hidden</p>"
        '<img style="max-width: 9px" src="data:,"></main></html>'
    )
    hidden = "main > img { display: none }"

    wrong = looked_at(f"faulty-{theme}", html.format(f"{style} {hidden}"))
    assert [each.partition(": ")[0] for each in wrong if "color-contrast" in each] == [
        f"faulty-{theme} at {width} in {theme}" for width in (1280, 390)
    ]
    assert not [each for each in wrong if "image-alt" in each]
    wrong = looked_at(f"faulty-narrow-{theme}", html.format(f"{hidden} {shown}"))
    assert [each.partition(": ")[0] for each in wrong if "image-alt" in each] == [
        f"faulty-narrow-{theme} at 390 in {each}" for each in ("light", "dark")
    ]


@pytest.mark.wide
def test_fault_of_a_page_is_found(looked_at):
    """An image without words, an error, a request and a line too long are told."""
    html = (
        "<!doctype html><title>a page</title><main><h1>faults</h1><pre>" + "x" * 400 + "</pre>"
        '<img src="http://localhost:1/x.png"></main><script>missing()</script>'
    )
    wrong = looked_at("faulty", html)

    for fault in ("image-alt", "missing is not defined", "asks for http", "beyond the edge"):
        assert any(fault in each for each in wrong)
