"""Calls over HTTP end, whatever the other end does; no password is in an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from unittest.mock import Mock

import pytest

from ottla.runtime.clock import SystemClock
from ottla.runtime.http_calls import (
    CallError,
    HttpRequest,
    exchange,
    post_json,
    read_text,
    shown_url,
)

CLOCK = SystemClock()
DRIPS = {"letters": b"2", "continued": b"100 Continue\r\n\r\nHTTP/1.1 "}


class Handler(BaseHTTPRequestHandler):
    """A server that behaves as its path says."""

    over = threading.Event()
    seen: ClassVar[list[tuple[str, str, bytes]]] = []

    def do_GET(self) -> None:
        kind = self.path.strip("/")
        if kind == "silent":
            self.over.wait(30)
        elif kind in DRIPS:
            self.drip(DRIPS[kind])
        elif kind == "redirect":
            self.send_response(302)
            self.send_header("location", "/short")
            self.end_headers()
        elif kind == "cut":
            self.send_response(200)
            self.send_header("content-length", "1000")
            self.end_headers()
            self.send("all")
        elif kind == "rubbish":
            self.wfile.write(b"\x00\xff rubbish\r\n\r\n")
        else:
            self.send_response(200)
            self.end_headers()
            self.send(kind)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, self.headers.get("authorization", ""), body))
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def drip(self, piece: bytes) -> None:
        try:
            self.wfile.write(b"HTTP/1.1 ")
            while not self.over.wait(0.02):
                self.wfile.write(piece)
        except OSError:
            pass  # it was too late

    def send(self, kind: str) -> None:
        try:
            while kind == "endless":
                self.wfile.write(b"x" * 65_536)
            while kind == "slow" and not self.over.wait(0.02):
                self.wfile.write(b"x")
            self.wfile.write(b"all")
        except OSError:
            pass  # it was too much

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    Handler.over.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        Handler.over.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("silent", "timed out"),
        ("letters", "timed out"),
        ("continued", "timed out"),
        ("slow", "no whole answer in 0.3 s"),
        ("endless", "answers more than 100,000 bytes"),
        ("redirect", "answers 302"),
        ("cut", "answers 3 of 1,000 bytes"),
        ("rubbish", "rubbish"),
    ],
)
def test_call_ends_whatever_the_server_does(address, path, reason):
    """The reason has no secret that may be in the address."""
    url = address.replace("//", "//me:secret@") + f"/{path}"

    with pytest.raises(CallError, match=reason) as failed:
        read_text(CLOCK, url, 100_000, 0.3)
    assert "secret" not in str(failed.value)
    assert address not in str(failed.value)


def test_password_of_an_address_is_a_header(address):
    """The answer to a POST is its status alone."""
    assert read_text(CLOCK, f"{address}/short", 100, 5) == "all"
    post_json(CLOCK, address.replace("//", "//me:p%40ss@") + "/hook", b"{}", 5)

    assert Handler.seen[-1] == ("/hook", "Basic bWU6cEBzcw==", b"{}")
    form = HttpRequest(f"{address}/form", "POST", b"a=b", ("me", "pä:ss"), "text/plain")
    assert exchange(CLOCK, form, 100, 5).status == 204
    assert Handler.seen[-1] == ("/form", "Basic bWU6cMOkOnNz", b"a=b")
    with pytest.raises(CallError, match="answers 500"):
        post_json(CLOCK, f"{address}/broken", b"{}", 5)


def test_nobody_listens():
    """It is said at once."""
    with pytest.raises(CallError, match="refused"):
        read_text(CLOCK, "http://127.0.0.1:9/metrics", 100, 5)
    with pytest.raises(CallError, match="must begin with http"):
        read_text(CLOCK, "file:///etc/hostname", 100, 5)
    assert shown_url("https://a:b@host:1/x?y") == "https://host:1/x?y"


def test_proxy_of_the_environment_is_not_asked(address, monkeypatch):
    """The password of the address would go there."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert read_text(CLOCK, f"{address}/short", 100, 5) == "all"


def test_call_ends_though_the_name_is_still_looked_up(monkeypatch):
    """The system may ask name servers for half a minute, and cannot be told to stop."""
    is_over, was_asked = threading.Event(), threading.Event()

    def look_up(host: str, port: int, **_: object) -> list[object]:
        was_asked.set()
        is_over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        with pytest.raises(CallError, match=r"timed out: no whole answer in 0.1 s"):
            read_text(CLOCK, "http://host.test/metrics", 100, 0.1)
        assert was_asked.is_set()
    finally:
        is_over.set()


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), ValueError()])
def test_name_that_is_not_known_is_the_reason(monkeypatch, error):
    """The other thread has the error."""
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=error))

    with pytest.raises(CallError, match=r"not known|ValueError"):
        read_text(CLOCK, "http://host.test/metrics", 100, 5)


def test_address_that_answers_nothing_leaves_time_for_the_next(address, monkeypatch):
    """A host may have one of a network to which there is no way."""
    real_connect, shares = socket.create_connection, []

    def connect(place: tuple[str, int], timeout_s: float) -> socket.socket:
        shares.append(timeout_s)
        if place[0] != "127.0.0.1":
            raise TimeoutError
        monkeypatch.undo()  # of the look-up, which the call makes once more
        return real_connect(place, timeout_s)

    found = [(0, 0, 0, "", (each, 0)) for each in ("2001:db8::1", "192.0.2.1", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(socket, "create_connection", connect)

    assert read_text(CLOCK, f"{address}/short", 100, 30) == "all"
    assert [limit <= share for share, limit in zip([10, 15, 30], shares, strict=True)] == 3 * [True]
