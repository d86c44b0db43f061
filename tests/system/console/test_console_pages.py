"""The console's pages in a real browser.

Each page is looked at on a wide screen and on a telephone, light and dark: axe-core finds nothing,
the browser's console stays empty, nothing is asked of another host. Pictures are kept in
artifacts/pages, for people to look at.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from shop_in_browser import START, STATEMENT

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
CONDITION = "value.status = 'error'"


def violations(page, name: str) -> list[str]:
    """The faults of the open page in each view; a picture of each is kept."""
    from axe_playwright_python.base import AXE_SCRIPT

    PICTURES.mkdir(parents=True, exist_ok=True)
    wrong = []
    for width, theme, rules in VIEWS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=PICTURES / f"console-{name}-{width}-{theme}.jpeg", quality=90)
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


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param("overview", "/", marks=pytest.mark.wide),
        pytest.param("topics", "/topics", marks=pytest.mark.wide),
        pytest.param("records", "/t/orders/records", marks=pytest.mark.wide),
        pytest.param("search", f"/t/orders/records?q={quote(CONDITION)}", marks=pytest.mark.wide),
        pytest.param("hostile", "/t/hostile/records", marks=pytest.mark.wide),
        pytest.param("record", "/t/orders/1/3", marks=pytest.mark.wide),
        pytest.param(
            "timeline",
            f"/t/orders/timeline?from={START}&to={START + 240_000}",
            marks=pytest.mark.wide,
        ),
        pytest.param("partitions", "/t/orders/partitions", marks=pytest.mark.wide),
        pytest.param("shape", "/t/orders/shape", marks=pytest.mark.wide),
        pytest.param("settings", "/t/quiet/settings", marks=pytest.mark.wide),
        pytest.param("setting", "/t/quiet/settings?edit=retention.ms", marks=pytest.mark.wide),
        pytest.param("new-topic", "/topics/new", marks=pytest.mark.wide),
        pytest.param("send", "/t/orders/produce?like=1:3", marks=pytest.mark.wide),
        pytest.param("found", "/find?q=o", marks=pytest.mark.wide),
        pytest.param("letters", "/t/rejected/redrive", marks=pytest.mark.wide),
        pytest.param("groups", "/groups", marks=pytest.mark.wide),
        pytest.param("group", "/group?id=billing", marks=pytest.mark.wide),
        pytest.param(
            "reset",
            "/group/reset?id=nightly&topic=orders&to=to-earliest",
            marks=pytest.mark.wide,
        ),
        pytest.param("transactions", "/transactions", marks=pytest.mark.wide),
        pytest.param("brokers", "/brokers", marks=pytest.mark.wide),
        pytest.param("broker", "/broker?id=0", marks=pytest.mark.wide),
        pytest.param("replicas", "/broker?id=0&part=replicas", marks=pytest.mark.wide),
        pytest.param("versions", "/brokers/versions", marks=pytest.mark.wide),
        pytest.param("access", "/access", marks=pytest.mark.wide),
        pytest.param("connectors", "/connectors", marks=pytest.mark.wide),
        pytest.param("pipelines", "/pipelines", marks=pytest.mark.wide),
        pytest.param("run", "/run", marks=pytest.mark.wide),
        pytest.param("metrics", "/metrics", marks=pytest.mark.wide),
        pytest.param("alerts", "/alerts", marks=pytest.mark.wide),
        pytest.param("sql", "/sql", marks=pytest.mark.wide),
        pytest.param("rows", f"/sql?q={quote(STATEMENT)}", marks=pytest.mark.wide),
        pytest.param("registry", "/registry?path=/config/topics", marks=pytest.mark.wide),
        pytest.param("mirrors", "/mirrors", marks=pytest.mark.wide),
        pytest.param("flow", "/flow", marks=pytest.mark.wide),
    ],
)
def test_page_is_seen_by_everyone(visit, name, path):
    """No violation of axe-core's rules, no word on the console, nothing beyond the edge."""
    page = visit(path)

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
