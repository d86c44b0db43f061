"""Tables and records to take along, through the console's addresses."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from topics_of_records import START, interleaved, send
from visitor import Answer, Visitor, visit

from ottla.console import exporting
from ottla.console.console_cluster import ConsoleCluster
from ottla.console.masks import mask_of
from ottla.console.pages import EXPORTS
from ottla.testing import InProcessBroker

BYTES = ((b"=1+1", b"\xff\xfe"), (None, b""), (b"k", None), (b"a,\n", "ä\0".encode()))


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as broker:
        interleaved(broker)
        broker.create_topic("bytes", 1)
        rows = [(0, START + at, *both, [("h", both[0])]) for at, both in enumerate(BYTES)]
        send(broker, "bytes", *rows)
        for number in range(120):
            broker.create_topic(f"many-{number:03}", 1)
        yield broker


def rows_of(answer: Answer) -> list[dict[str, str]]:
    assert answer.status == 200
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def test_records_come_with_the_bytes_that_they_have(broker):
    """As text, or in base64; null is no empty text. Parquet has bytes."""

    async def walk(visitor: Visitor) -> None:
        lines = (await visitor.get("/t/bytes/records.jsonl")).text.splitlines()
        found = [json.loads(each) for each in reversed(lines)]
        assert [(each["key"], each["value"], each["value_encoding"]) for each in found] == [
            ("=1+1", "//4=", "base64"),
            (None, "", "utf-8"),
            ("k", None, ""),
            ("a,\n", "ä\0", "utf-8"),
        ]
        answer = await visitor.get("/t/bytes/records.csv")
        assert [each["key"] for each in rows_of(answer)] == ["a,\n", "k", "", "'=1+1"]
        assert answer.header("content-disposition") == 'attachment; filename="t-bytes-records.csv"'
        assert answer.header("content-type") == "text/csv; charset=utf-8"
        parquet = pytest.importorskip("pyarrow.parquet", reason="it is of another extra")
        file = await visitor.get("/t/bytes/records.parquet")
        table = parquet.read_table(io.BytesIO(file.body)).to_pylist()
        assert [(each["key"], each["value"]) for each in reversed(table)] == list(BYTES)
        assert table[-1]["headers"] == [{"name": "h", "value": b"=1+1"}]

    visit(broker.bootstrap_servers, walk)


def test_export_has_what_the_page_finds(broker, monkeypatch):
    """All windows of it, newest first, each record once; also from a page further down."""
    monkeypatch.setattr(exporting, "BROWSED", 7)

    async def walk(visitor: Visitor) -> None:
        whole = rows_of(await visitor.get("/t/orders/records.csv"))
        assert [json.loads(each["value"])["id"] for each in whole] == list(range(59, -1, -1))
        part = rows_of(await visitor.get("/t/orders/records.csv?before=0:5,1:5,2:5&partition=1"))
        assert [each["offset"] for each in part] == ["4", "3", "2", "1", "0"]
        condition = quote("value.status = 'error' and partition = 0")
        some = rows_of(await visitor.get(f"/t/orders/records.csv?q={condition}"))
        assert [json.loads(each["value"])["id"] for each in some] == [48, 36, 24, 12, 0]

    visit(broker.bootstrap_servers, walk)


def test_table_comes_whole(broker):
    """All windows of the list, with its filter, from the first row on; the page has the links."""

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/topics?q=many&from=100")
        assert 'href="/topics.csv?q=many" download>CSV<' in page.text
        found = rows_of(await visitor.get("/topics.csv?q=many"))
        assert [each["name"] for each in found] == [f"many-{number:03}" for number in range(120)]
        lines = (await visitor.get("/topics.jsonl?q=many-11")).text.splitlines()
        assert [json.loads(each)["name"] for each in lines] == [f"many-11{n}" for n in range(10)]
        others = ("/connector", "/registry", "/sql")  # they need others, or a statement
        for path in (each.path for each in EXPORTS if not each.path.startswith(others)):
            for form in ("csv", "jsonl"):
                place = path.replace("{topic}", "orders")
                assert (await visitor.get(f"{place}.{form}")).status == 200, place
        missing = await visitor.get("/t/nothing/records.csv", accept="application/json")
        assert (missing.status, missing.json["error"]) == (404, "There is no topic nothing.")
        assert (await visitor.get("/topics.csv?sort=size")).status == 400
        assert (await visitor.get("/topics.parquet")).status == 404

    visit(broker.bootstrap_servers, walk)


def test_export_ends_at_its_bounds_and_says_so(broker, monkeypatch):
    """In its last line, with the place where the rest begins; no more than two run at once."""
    monkeypatch.setattr(exporting, "MOST_ROWS", 12)
    monkeypatch.setattr(exporting, "BROWSED", 6)

    async def walk(visitor: Visitor) -> None:
        lines = (await visitor.get("/t/orders/records.jsonl")).text.splitlines()
        note = json.loads(lines[-1])["note"]
        assert note == "stopped after 12 rows; the rest begins with before=0:16,1:16,2:16"
        assert len(lines) == 13
        rest = await visitor.get("/t/orders/records.jsonl?before=0:16,1:16,2:16")
        assert json.loads(json.loads(rest.text.splitlines()[0])["value"])["id"] == 47
        exports = visitor.app.cluster.limits.exports
        with exports.taken(""), exports.taken(""):
            assert (await visitor.get("/topics.csv")).status == 429
        assert (await visitor.get("/topics.csv")).status == 200

    visit(broker.bootstrap_servers, walk)


def test_export_ends_where_nothing_of_it_is_read(monkeypatch, caplog):
    """Its place is free for others then, and little of it was waiting in memory."""
    monkeypatch.setattr(exporting, "STALLED_S", 0)
    sent, closed = [], []

    async def pieces():
        try:
            yield bytes(exporting.PIECE_BYTES * 3)
        finally:
            closed.append(True)

    async def send(message):
        sent.append(message)
        if len(sent) == 3:
            await asyncio.Event().wait()

    answer = exporting.ExportResponse(exporting.begun(b"first", pieces()))
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    asyncio.run(answer(scope, None, send))

    assert [len(each.get("body", b"")) for each in sent] == [0, 5, exporting.PIECE_BYTES]
    assert closed == [True]
    assert "nothing of it was read" in caplog.text


def test_error_behind_the_first_window_is_a_line(broker, monkeypatch):
    """As the status of the answer was sent before."""
    monkeypatch.setattr(exporting, "BROWSED", 30)
    real, asked = ConsoleCluster.topic, []

    async def topic(cluster: ConsoleCluster, name: str):
        asked.append(name)
        return await real(cluster, name if len(asked) == 1 else "deleted")

    monkeypatch.setattr(ConsoleCluster, "topic", topic)

    async def walk(visitor: Visitor) -> None:
        lines = (await visitor.get("/t/orders/records.jsonl")).text.splitlines()
        assert len(lines) == 31
        words = "stopped after 30 rows: There is no topic deleted.; the rest begins with before="
        assert json.loads(lines[-1])["note"].startswith(words)

    visit(broker.bootstrap_servers, walk)


def test_hidden_parts_of_records_are_in_no_export(broker):
    """Nor any record where all are hidden."""

    async def masked(visitor: Visitor) -> None:
        for form in ("csv", "jsonl", "parquet"):
            answer = await visitor.get(f"/t/orders/records.{form}?partition=0")
            assert b"error" not in answer.body
            assert answer.status == 200
        condition = quote("value.status = 'error'")
        found = await visitor.get(f"/t/orders/records.csv?q={condition}")
        assert rows_of(found) == []

    async def hidden(visitor: Visitor) -> None:
        for form in ("csv", "jsonl", "parquet"):
            assert (await visitor.get(f"/t/orders/records.{form}")).status == 403
        assert (await visitor.get("/topics.csv")).status == 200

    visit(broker.bootstrap_servers, masked, masks=(mask_of("orders:value.status"),))
    visit(broker.bootstrap_servers, hidden, hide_records=True)
