"""The client of Connect's REST, on a server that answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ottla.clients.connect_rest import ConnectRefusedError, ConnectRest
from ottla.clients.json_answers import OddAnswerError


class Worker(BaseHTTPRequestHandler):
    """Echoes requests; some paths are refused, one is no JSON."""

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        answers = {
            "/refused": (409, b'{"error_code": 409, "message": "a rebalance"}'),
            "/broken": (500, b"<html>"),
            "/page": (200, b"<html>"),
            "/deep": (200, b"[" * 100_000),
            "/list": (200, b"[]"),
            "/elsewhere": (307, b""),
            "/empty": (200, b""),
        }
        echo = json.dumps({"body": body}).encode()
        status, content = answers.get(self.path, (200, echo))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def rest() -> Iterator[ConnectRest]:
    with HTTPServer(("127.0.0.1", 0), Worker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield ConnectRest(f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
        thread.join()


def test_body_and_answer_are_json(rest):
    """An empty answer is an empty object."""
    assert rest.ask("POST", "/connectors", {"name": "é"}) == {"body": {"name": "é"}}
    assert rest.ask("POST", "/empty") == {}


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/refused", 409, "a rebalance"),
        ("/broken", 500, "the worker answered with status 500"),
        ("/elsewhere", 307, "the worker answered with status 307"),
    ],
)
def test_refusal_has_the_words_of_the_worker(rest, path, status, message):
    """Or its status, where it has no words."""
    with pytest.raises(ConnectRefusedError) as caught:
        rest.ask("POST", path)
    assert (caught.value.status, caught.value.message) == (status, message)


def test_server_that_is_no_worker_is_an_error(rest):
    """As is one that does not answer."""
    for path in ("/page", "/deep", "/list"):
        with pytest.raises(OddAnswerError, match="the answer is"):
            rest.ask("POST", path)
    with pytest.raises(OSError, match="refused"):
        ConnectRest("http://127.0.0.1:1").ask("GET", "/")
