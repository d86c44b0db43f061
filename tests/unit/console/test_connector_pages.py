"""The pages of connectors, by a worker of Connect in the test's process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from odd_worker import OddWorker
from visitor import Visitor, visit

from ottla.clients.connect_rest import ConnectRest
from ottla.connect.connect_worker import ConnectWorker
from ottla.console import connector_pages
from ottla.console.connector_pages import connector_line, first_line
from ottla.console.masks import HIDDEN_QUOTE, mask_of
from ottla.testing import InProcessBroker, wait_until
from ottla.testing.connector_contract import worker_properties

NAME = "lines/of a file"


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """A broker, and a worker that has a connector: the servers and the worker's URL."""
    folder = tmp_path_factory.mktemp("connect")
    (folder / "in.txt").write_text("a\nb\n")
    with (
        InProcessBroker() as broker,
        ConnectWorker.standalone(worker_properties(broker, folder)) as worker,
    ):
        rest = ConnectRest(worker.url)
        config = {
            "name": NAME,
            "connector.class": "FileStreamSource",
            "topic": "lines",
            "file": str(folder / "in.txt"),
            "some.password": "hush",
        }
        rest.ask("POST", "/connectors", {"name": NAME, "config": config})
        wait_until(lambda: state(rest) == "RUNNING", "the connector running")
        yield broker.bootstrap_servers, worker.url


def state(rest: ConnectRest) -> str:
    found = rest.ask("GET", "/connectors?expand=status")[NAME]["status"]
    states = [found["connector"]["state"], *(each["state"] for each in found["tasks"])]
    return states[-1]


def test_connectors_are_listed_with_their_tasks(workers):
    """State, kind and tasks; names may have anything in them."""
    servers, url = workers

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/connectors.json")).json
        (row,) = data["rows"]
        assert (row["name"], row["kind"], row["state"]) == (NAME, "source", "RUNNING")
        assert [task["state"] for task in row["tasks"]] == ["RUNNING"]
        page = (await visitor.get("/connectors")).text
        assert "/connector?name=lines%2Fof+a+file" in page
        assert (await visitor.get("/connectors.json?q=none")).json["found"] == 0

    visit(servers, walk, connect=url)


def test_connector_has_its_settings_without_secrets(workers):
    """And its topics, offsets and tasks."""
    servers, url = workers

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/connector.json?name=lines%2Fof+a+file")
        data = answer.json
        assert data["config"]["file"].endswith("in.txt")
        assert "hush" not in answer.text
        assert data["group"] == ""
        assert (await visitor.get("/connector?name=lines%2Fof+a+file")).status == 200
        missing = await visitor.get("/connector?name=other")
        assert missing.status == 404

    visit(servers, walk, connect=url)


def test_connector_is_paused_and_resumed(workers):
    """By a form; a read-only console has no such path."""
    servers, url = workers
    rest = ConnectRest(url)

    async def act(visitor: Visitor, action: str) -> int:
        return (await visitor.post("/connector/do", name=NAME, action=action)).status

    async def pause(visitor: Visitor) -> None:
        assert await act(visitor, "pause") == 303
        assert await act(visitor, "explode") == 400

    visit(servers, pause, connect=url)
    wait_until(lambda: state(rest) == "PAUSED", "the connector paused")

    async def look(visitor: Visitor) -> None:
        assert await act(visitor, "resume") == 404
        assert "Restart" not in (await visitor.get("/connector?name=lines%2Fof+a+file")).text

    visit(servers, look, connect=url, read_only=True)

    async def resume(visitor: Visitor) -> None:
        assert await act(visitor, "resume") == 303

    visit(servers, resume, connect=url)
    wait_until(lambda: state(rest) == "RUNNING", "the connector running")


def test_console_without_a_worker_says_so(workers):
    """One that was started without a URL, and one whose worker does not answer."""
    servers, _ = workers

    async def without(visitor: Visitor) -> None:
        assert "ottla console --connect" in (await visitor.get("/connectors")).text
        assert (await visitor.get("/connector?name=x")).status == 400

    async def lost(visitor: Visitor) -> None:
        answer = await visitor.get("/connectors")
        assert answer.status == 502
        assert "No worker answers at http://127.0.0.1:1" in answer.text
        attention = (await visitor.get("/overview.json")).json["attention"]
        assert [each["path"] for each in attention] == ["/connectors"]

    visit(servers, without)
    visit(servers, lost, connect="http://127.0.0.1:1")


JAVA = "org.apache.kafka.ConnectException: no such table\n\tat Task.put(Task.java:7)\n"
PYTHON = "Traceback (most recent call last):\n  File 'x', line 1\nValueError: no such table\n"


def test_failure_is_the_line_that_says_what_is_wrong():
    """Of a trace of Java it is the first, of one of Python the last."""
    assert first_line(JAVA) == "org.apache.kafka.ConnectException: no such table"
    assert first_line(PYTHON) == "ValueError: no such table"
    assert first_line("") == ""


def test_connector_whose_task_has_failed_counts_it():
    """Its own state may be RUNNING all the same."""
    status = {
        "connector": {"state": "RUNNING", "worker_id": "w:8083"},
        "tasks": [
            {"id": 0, "state": "RUNNING", "worker_id": "w:8083"},
            {"id": 1, "state": "FAILED", "worker_id": "w:8083", "trace": JAVA},
        ],
        "type": "sink",
    }
    line = connector_line("orders", {"status": status, "info": {"config": {}}})

    assert (line.state, line.failed, line.kind) == ("RUNNING", 1, "sink")
    assert line.error == "org.apache.kafka.ConnectException: no such table"
    assert connector_line("empty", {}).state == "UNKNOWN"


@pytest.mark.parametrize("hidden", [{"hide_records": True}, {"masks": (mask_of("o:key"),)}])
def test_traces_are_left_out_where_records_are_hidden(workers, monkeypatch, hidden):
    """They may quote a record; on the list, the connector's page and the overview."""
    servers, url = workers
    failed = {"state": "FAILED", "worker_id": "w", "trace": "cannot read s3cr3t"}
    status = {"connector": failed, "tasks": [{"id": 0, **failed}], "type": "sink"}

    async def ask(visit: object, path: str) -> dict[str, object]:
        if "expand" in path:
            return {"orders": {"status": status}}
        return status if path.endswith("/status") else {}

    monkeypatch.setattr(connector_pages, "ask", ask)
    paths = [
        path + twin + query
        for twin in ("", ".json")
        for path, query in (
            ("/connectors", ""),
            ("/connector", "?name=orders"),
            ("/overview" if twin else "/", ""),
        )
    ]

    async def walk(visitor: Visitor) -> list[str]:
        return [(await visitor.get(each)).text for each in paths]

    assert all("s3cr3t" in each for each in visit(servers, walk, connect=url))
    for text in visit(servers, walk, connect=url, **hidden):
        assert "s3cr3t" not in text
        assert HIDDEN_QUOTE in text


RUNNING = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
LIKE_NO_WORKER = {
    b'["a", "b"]': "does not answer as Connect does: the answer is a list, not an object",
    b"null": "the answer is null, not an object",
    b"[" * 100_000: "the answer is no JSON",
    b"{": "the answer is no JSON",
}
ODD_CONNECTORS = {
    "null": "x is null, not an object",
    '{"status": null}': "status is null, not an object",
    '{"status": {"tasks": null}}': "tasks is null, not a list",
    '{"status": {"tasks": [{"id": null}]}}': "id is null, not a number",
    '{"status": {"connector": {"state": []}}}': "state is a list, not a text",
}


@pytest.fixture(scope="module")
def odd_worker() -> Iterator[OddWorker]:
    with OddWorker() as worker:
        yield worker


async def overview_says(visitor: Visitor, worker: OddWorker, fault: str) -> None:
    """The overview has one sentence, which names the worker and its fault."""
    (found,) = (await visitor.get("/overview.json")).json["attention"]
    assert worker.url in found["text"]
    assert fault in found["text"]
    assert (await visitor.get("/")).status == 200


def test_server_that_is_no_worker_is_named_with_its_fault(workers, odd_worker):
    """By a sentence of the overview, and by the error of other pages."""
    ok = b"HTTP/1.1 200 OK\r\n"
    faults = {ok + b"\r\n" + body: fault for body, fault in LIKE_NO_WORKER.items()}
    faults[b"HTTP/1.1 what ever\r\n\r\n"] = "No worker answers"
    faults[ok + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}"] = "IncompleteRead"

    async def walk(visitor: Visitor) -> None:
        for odd_worker.answer, fault in faults.items():
            await overview_says(visitor, odd_worker, fault)
            for path in ("/connectors", "/connectors.json", "/connector?name=x"):
                answer = await visitor.get(path)
                assert (answer.status, odd_worker.url in answer.text) == (502, True)

    visit(workers[0], walk, connect=odd_worker.url)


@pytest.mark.parametrize("hidden", [{}, {"hide_records": True}])
def test_odd_connector_does_not_hide_the_others(workers, odd_worker, hidden):
    """It is in their list with the fault of the worker's answer."""

    async def walk(visitor: Visitor) -> None:
        for odd, fault in ODD_CONNECTORS.items():
            whole = f'{{"x": {odd}, "y": {json.dumps({"status": RUNNING})}}}'
            odd_worker.body(whole.encode())
            await overview_says(visitor, odd_worker, fault)
            rows = (await visitor.get("/connectors.json?sort=name")).json["rows"]
            assert [each["state"] for each in rows] == ["ODD ANSWER", "RUNNING"]
            assert fault in rows[0]["error"]
            assert "/connector?name=y" in (await visitor.get("/connectors")).text

    visit(workers[0], walk, connect=odd_worker.url, **hidden)


def test_connector_may_have_any_name(workers, odd_worker):
    """Half of a surrogate pair is shown escaped."""
    failed = {"status": {"connector": {"state": "FAILED", "trace": "\ud800"}}}
    odd_worker.body(json.dumps({"\ud800": failed}).encode())

    async def walk(visitor: Visitor) -> None:
        for path in ("/", "/overview.json", "/connectors", "/connectors.json", "/connectors.csv"):
            assert r"\ud800" in (await visitor.get(path)).text

    visit(workers[0], walk, connect=odd_worker.url)
