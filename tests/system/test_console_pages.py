"""The console in a real browser: journeys through its pages, which a person would take.

Each page is looked at on a wide screen and on a telephone, light and dark: axe-core finds nothing,
the browser's console stays empty, nothing is asked of another host. Pictures are kept in
artifacts/pages, for people to look at.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from ottla import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.clients.mirror_records import Heartbeat
from ottla.console.console_settings import ConsoleSettings
from ottla.console.server import serve
from ottla.testing import wait_until
from ottla.testing.in_process_broker import InProcessBroker

# A page is opened and looked at four times by a browser that a busy machine starves.
pytestmark = pytest.mark.timeout(1200)

PICTURES = Path(__file__).resolve().parents[2] / "artifacts" / "pages"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
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
STATEMENT = "SELECT value.user, count(*), sum(value.amount) FROM orders GROUP BY 1 ORDER BY 2"
START = 1_795_878_000_000
SERIES = 'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}'
METRICS = f"# HELP {SERIES.partition('{')[0]} Bytes in.\n{SERIES} 4096\nkafka_p99 NaN\n"
NODE = {
    "path": "/config/topics",
    "data": '{"version": 1, "config": {"cleanup.policy": "compact"}}',
    "is_hidden": True,
    "version": 2,
    "created_ms": START,
    "modified_ms": START,
    "is_ephemeral": False,
    "data_length": 55,
    "children": ["orders", "<script>document.title = 'run'</script>"],
    "number_of_children": 2,
}
HOSTILE = (
    b"<script>document.title = 'run'</script>",
    b'"><img src=x onerror="document.title = \'run\'">',
    b"{{7*7}} \x1b[2J \xe2\x80\xae",
    bytes(range(64)),
    b"\xff\xfe\x00\x01",
    b"x" * 100_000,
    b'{"id": 9007199254740993, "price": 1.10, "big": 23958446825181076828}',
    None,
    b"",
)


@pytest.fixture(scope="module")
def broker():
    """A broker with orders of a shop, and with records that mean harm."""
    with InProcessBroker() as broker:
        broker.create_topic("orders", 3)
        broker.create_topic("hostile", 1)
        broker.create_topic("rejected", 1)
        broker.create_topic("quiet", 1, cleanup_policy="compact")
        broker.create_topic("west.heartbeats", 1)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(120):
                value = {
                    "id": number + 9007199254740993,
                    "user": f"u{number % 9}",
                    "amount": number * 1.25,
                    "status": "error" if number % 10 == 7 else "paid",
                }
                producer.send(
                    "orders",
                    json.dumps(value).encode(),
                    key=b"k%d" % (number % 17),
                    timestamp_ms=START + number * 1_731,
                    headers=[("trace", b"%032x" % number)] if number % 3 else [],
                )
            for number in range(3):
                failed = {"topic": "orders", "partition": 1, "offset": number}
                headers = [
                    (f"__connect.errors.{name}", str(each).encode())
                    for name, each in failed.items()
                ]
                producer.send("rejected", b"{}", headers=headers)
            beat = Heartbeat("west", "shop", START)
            producer.send("west.heartbeats", beat.value(), key=beat.key())
            for value in HOSTILE:
                producer.send("hostile", value, key=HOSTILE[0], headers=[("<b>", HOSTILE[1])])
        with readers(broker.bootstrap_servers):
            yield broker


@contextmanager
def readers(servers: str) -> Iterator[None]:
    """Two groups of the orders, of which one has a member, and a transaction that stays open."""
    orders = [TopicPartition("orders", number) for number in range(3)]
    with (
        Admin(servers) as admin,
        Consumer(servers, group_id="billing", client_id="billing-1") as member,
        Producer(
            servers, transactional_id="settlement", transaction_timeout_ms=600_000
        ) as producer,
    ):
        admin.create_topics([NewTopic("receipts", 1, 1)])
        admin.alter_group_offsets("nightly", dict.fromkeys(orders, 3))
        member.subscribe(["orders"])
        wait_until(member.assignment, "the assignment", meanwhile=lambda: member.poll(20))
        member.commit({each: OffsetAndMetadata(5) for each in orders})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("receipts", b"open").result(60)
        yield
        producer.abort_transaction()


class MetricsPage(BaseHTTPRequestHandler):
    """The metrics of a broker, as text for Prometheus."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        is_node = self.path.startswith("/registry")
        self.wfile.write((json.dumps(NODE) if is_node else METRICS).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def measured() -> Iterator[str]:
    """The address of metrics."""
    with ThreadingHTTPServer(("127.0.0.1", 0), MetricsPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def console(broker, measured, tmp_path_factory):
    """The address of a console, with its token."""
    report = tmp_path_factory.mktemp("run") / "report.html"
    report.write_text('<!doctype html><html lang="en"><title>Report</title><h1>All arrived</h1>')
    settings = ConsoleSettings(
        broker.bootstrap_servers,
        port=0,
        name="shop",
        metrics=(measured,),
        report=str(report),
    )
    with serving(settings) as address:
        yield address


@pytest.fixture(scope="module")
def login_console():
    """The address of a console where users log in to a cluster that does not answer."""
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    client["default.api.timeout.ms"] = "100"
    settings = ConsoleSettings("127.0.0.1:1", client, port=0, name="shop", has_login=True)
    with serving(settings) as address:
        yield address


@contextmanager
def serving(settings: ConsoleSettings) -> Iterator[str]:
    """The address of a console in a thread of its own."""
    said: Future[str] = Future()
    loop = asyncio.new_event_loop()
    say = lambda line: said.done() or said.set_result(line)  # noqa: E731 - the first line is taken
    task = loop.create_task(serve(settings, say))

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield said.result(60).rpartition(" ")[2].replace("/run?", "/?")
    loop.call_soon_threadsafe(task.cancel)
    thread.join()


@pytest.fixture(scope="module")
def browser(console, login_console):
    """One page of a Chromium that was let in; requests to other hosts are aborted and noted."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: make brings it")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no Chromium on PATH: none of {', '.join(BROWSERS)}")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        # A policy without eval is one for our pages, not for the tests that look at them.
        page = found.new_context(bypass_csp=False).new_page()
        page.goto(console)
        yield page
        found.close()


@pytest.fixture
def visit(browser, console):
    """Open a path; at the end nothing wrong may have been said, and no other host asked."""
    base, wrong = console.partition("/?")[0], []
    listeners = {
        "console": lambda said: wrong.append(f"the console says {said.text}"),
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda sent: (
            sent.url.startswith((base, "data:")) or wrong.append(f"asks for {sent.url}")
        ),
    }
    for event, listener in listeners.items():
        browser.on(event, listener)
    browser.set_viewport_size({"width": 1280, "height": 900})
    browser.emulate_media(color_scheme="light")

    def go(path: str):
        browser.goto(base + path)
        return browser

    yield go
    browser.goto("about:blank")
    for event, listener in listeners.items():
        browser.remove_listener(event, listener)
    assert not wrong


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
        ("overview", "/"),
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


def test_nothing_of_a_record_runs(visit):
    """Not in the list, nor on its page, nor where a row is opened; digits stay as they are."""
    page = visit("/t/hostile/records")
    assert "run" not in page.title()
    assert page.locator("#records img, #records script").count() == 0
    for row in range(len(HOSTILE)):
        page.locator("#records > tr:not(.open)").nth(row).locator("td").nth(4).click()
        page.locator("#records .open").nth(row).wait_for()
    assert "9007199254740993" in page.inner_text("#records")
    assert "23958446825181076828" in page.inner_text("#records")
    assert "run" not in page.title()


@pytest.mark.wide
def test_topics_are_filtered_as_one_types(visit):
    """The focus stays in the field, the address follows, and the list is of what fits."""
    page = visit("/topics")
    page.locator("[data-filter] input[name=q]").press_sequentially("ord")
    page.locator("[role=status]", has_text="1 of 6 topics").wait_for()
    assert page.inner_text("tbody td.name") == "orders"
    assert "q=ord" in page.url
    assert page.evaluate("document.activeElement.name") == "q"


@pytest.mark.wide
def test_journey_from_a_search_to_a_record_and_its_key(visit):
    """By links alone, as without a script."""
    page = visit("/t/orders/records")
    page.fill(".search input[name=q]", "value.status = 'error' and value.amount > 100")
    page.press(".search input[name=q]", "Enter")
    page.wait_for_selector(".found-line b")
    assert page.inner_text(".found-line b") == "4 found"
    page.locator("#records a").first.click()
    page.wait_for_selector("pre.data")
    page.click("text=All records of this key")
    page.wait_for_selector(".found-line b")
    assert "only that one was read" in page.inner_text(".found-line")


@pytest.mark.wide
def test_records_are_followed_as_they_come(visit, broker):
    """They appear above the others, also after the tab was away."""
    page = visit("/t/orders/records")
    page.click("[data-live]")
    page.wait_for_selector("[data-live-state]:not([hidden])")
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("orders", b'{"status": "<b>fresh</b>"}', key=b"new").result()
    page.locator("#records tr:first-child", has_text="<b>fresh</b>").wait_for()
    page.click("[data-live]")
    assert page.inner_text("[data-live]") == "Follow"


@pytest.mark.wide
def test_record_is_sent_and_sent_again(visit):
    """Forms have the token of the session; the browser ends at the record."""
    page = visit("/t/quiet/records")
    page.click("text=Send a record")
    page.fill("input[name=key]", "k")
    page.fill("textarea[name=value]", '{"n": 1.10}')
    page.click("text=Send >> nth=-1")
    page.wait_for_selector(".message")
    assert page.url.endswith("/t/quiet/0/0")
    page.click("text=Send again")
    page.click("text=Send the same record")
    page.wait_for_selector(".message")
    assert page.url.endswith("/t/quiet/0/1")
    assert "1.10" in page.inner_text("pre.data >> nth=1")


@pytest.mark.wide
def test_topic_is_created_and_deleted(visit):
    """By keys and forms; deletion wants its name."""
    page = visit("/topics")
    page.click("text=New topic")
    page.fill("main input[name=name]", "short-lived")
    page.fill("input[name=partitions]", "2")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message")
    page.click("text=Settings")
    page.click("text=Delete this topic")
    page.fill("details input[name=name]", "short-lived")
    page.click("text=Delete it")
    page.wait_for_selector(".message")
    assert page.url.endswith("/topics")
    assert "short-lived" not in page.inner_text("tbody")


@pytest.mark.wide
def test_theme_is_chosen_and_kept(visit):
    """By a form, without a script of its own."""
    page = visit("/topics")
    page.click("[value=dark]")
    page.wait_for_selector("html[data-theme=dark]")
    assert page.url.endswith("/topics")
    page.click("[value=auto]")
    page.wait_for_selector("html:not([data-theme])")


@pytest.mark.wide
def test_keys_lead_to_the_search_box_and_through_rows(visit):
    """A page can be used without a mouse."""
    page = visit("/topics")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "orders"
    page.keyboard.press("/")
    page.keyboard.type("quiet")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Topics with")
    assert page.locator(".found a").count() == 1


@pytest.mark.wide
def test_pages_work_without_a_script(browser, console):
    """Search, older records and a page of a record."""
    base = console.partition("/?")[0]
    context = browser.context.browser.new_context(
        java_script_enabled=False, storage_state=browser.context.storage_state()
    )
    page = context.new_page()
    page.goto(f"{base}/t/orders/records?count=5&q=paid")
    assert page.locator("#records tr").count() == 5
    page.click("a[rel=next]")
    page.locator("#records a").first.click()
    assert "Offset" in page.inner_text("h1")
    context.close()


def test_journey_from_a_group_that_is_behind_to_its_cause_and_back(visit):
    """The plot is drawn from its table; the reset is refused while the member lives."""
    page = visit("/groups?sort=name")
    assert page.locator("tbody tr td.name").all_inner_texts() == ["billing", "nightly"]
    page.click("text=nightly")
    assert "nobody reads: the group is Empty" in page.inner_text("#why .leads")
    page.goto(page.url.replace("nightly", "billing"))
    page.wait_for_selector(".plot canvas")  # two looks of the collector are a curve
    assert page.locator(".matrix td.cell:not(:empty)").count() == 3
    page.click("text=Reset offsets")
    page.select_option("[name=to]", "to-latest")
    page.click("button.main")
    page.locator(".preview", has_text="log end").first.wait_for()
    assert page.locator("button.danger").is_disabled()


@pytest.mark.wide
def test_offsets_are_reset_by_the_plan_that_was_seen(visit, broker):
    """And the message says so, on the group's page."""
    page = visit("/group/reset?id=nightly&topic=orders&to=shift-by&value=2")
    assert page.locator(".rows td:nth-child(3)").all_inner_texts() == ["5", "5", "5"]
    page.click("button.danger")
    page.wait_for_selector(".message")
    assert "/group?id=nightly" in page.url
    with Admin(broker.bootstrap_servers) as admin:
        offsets = admin.list_group_offsets("nightly")
    assert {each.offset for each in offsets.values()} == {5}


@pytest.mark.wide
def test_series_is_pinned_as_a_plot(visit):
    """By a link; its address is one to send to somebody."""
    page = visit("/metrics?q=bytesin")
    page.click("main tbody >> text=pin")
    page.wait_for_selector("figure.plot canvas")
    assert "4096" in page.inner_text("main .card")
    assert "pin=" in page.url


@pytest.mark.wide
def test_report_of_a_run_is_in_a_sandbox(visit):
    """It is beside the records that arrive, and survives the page's own refreshing."""
    page = visit("/run")
    assert page.inner_text("main td.name >> nth=0")
    page.frame_locator("iframe.report").locator("text=All arrived").wait_for()
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None
