"""Searches in a process of their own: what they find, how they go on, and how they end."""

from __future__ import annotations

import asyncio

import pytest
from topics_of_records import START, interleaved
from visitor import Visitor, visit

from ottla.console import record_search as room
from ottla.console.newest_first import FoundRecords
from ottla.console.page import Visit
from ottla.console.record_query import record_query
from ottla.console.record_source import FoundRecord
from ottla.console.refusals import Refused


def test_search_finds_the_records_of_a_condition(ottla_fresh_broker):
    """Newest first; it says how much it has read, and goes on where it has stopped."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        path = "/t/orders/records.json?count=9&q=value.status+%3D+%27error%27"
        first = (await visitor.get(path)).json
        rest = (await visitor.get(f"{path}&before={first['next']}")).json
        times = [each["timestamp_ms"] for each in first["records"] + rest["records"]]
        assert times == [START + n * 10 for n in range(59, -1, -1) if n % 4 == 0]
        assert (first["read"], first["total"], rest["next"]) == (60, 60, "")
        key = (await visitor.get("/t/orders/records.json?q=key+%3D+%27k1%27")).json
        assert key["read"] == 20
        assert key["key_partition"] is not None
        page = (await visitor.get("/t/orders/records?q=key+%3D+%27k1%27")).text
        assert "search the others as well" in page
        assert (await visitor.get("/t/orders/records?q=value.a+%3D")).status == 400

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_worker_ends_with_the_search(ottla_fresh_broker, monkeypatch):
    """Also where it is cancelled, and where it dies."""
    interleaved(ottla_fresh_broker, 3)
    workers, began = [], asyncio.Event()

    async def start(*words, **settings):
        workers.append(await begin(*words, **settings))
        began.set()
        return workers[-1]

    begin = asyncio.create_subprocess_exec
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)

    async def walk(visitor: Visitor) -> None:
        app = visitor.app
        query = await record_query(
            Visit(app.cluster, app.settings, {"topic": "orders"}, {"q": "ok"})
        )
        monkeypatch.setattr(room, "WORKER", room.WORKER._replace(words=("sleep", "60")))
        task = asyncio.create_task(room.search(app.cluster, (), query, 5))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workers[0].returncode is not None
        broken = ("sh", "-c", "cat >/dev/null; echo broken >&2")
        monkeypatch.setattr(room, "WORKER", room.WORKER._replace(words=broken))
        with pytest.raises(Refused, match="broken"):
            await room.search(app.cluster, (), query, 5)

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_worker_is_killed_where_a_step_takes_too_long(ottla_fresh_broker, monkeypatch):
    """The refusal says how far it came."""
    interleaved(ottla_fresh_broker, 3)
    monkeypatch.setattr(room, "SEARCH_GRACE_MS", 0)
    monkeypatch.setattr(room, "SEARCH_MS", 500)
    script = """echo '{"read": 1234}'; exec sleep 60"""
    monkeypatch.setattr(room, "WORKER", room.WORKER._replace(words=("sh", "-c", script)))

    async def walk(visitor: Visitor) -> None:
        app = visitor.app
        found = Visit(app.cluster, app.settings, {"topic": "orders"}, {"q": "ok"})
        with pytest.raises(Refused, match="was stopped after"):
            await room.search(app.cluster, (), await record_query(found), 5)
        assert not app.cluster.limits.searches.locked()

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_search_ends_where_the_browser_goes(ottla_fresh_broker, monkeypatch):
    """A page that nobody waits for keeps no worker, and no slot."""
    interleaved(ottla_fresh_broker, 3)
    workers, began = [], asyncio.Event()
    begin = asyncio.create_subprocess_exec

    async def start(*_words, **settings):
        workers.append(await begin("sleep", "60", **settings))
        began.set()
        return workers[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)

    async def walk(visitor: Visitor) -> None:
        async def receive():
            await began.wait()
            return {"type": "http.disconnect"}

        sent = []

        async def send(message) -> None:
            sent.append(message)

        scope = visitor.scope("GET", "/t/orders/records?q=nothing", {})
        await visitor.app.asgi(scope, receive, send)
        assert workers[0].returncode is not None
        assert sent[0]["status"] == 499
        assert not visitor.app.cluster.limits.searches.locked()

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_result_comes_back_as_it_was():
    """Bytes of any kind, and none."""
    record = FoundRecord(1, 2, -1, None, b"\xff\0", (("h", None), ("i", b"")))
    found = FoundRecords([record], {1: 2}, 3, 4, 5, True, [1], {2: "no leader"})

    assert room.decoded(room.encoded(found)) == found
