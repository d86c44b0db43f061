"""Sends a record from a form, and the same bytes once more."""

from __future__ import annotations

import pytest
from topics_of_records import START, send
from visitor import Visitor, visit

from ottla import Admin
from ottla.console.producing import NewRecord, headers_of, record_of
from ottla.console.refusals import Refused


def test_record_of_the_form_is_sent(ottla_fresh_broker):
    """And the browser goes to its page."""
    ottla_fresh_broker.create_topic("orders", 2)

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.post(
            "/t/orders/produce", key="k", value="a\r\nb", headers="x: 1", partition="1"
        )
        assert (answer.status, answer.header("location")) == (303, "/t/orders/1/0")
        record = (await visitor.get("/t/orders/1/0.json")).json["record"]
        assert (record["key"]["text"], record["value"]["text"]) == ("k", "a\nb")
        assert record["headers"][0]["value"]["text"] == "1"
        assert (await visitor.post("/t/nothing/produce", value="x")).status == 404
        assert (await visitor.post("/t/orders/produce", value="x", partition="7")).status == 400
        assert (await visitor.get("/t/orders/produce?like=7:0")).status == 404

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    assert ottla_fresh_broker.topics() == ["orders"]


def test_same_bytes_are_sent_again(ottla_fresh_broker):
    """Also those that are no text, which the form does not show."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", (0, START, b"\xff", b"\0\1", [("h", None)]))
    send(ottla_fresh_broker, "orders", (0, START, b"k", b"text", [("h", b"1")]))

    async def walk(visitor: Visitor) -> None:
        form = (await visitor.get("/t/orders/produce.json?like=0:0")).json
        assert (form["is_text"], form["value"]) == (False, "")
        text = (await visitor.get("/t/orders/produce.json?like=0:1")).json
        assert (text["key"], text["value"], text["headers"]) == ("k", "text", "h: 1")
        for other in ("0:0", "0:", "0:0:", text["same"].replace("0:1:", "0:0:")):
            assert (await visitor.post("/t/orders/produce", same=other)).status == 400
        answer = await visitor.post("/t/orders/produce", same=form["same"])
        assert answer.header("location") == "/t/orders/0/2"
        before = (await visitor.get("/t/orders/0/0.json")).json["record"]
        after = (await visitor.get("/t/orders/0/2.json")).json["record"]
        assert [after[name] for name in ("key", "value", "headers")] == [
            before[name] for name in ("key", "value", "headers")
        ]
        assert (await visitor.get("/t/orders/produce?like=x")).status == 400

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_record_that_is_too_large_is_refused(ottla_fresh_broker):
    """With the rule; it is no failure of a broker."""
    ottla_fresh_broker.create_topic("orders", 1, **{"max.message.bytes": "1000"})

    async def walk(visitor: Visitor) -> None:
        for size in (2_000, 1_100_000):
            answer = await visitor.post("/t/orders/produce", value="x" * size)
            assert answer.status == 400
            assert "The record is not sent: " in answer.text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_topic_that_was_deleted_is_not_made_anew(ottla_fresh_broker):
    """Though the console has seen it a moment ago."""
    ottla_fresh_broker.create_topic("orders", 1)

    async def walk(visitor: Visitor) -> None:
        await visitor.get("/t/orders/produce")
        with Admin(ottla_fresh_broker.bootstrap_servers) as admin:
            admin.delete_topics(["orders"])
        assert (await visitor.post("/t/orders/produce", value="x")).status == 404

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    assert ottla_fresh_broker.topics() == []


def test_field_begins_with_all_line_ends_of_the_record(ottla_fresh_broker):
    """HTML drops one behind the tag."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", (0, START, b"k", b"\n\nv\x1b", []))

    async def walk(visitor: Visitor) -> None:
        page = (await visitor.get("/t/orders/produce?like=0:0")).text
        assert ">\n\n\nv&#27;</textarea>" in page

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_fields_make_a_record():
    """An empty key is none; a tombstone has no value."""
    assert record_of({"value": "v"}, 1) == NewRecord(None, b"v", (), None)
    assert record_of({"key": "k", "null": "1", "partition": "0"}, 1).value is None
    assert headers_of("a: 1\n\n b:2:3") == (("a", b"1"), ("b", b"2:3"))
    for fields in ({"null": "1", "value": "v"}, {"headers": "no colon"}, {"headers": ": x"}):
        with pytest.raises(Refused):
            record_of(fields, 1)
