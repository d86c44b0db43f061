"""A console, the cluster that it shows, and a browser that was let in."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from shop_in_browser import HOSTILE, METRICS, NODE, START

from ottla import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from ottla.clients.mirror_records import Heartbeat
from ottla.console.console_settings import ConsoleSettings
from ottla.console.server import serve
from ottla.testing import wait_until
from ottla.testing.in_process_broker import InProcessBroker

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


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
