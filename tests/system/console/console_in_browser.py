"""The console of the shop, and a browser that was let in: fixtures for any cluster.

They begin with the fixture `broker`: a cluster with the records of `shop_in_browser.fill`.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from shop_in_browser import METRICS, NODE, sink_orders

from ottla.connect.connect_worker import ConnectWorker
from ottla.console.console_settings import ConsoleSettings
from ottla.console.server import run_console
from ottla.runtime.free_port import free_port
from ottla.testing.connector_contract import worker_properties

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


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
def worker_url() -> str:
    """The address of the worker of Connect that the console asks; `connectors` starts it there."""
    return f"http://127.0.0.1:{free_port('127.0.0.1')}"


@pytest.fixture(scope="module")
def connectors(broker, worker_url, tmp_path_factory) -> Iterator[ConnectWorker]:
    """A worker with two connectors over records that are no JSON: one has failed with them."""
    folder = tmp_path_factory.mktemp("connect")
    settings = worker_properties(broker, folder) | {"listeners": worker_url}
    with ConnectWorker.standalone(settings) as worker:
        sink_orders(worker, folder)
        yield worker


@pytest.fixture(scope="module")
def console(broker, measured, worker_url, tmp_path_factory):
    """The address of a console, with its token."""
    report = tmp_path_factory.mktemp("run") / "report.html"
    report.write_text('<!doctype html><html lang="en"><title>Report</title><h1>All arrived</h1>')
    settings = ConsoleSettings(
        broker.bootstrap_servers,
        port=0,
        name="shop",
        metrics=(measured,),
        connect=worker_url,
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
    say = lambda line: said.done() or said.set_result(line)  # noqa: E731 - the first line is taken
    lifeline, end = os.pipe()
    thread = threading.Thread(target=run_console, args=[settings, say, None, lifeline])
    thread.start()
    yield said.result(60).rpartition(" ")[2].replace("/run?", "/?")
    os.close(end)
    thread.join()
    os.close(lifeline)


@pytest.fixture(scope="module")
def browser(console):
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
    base, wrong, errors = console.partition("/?")[0], [], {}

    def note(said) -> None:
        """The browser says of a page that is an error that it could not be loaded."""
        status = errors.get(said.location["url"])
        if status is None or f"status of {status}" not in said.text:
            wrong.append(f"the console says {said.text}")

    listeners = {
        "console": note,
        "pageerror": lambda error: wrong.append(str(error)),
        "request": lambda sent: (
            sent.url.startswith((base, "data:")) or wrong.append(f"asks for {sent.url}")
        ),
    }
    for event, listener in listeners.items():
        browser.on(event, listener)
    browser.set_viewport_size({"width": 1280, "height": 900})
    browser.emulate_media(color_scheme="light")

    def go(path: str, status: int = 200, *, later: int = 0):
        """`later` is a status that the page may get when it asks for itself again."""
        if later or status != 200:
            errors[base + path] = later or status
        assert browser.goto(base + path).status == status
        return browser

    yield go
    browser.goto("about:blank")
    for event, listener in listeners.items():
        browser.remove_listener(event, listener)
    assert not wrong
