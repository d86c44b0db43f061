"""Pages of records: the newest, one by its place, and what is never shown."""

from __future__ import annotations

import itertools
import json

import pytest
from topics_of_records import START, interleaved, send
from visitor import Visitor, visit

from ottla import Admin, TopicPartition
from ottla.console.decoding import SHOWN_OF_LONGER
from ottla.console.masks import mask_of
from ottla.console.pages import PAGES
from ottla.console.records import MOST_TEXT

HOSTILE = (
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"{{7*7}}",
    b"\x1b[2J",
    bytes(range(64)),
    b"x" * 200_000,
    b"\xff\xfe",
    b'{"a": 9007199254740993, "c": 1.10}',
)


def test_newest_records_come_first(ottla_fresh_broker):
    """Fifty of all partitions, by one fetch; the link goes on where they end."""
    interleaved(ottla_fresh_broker)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/records.json")).json
        times = [each["timestamp_ms"] for each in data["records"]]
        assert times == [START + n * 10 for n in range(59, 9, -1)]
        assert [each["api"] for each in data["asked"]].count("Fetch") <= 3
        older = (await visitor.get(f"/t/orders/records.json?before={data['next']}")).json
        assert [each["timestamp_ms"] for each in older["records"]] == [
            START + n * 10 for n in range(9, -1, -1)
        ]
        assert older["next"] == ""
        page = (await visitor.get("/t/orders/records")).text
        assert '<a href="/t/orders/2/19">' in page
        assert 'rel="next"' in page

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_record_has_a_page(ottla_fresh_broker):
    """With its batch, its headers, and links to its neighbours and the records of its key."""
    interleaved(ottla_fresh_broker, 9)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/1/2.json")).json
        assert data["record"]["key"]["text"] == "k2"
        assert data["record"]["headers"][0]["value"]["text"] == "7"
        assert data["facts"]["timestamp_type"] == "CreateTime"
        page = (await visitor.get("/t/orders/1/2")).text
        assert "/t/orders/1/1" in page
        assert "/t/orders/1/3" in page
        assert "key+%3D+%27k2%27" in page
        for missing in ("/t/orders/1/3", "/t/orders/9/0", "/t/nothing/0/0"):
            assert (await visitor.get(missing)).status == 404

    visit(ottla_fresh_broker.bootstrap_servers, walk)


@pytest.mark.parametrize("value", HOSTILE)
def test_nothing_of_a_record_is_markup(ottla_fresh_broker, value):
    """In key, value and headers, in the list and on its page."""
    ottla_fresh_broker.create_topic("orders", 1)
    name = value[:50].decode("utf-8", "ignore")
    send(ottla_fresh_broker, "orders", (0, START, value, value, [(name, value)]))

    async def walk(visitor: Visitor) -> None:
        for path in ("/t/orders/records", "/t/orders/0/0", "/t/orders/0/0?whole=1"):
            answer = await visitor.get(path)
            assert answer.status == 200
            for text in ("<script>alert", "<img src=x", "\x1b", "\0"):
                assert text not in answer.text
        if b"{{" in value:
            assert "{{7*7}}" in (await visitor.get("/t/orders/0/0")).text
        if b"1.10" in value:
            assert "9007199254740993" in (await visitor.get("/t/orders/records")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk)


PATHS = (
    "/t/orders/records",
    "/t/orders/records.json",
    "/t/orders/records?q=k1",
    "/t/orders/0/0",
    "/t/orders/0/0.json",
    "/t/orders/produce?like=0:0",
    "/t/orders/produce.json?like=0:0",
)


def test_hidden_records_are_shown_nowhere(ottla_fresh_broker):
    """No page and no twin has a part of them."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", (0, START, b"k1", b"secret", [("secret", b"secret")]))

    async def walk(visitor: Visitor) -> None:
        for path in PATHS:
            answer = await visitor.get(path)
            assert answer.status == 403
            assert "secret" not in answer.text
        assert (await visitor.get("/t/orders/partitions")).status == 200

    visit(ottla_fresh_broker.bootstrap_servers, walk, hide_records=True)


QUERIES = ("", "?id=readers&topic=orders&to=to-earliest", "?q=secret", "?like=0:0", "?id=0")


@pytest.mark.parametrize("hidden", [{"hide_records": True}, {"masks": (mask_of(".*:value"),)}])
def test_no_page_has_a_part_of_hidden_records(ottla_fresh_broker, hidden):
    """Neither a page nor its twin, of all that there are, nor a stream."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", (0, START, b"k1", b"s3cr3t value", []))
    with Admin(ottla_fresh_broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("readers", {TopicPartition("orders", 0): 0})
    place = {"{topic}": "orders", "{partition:number}": "0", "{offset:number}": "0"}

    async def walk(visitor: Visitor) -> None:
        seen = set()
        for page in PAGES:
            path = page.path
            for name, text in place.items():
                path = path.replace(name, text)
            for twin, query in itertools.product(("", ".json"), QUERIES):
                answer = await visitor.get(
                    (path.rstrip("/") or "/overview" * bool(twin)) + twin + query
                )
                seen.add(answer.status)
                assert "s3cr3t" not in answer.text, (path, query)
        assert 200 in seen
        assert "s3cr3t" not in (await visitor.get("/search/t/orders?q=value")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk, **hidden)


def test_masked_fields_are_neither_shown_nor_searched(ottla_fresh_broker):
    """The rest of the record is."""
    ottla_fresh_broker.create_topic("orders", 1)
    value = b'{"card": "secret-4711", "amount": 1.10}'
    send(ottla_fresh_broker, "orders", (0, START, b"k1", value, [("token", b"secret-4711")]))
    masks = (mask_of("ord.*:value.card"), mask_of("orders:headers.token"))

    async def walk(visitor: Visitor) -> None:
        for path in PATHS:
            answer = await visitor.get(path)
            assert answer.status == 200
            assert "secret" not in answer.text
            assert "1.10" in answer.text
        for query in ("secret", "value.card = 'secret-4711'", "headers.token like 'secret%'"):
            found = (
                await visitor.get(f"/t/orders/records.json?q={query.replace('%', '%25')}")
            ).json
            assert (found["records"], found["read"]) == ([], 1)

    visit(ottla_fresh_broker.bootstrap_servers, walk, masks=masks)


def test_record_of_a_topic_that_was_deleted_is_not_there(ottla_fresh_broker):
    """Though the console has seen the topic a moment ago."""
    interleaved(ottla_fresh_broker, 3)

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get("/t/orders/0/0")).status == 200
        with Admin(ottla_fresh_broker.bootstrap_servers) as admin:
            admin.delete_topics(["orders"])
        for path in ("/t/orders/settings", "/t/orders/0/0", "/t/orders/0/0"):
            assert (await visitor.get(path)).status == 404

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_page_decodes_no_more_than_its_share(ottla_fresh_broker):
    """Behind that the beginnings of long records are shown, masked ones too."""
    ottla_fresh_broker.create_topic("orders", 1)
    value = json.dumps({"a": "b", "c": [1] * 20_000}).encode()
    count = MOST_TEXT // len(value) + 3
    send(ottla_fresh_broker, "orders", *((0, START + n, None, value, []) for n in range(count)))

    async def walk(visitor: Visitor) -> None:
        rows = (await visitor.get("/t/orders/records.json?count=100")).json["records"]
        cut = [each["value"]["is_cut"] for each in rows]
        assert len(cut) == count
        assert cut == sorted(cut)
        assert sum(cut) == 2
        assert len(rows[-1]["value"]["text"]) <= SHOWN_OF_LONGER

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    visit(ottla_fresh_broker.bootstrap_servers, walk, masks=(mask_of("orders:value.a"),))


def test_dead_letter_leads_to_its_origin(ottla_fresh_broker):
    """By the headers that its sender has left."""
    interleaved(ottla_fresh_broker, 3)
    ottla_fresh_broker.create_topic("orders.dead", 1)
    headers = [("source.topic", b"orders"), ("source.partition", b"1"), ("source.offset", b"0")]
    send(ottla_fresh_broker, "orders.dead", (0, START, None, b"x", headers))

    async def walk(visitor: Visitor) -> None:
        page = (await visitor.get("/t/orders.dead/0/0")).text
        assert '<a href="/t/orders/1/0">' in page

    visit(ottla_fresh_broker.bootstrap_servers, walk)
