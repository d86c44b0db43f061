"""A search with progress: its events, its end, and the page that finds its result."""

from __future__ import annotations

import asyncio

from topics_of_records import interleaved
from visitor import Visitor, visit

from ottla.console import search_progress as room
from ottla.console.newest_first import FoundRecords
from ottla.console.page import Visit
from ottla.console.refusals import Refused

FOUND = FoundRecords([], {}, 7, 0, 0, False, [], {})


def visit_of(visitor: Visitor, **query: str) -> Visit:
    app = visitor.app
    return Visit(app.cluster, app.settings, {"topic": "orders"}, query)


def test_page_finds_the_result_of_its_search(ottla_fresh_broker, monkeypatch):
    """It does not search again; the page after it does."""
    interleaved(ottla_fresh_broker, 9)

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/search/t/orders?q=ok")
        assert answer.text.startswith('event: progress\ndata: {"read": 0, "total": 9}')
        assert "event: done" in answer.text
        monkeypatch.setattr("ottla.console.records.search", None)
        found = (await visitor.get("/t/orders/records.json?q=ok&partition=")).json
        assert (found["read"], len(found["records"])) == (9, 6)
        assert (
            visitor.app.cluster.part(room.FinishedSearches).take(visit_of(visitor, q="ok")) is None
        )

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_search_ends_when_the_browser_goes(ottla_fresh_broker, monkeypatch):
    """The task that waits for the worker is cancelled."""
    interleaved(ottla_fresh_broker, 3)
    ended = []

    async def endless(cluster, masks, query, count, on_progress):
        on_progress({"read": 1})
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(count)

    monkeypatch.setattr(room, "search", endless)

    async def walk(visitor: Visitor) -> None:
        events = room.progress(visit_of(visitor, q="ok", count="5"), visitor.app.render)
        assert [(await anext(events)).name for _ in range(2)] == ["progress"] * 2
        await events.aclose()
        await asyncio.sleep(0)
        assert ended == [5]

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_search_that_cannot_begin_says_why(ottla_fresh_broker):
    """By an event: an answer's status would be lost on the page."""
    interleaved(ottla_fresh_broker, 3)

    async def walk(visitor: Visitor) -> None:
        for path in ("/search/t/orders?q=a+%3D", "/search/t/nothing?q=a"):
            assert "event: end" in (await visitor.get(path)).text

    async def hidden(visitor: Visitor) -> None:
        assert "event: end" in (await visitor.get("/search/t/orders?q=a")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    visit(ottla_fresh_broker.bootstrap_servers, hidden, hide_records=True)


def test_error_of_a_search_is_kept_for_its_page(ottla_fresh_broker, monkeypatch):
    """A search that was stopped at its limit does not begin again to say so."""
    interleaved(ottla_fresh_broker, 3)

    async def stopped(*_arguments: object) -> FoundRecords:
        raise Refused("The search was stopped after 15 s.")

    monkeypatch.setattr(room, "search", stopped)

    async def walk(visitor: Visitor) -> None:
        assert "event: done" in (await visitor.get("/search/t/orders?q=ok")).text
        assert "stopped after 15 s" in (await visitor.get("/t/orders/records?q=ok")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_results_are_kept_for_a_while(ottla_fresh_broker, monkeypatch):
    """Few of them."""

    async def walk(visitor: Visitor) -> None:
        kept = room.FinishedSearches(visitor.app.cluster)
        for number in range(room.MOST_KEPT + 1):
            kept.keep(visit_of(visitor, q=str(number)), FOUND)
        assert kept.take(visit_of(visitor, q="0")) is None
        assert kept.take(visit_of(visitor, q="1")) is FOUND
        monkeypatch.setattr(room, "KEPT_MS", 0)
        assert kept.take(visit_of(visitor, q="2")) is None

    visit(ottla_fresh_broker.bootstrap_servers, walk)
