"""The console's pages in a real browser.

Each page is looked at on a wide screen and on a telephone, light and dark: axe-core finds nothing,
the browser's console stays empty, nothing is asked of another host. Pictures are kept in
artifacts/pages, for people to look at.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from breadth import IS_FULL
from shop_in_browser import START, STATEMENT

from ottla.pipelines.execution import Batch
from ottla.pipelines.progress_topic import ProgressTopic

# A page is opened and looked at four times by a browser that a busy machine starves.
pytestmark = pytest.mark.timeout(1200)

PICTURES = Path(__file__).resolve().parents[3] / "artifacts" / "pages"
WIDE, NARROW = 1280, 390
OF_COLOURS = ["color-contrast", "link-in-text-block"]
VIEWS = ((WIDE, "light", None), (WIDE, "dark", OF_COLOURS), (NARROW, "light", None))
VIEWS += ((NARROW, "dark", OF_COLOURS),)
"""With the rules whose answers another view has not had already; None for all of them."""
FIND_VIOLATIONS = """async (rules) =>
  (await axe.run({...(rules && {runOnly: rules}), resultTypes: ["violations"]})).violations"""
DROP_ROWS = """() => {
  for (const row of document.querySelectorAll("tbody tr:nth-child(n+9)")) row.remove()
}"""
"""Rows of a table are like its first ones; axe-core takes its time for each cell."""
HIDDEN_ENTRIES = """() => {
  const places = [...document.querySelectorAll("nav [aria-current=page]")]
    .map((each) => each.getBoundingClientRect())
  return places.some((place) => place.left < -1 || place.right > innerWidth + 1)
}"""
"""Entries of the page that is open, in the rail and among the parts of a topic."""
CONDITION = "value.status = 'error'"


PAGES = {
    "overview": "/",
    "topics": "/topics",
    "records": "/t/orders/records",
    "search": f"/t/orders/records?q={quote(CONDITION)}",
    "hostile": "/t/hostile/records",
    "record": "/t/orders/1/3",
    "timeline": f"/t/orders/timeline?from={START}&to={START + 240_000}",
    "partitions": "/t/orders/partitions",
    "shape": "/t/orders/shape",
    "settings": "/t/quiet/settings",
    "setting": "/t/quiet/settings?edit=retention.ms",
    "new-topic": "/topics/new",
    "send": "/t/orders/produce?like=1:3",
    "found": "/find?q=o",
    "letters": "/t/rejected/redrive",
    "groups": "/groups",
    "group": "/group?id=billing",
    "reset": "/group/reset?id=nightly&topic=orders&to=to-earliest",
    "transactions": "/transactions",
    "brokers": "/brokers",
    "broker": "/broker?id=0",
    "replicas": "/broker?id=0&part=replicas",
    "versions": "/brokers/versions",
    "access": "/access",
    "who-can": "/access?kind=topic&name=orders&operation=Read",
    "connectors": "/connectors",
    "connector": "/connector?name=strict",
    "pipelines": "/pipelines",
    "run": "/run",
    "metrics": "/metrics",
    "alerts": "/alerts",
    "sql": "/sql",
    "rows": f"/sql?q={quote(STATEMENT)}",
    "registry": "/registry?path=/config/topics",
    "mirrors": "/mirrors",
    "flow": "/flow",
}
ALWAYS = ("overview", "records", "group", "connector", "access", "rows")
"""Pages of each kind: axe-core takes a second of a core for one, so the others are `wide`."""


def violations(page, name: str) -> list[str]:
    """The faults of the open page in each view; a picture of each is kept where all are looked at.

    Without OTTLA_BREADTH=full it is seen on a wide screen in the light alone.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    PICTURES.mkdir(parents=True, exist_ok=True)
    wrong = []
    for width, theme, rules in VIEWS if IS_FULL else VIEWS[:1]:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        if IS_FULL:
            page.screenshot(path=PICTURES / f"console-{name}-{width}-{theme}.jpeg", quality=90)
        if page.evaluate(HIDDEN_ENTRIES):
            wrong.append(f"{name} at {width}: the entry of this page is beyond the edge")
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if overflow > 0:
            wrong.append(f"{name} at {width}: {overflow} pixels beyond the edge")
        page.evaluate(DROP_ROWS)
        page.evaluate(AXE_SCRIPT)
        wrong += [
            f"{name} at {width} in {theme}: {rule['id']}: "
            f"{[node['html'][:120] for node in rule['nodes'][:3]]}"
            for rule in page.evaluate(FIND_VIOLATIONS, rules)
        ]
    return wrong


@pytest.fixture(scope="module")
def batches(broker) -> None:
    """Batches of a pipeline that runs."""
    run = ProgressTopic(broker.bootstrap_servers, "monitoring", Path("/out/monitoring/report.html"))
    counts = {"hosts": {"rows": 40, "malformed": 2}}
    with run as topic:
        for number in range(20):
            rows, lag = 400 + 13 * (number % 5), 40 - 2 * number
            topic.batch(Batch("alerts", number, rows, 0.5, lag, number % 2, 12, counts))


@pytest.mark.wide
def test_page_that_is_not_there_is_seen_by_everyone(visit):
    """With what was meant."""
    assert violations(visit("/t/ordres/records", status=404), "missing") == []


@pytest.mark.parametrize(
    "name",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.wide) for name in PAGES],
)
def test_page_is_seen_by_everyone(visit, connectors, batches, name):
    """No violation of axe-core's rules, no word on the console, nothing beyond the edge."""
    page = visit(PAGES[name])

    assert violations(page, name) == []


@pytest.mark.wide
def test_login_is_seen_by_everyone(browser, login_console):
    """Before a broker is asked, and where none answers."""
    browser.goto(login_console)
    assert violations(browser, "login") == []
    browser.fill("[name=name]", "ann")
    browser.fill("[name=password]", "x")
    browser.click("button.main")
    browser.wait_for_selector("[role=alert]")
    assert violations(browser, "login-failed") == []
    assert browser.input_value("[name=password]") == ""
