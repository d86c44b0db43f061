"""The live tail: records as they come, where it goes on, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from topics_of_records import START, interleaved, send
from visitor import Visitor, visit

from ottla import Admin
from ottla.console import live_tail as room
from ottla.console.page import StreamEvent, Visit
from ottla.console.places import Places
from ottla.errors import ErrorCode, KafkaError


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
        assert json.loads(state.data) == {"came": 0, "shown": 0, "passed": 0, "unread": {}}
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
        assert visitor.app.cluster.limits.streams.count == 0

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
        visitor.app.cluster.limits.streams = Places(1, 0, "pages follow topics")
        assert "pages follow topics already" in (await anext(events(visitor))).data

    visit(ottla_fresh_broker.bootstrap_servers, walk)


async def seen_of(stream: AsyncIterator[StreamEvent], text: str) -> None:
    """Follow until a row has the text."""
    async for event in stream:
        assert event.name != "end", event.data
        if not event.name and text in event.data:
            return


def test_topic_made_again_is_read_from_its_start(ottla_fresh_broker, monkeypatch):
    """Whether its positions lie behind the end of the new one or not."""
    interleaved(ottla_fresh_broker, 6)
    monkeypatch.setattr(room, "STATE_EVERY_MS", 0)
    monkeypatch.setattr(room, "AFTER_ERROR_MS", 50)
    servers = ottla_fresh_broker.bootstrap_servers

    def make_again() -> None:
        with Admin(servers) as admin:
            admin.delete_topics(["orders"])
        ottla_fresh_broker.create_topic("orders", 3)
        send(ottla_fresh_broker, "orders", (0, START, b"k", b"again", []))

    async def walk(visitor: Visitor) -> None:
        stream = events(visitor)
        await anext(stream)
        await asyncio.to_thread(make_again)
        await seen_of(stream, "again")
        await stream.aclose()

    visit(servers, walk)


def test_partitions_added_later_are_followed(ottla_fresh_broker, monkeypatch):
    """From their start."""
    interleaved(ottla_fresh_broker, 3)
    monkeypatch.setattr(room, "STATE_EVERY_MS", 0)

    def add() -> None:
        with Admin(ottla_fresh_broker.bootstrap_servers) as admin:
            admin.create_partitions({"orders": 4})
        send(ottla_fresh_broker, "orders", (3, START, b"k", b"fourth", []))

    async def walk(visitor: Visitor) -> None:
        stream = events(visitor)
        await anext(stream)
        await asyncio.to_thread(add)
        await seen_of(stream, "fourth")
        await stream.aclose()

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_other_partitions_go_on_where_one_fails(ottla_fresh_broker, monkeypatch):
    """The one that failed is left alone for a while, and the page says why until it is read."""
    interleaved(ottla_fresh_broker, 3)
    monkeypatch.setattr(room, "AFTER_ERROR_MS", 3_600_000)
    asked: list[list[int]] = []

    async def walk(visitor: Visitor) -> None:
        app = visitor.app
        found = Visit(app.cluster, app.settings, {"topic": "orders"}, {"last": "0:0,1:0,2:0"})
        async with room.LiveTail(found) as tail:
            fetch = tail._source.fetch

            async def failing(spans, wait_ms):
                asked.append(sorted(each.partition for each in spans))
                error = KafkaError.of(ErrorCode.NETWORK_EXCEPTION, "gone")
                return {
                    each: error if each.partition == 0 else chunk
                    for each, chunk in (await fetch(spans, wait_ms)).items()
                }

            monkeypatch.setattr(tail._source, "fetch", failing)
            rows = [each.partition for each in await tail._next()]
            await tail._next()
            unread = json.loads(tail._state().data)["unread"]
            monkeypatch.setattr(tail._source, "fetch", fetch)
            tail._resting.clear()
            await tail._next()
            assert rows == [1, 2]
            assert asked == [[0, 1, 2], [1, 2]]
            assert (unread, json.loads(tail._state().data)["unread"]) == ({"0": "gone"}, {})

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_positions_outside_a_log_come_back(ottla_fresh_broker):
    """To its end where it was truncated."""
    interleaved(ottla_fresh_broker, 3)

    async def walk(visitor: Visitor) -> None:
        app = visitor.app
        found = Visit(app.cluster, app.settings, {"topic": "orders"}, {})
        async with room.LiveTail(found) as tail:
            tail._positions = dict.fromkeys(tail._positions, 999)
            await tail._next()
            assert tail._cursor() == "0:1,1:1,2:1"

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_stream_ends_where_a_condition_fails(ottla_fresh_broker, monkeypatch):
    """And the pages go on."""
    interleaved(ottla_fresh_broker, 3)

    def broken(record):
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(room.LiveTail, "_test_of", lambda tail, text: broken)

    async def walk(visitor: Visitor) -> None:
        stream = events(visitor, last="0:0,1:0,2:0")
        ended = [event async for event in stream if event.name == "end"]
        assert [each.data for each in ended] == ["ZeroDivisionError: broken"]
        assert visitor.app.cluster.limits.streams.count == 0

    visit(ottla_fresh_broker.bootstrap_servers, walk)
