"""The live tail: records as they come, where it goes on, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from topics_of_records import START, interleaved, send
from visitor import Visitor, visit

from ottla.console import live_tail as room
from ottla.console.page import StreamEvent, Visit


def events(visitor: Visitor, **query: str) -> AsyncIterator[StreamEvent]:
    app = visitor.app
    found = Visit(app.cluster, app.settings, {"topic": "orders"}, query)
    return room.live(found, app.render)


async def rows(stream: AsyncIterator[StreamEvent]) -> StreamEvent:
    """The next event with rows."""
    async for event in stream:
        if not event.name:
            return event
    raise AssertionError("it has ended")


def test_records_appear_as_they_come(ottla_fresh_broker):
    """Those of before do not; a browser that comes back misses none."""
    interleaved(ottla_fresh_broker, 3)

    async def walk(visitor: Visitor) -> None:
        stream = events(visitor)
        state = await anext(stream)
        assert json.loads(state.data) == {"came": 0, "shown": 0, "passed": 0}
        await asyncio.to_thread(
            send, ottla_fresh_broker, "orders", (1, START + 99, b"k", b"<b>new</b>", [])
        )
        event = await rows(stream)
        assert "&lt;b&gt;new" in event.data
        assert 'href="/t/orders/1/1"' in event.data
        assert "orders/0/0" not in event.data
        await stream.aclose()
        again = events(visitor, last=state.id)
        assert "&lt;b&gt;new" in (await rows(again)).data
        await again.aclose()
        assert visitor.app.cluster.open_streams == 0

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_only_wanted_records_appear(ottla_fresh_broker, monkeypatch):
    """By the condition of the page; of more than a person reads the newest."""
    interleaved(ottla_fresh_broker, 3)
    monkeypatch.setattr(room, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(room, "STATE_EVERY_MS", 0)
    new = [(0, START + n, b"k", b"x%d" % n, []) for n in range(6)]

    async def walk(visitor: Visitor) -> None:
        stream = events(visitor, q="value like 'x%' and value <> 'x5'", last="0:1,1:1,2:1")
        await anext(stream)
        await asyncio.to_thread(send, ottla_fresh_broker, "orders", *new)
        seen, state = "", {"came": 0}
        while state["came"] < 6:
            event = await anext(stream)
            seen += "" if event.name else event.data
            state = json.loads(event.data) if event.name else state
        await stream.aclose()
        assert "x4" in seen
        assert "x5" not in seen
        assert state["shown"] + state["passed"] == 5

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_far_behind_it_passes_over(ottla_fresh_broker, monkeypatch):
    """Nobody could read so much."""
    interleaved(ottla_fresh_broker)
    monkeypatch.setattr(room, "FAR_BEHIND", 5)
    monkeypatch.setattr(room, "ROWS_AT_ONCE", 1)

    async def walk(visitor: Visitor) -> None:
        app = visitor.app
        found = Visit(app.cluster, app.settings, {"topic": "orders"}, {"last": "0:0,1:0,2:0"})
        async with room.LiveTail(found) as tail:
            await tail._catch_up()
            assert json.loads(tail._state().data)["passed"] == 57
            assert tail._cursor() == "0:19,1:19,2:19"

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_stream_ends_with_a_reason(ottla_fresh_broker, monkeypatch):
    """A topic that is not there, a condition that is none, and too many pages."""
    interleaved(ottla_fresh_broker, 3)

    async def walk(visitor: Visitor) -> None:
        event = await anext(events(visitor, q="value.a ="))
        assert (event.name, "value is missing" in event.data) == ("end", True)
        monkeypatch.setattr(room, "STREAMS_AT_ONCE", 0)
        assert "close one" in (await anext(events(visitor))).data

    visit(ottla_fresh_broker.bootstrap_servers, walk)
