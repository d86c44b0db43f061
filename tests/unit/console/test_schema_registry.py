"""Records with Avro on a page, by the schemas of a registry."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from sql_world import result
from topics_of_records import send
from visitor import Visitor, visit

from ottla.console import schema_registry
from ottla.console.masks import mask_of
from ottla.console.schema_registry import SchemaRegistry, reader_of, schema_number
from ottla.testing import InProcessBroker

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "user", "type": "string"}],
}
ANSWERS = {
    1: {"schema": json.dumps(ORDER)},
    2: {"schema": "{}", "schemaType": "JSON"},
    3: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
    4: {"schema": '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Other"}]}'},
    5: ["no object"],
}
LARGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
VALUES = (
    b"\0\0\0\0\1" + LARGE + b"\x06ann",
    b'\0\0\0\0\2{"n": 1.10}',
    b"\0\0\0\0\3\x08\1\xff\xff",
    b"\0\0\0\0\4\xff\xff",
    b"\0\0\0\0\5\xff\xff",
    b"\0\0\0\0\6\xff\xff",
    b"\0\0\0\0\1\xff\xff",
)


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    """A registry with a few schemas, and the paths that it was asked for."""
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            number = int(self.path.rpartition("/")[2])
            body = json.dumps(ANSWERS.get(number, {"message": "not found"})).encode()
            self.send_response(200 if number in ANSWERS else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as broker:
        broker.create_topic("orders", 1)
        send(broker, "orders", *[(0, at, None, value, []) for at, value in enumerate(VALUES)])
        yield broker


def test_values_are_shown_by_their_schemas(broker, registry):
    """Digit for digit; those without a schema as before. Each schema is asked for once."""
    url, asked = registry

    async def walk(visitor: Visitor) -> None:
        for _ in range(2):
            rows = (await visitor.get("/t/orders/records.json")).json["records"][::-1]
            assert [each["value"]["kind"] for each in rows] == ["avro", "json"] + ["hex"] * 5
            assert rows[0]["value"]["text"] == '{"id": 9223372036854775807, "user": "ann"}'
            assert rows[1]["value"]["text"] == '{"n": 1.10}'
        assert sorted(asked) == [f"/schemas/ids/{number}" for number in range(1, 7)]
        page = (await visitor.get("/t/orders/0/0")).text
        assert "&#34;user&#34;: &#34;ann&#34;" in page
        assert '<span class="tag">avro</span>' in page

    visit(broker.bootstrap_servers, walk, schema_registry=url)


def test_statement_has_their_fields(broker, registry, here):
    """With the types that they have; values without a schema that is known are text."""
    url, asked = registry
    text = "select value.id, value.user, value.n from orders order by offset"

    async def walk(visitor: Visitor) -> None:
        rows = [[*each.values()] for each in (await result(visitor, text))["rows"]]
        assert rows[:2] == [[9223372036854775807, "ann", None], [None, None, 1.1]]
        assert rows[2:] == [[None] * 3] * 5
        (first,) = (await result(visitor, "select value from orders limit 1"))["rows"]
        assert first == {"value": '{"id": 9223372036854775807, "user": "ann"}'}

    visit(broker.bootstrap_servers, walk, schema_registry=url)
    assert sorted(asked) == sorted(2 * [f"/schemas/ids/{number}" for number in range(1, 7)])


def test_statement_waits_for_all_schemas(broker, registry, here, monkeypatch):
    """A condition passed over the rows of a schema for which a page would have had no time."""
    monkeypatch.setattr(schema_registry, "MOST_ASKED", 1)
    url, asked = registry

    async def walk(visitor: Visitor) -> None:
        text = (
            "select value.id, value.n from orders where value.id > 0 or value.n > 0 order by offset"
        )
        rows = (await result(visitor, text))["rows"]
        assert [[*each.values()] for each in rows] == [[9223372036854775807, None], [None, 1.1]]

    visit(broker.bootstrap_servers, walk, schema_registry=url)
    assert sorted(asked) == [f"/schemas/ids/{number}" for number in range(1, 7)]


@pytest.mark.parametrize("mask", ["orders:value.user", "orders:value"])
def test_statement_sees_nothing_of_a_masked_value(broker, registry, here, mask):
    """No place of it could be found before it is read."""

    async def walk(visitor: Visitor) -> None:
        rows = (await result(visitor, "select value, value.user from orders"))["rows"]
        assert {(each["value"], each["user"]) for each in rows} == {("***", None)}

    masks = (mask_of(mask),)
    visit(broker.bootstrap_servers, walk, schema_registry=registry[0], masks=masks)


def test_statement_waits_for_no_registry_that_is_silent(broker, here):
    """The values are text then."""

    async def walk(visitor: Visitor) -> None:
        found = await result(visitor, "select count(*) as n, count(value.id) as ids from orders")
        assert found["rows"] == [{"n": 7, "ids": 0}]

    visit(broker.bootstrap_servers, walk, schema_registry="http://127.0.0.1:1")


def test_registry_that_does_not_answer_costs_the_values_alone(broker):
    """They are bytes then; it is not asked again for each."""

    async def walk(visitor: Visitor) -> None:
        rows = (await visitor.get("/t/orders/records.json")).json["records"]
        assert {each["value"]["kind"] for each in rows} == {"hex", "text"}

    visit(broker.bootstrap_servers, walk, schema_registry="http://127.0.0.1:1")


def test_slow_registry_is_asked_for_no_longer_than_a_page_may_take(monkeypatch):
    """Any producer may name twenty schemas in its records, and each was waited for."""
    clock = SimpleNamespace(now_ms=0)
    clock.monotonic_ms = lambda: clock.now_ms
    asked: list[int] = []

    async def answer_late(_: SchemaRegistry, number: int) -> None:
        asked.append(number)
        clock.now_ms += 1_400

    monkeypatch.setattr(SchemaRegistry, "_ask", answer_late)
    found = SchemaRegistry(
        SimpleNamespace(schema_registry="http://x:1", runtime=SimpleNamespace(clock=clock))
    )
    values = [b"\0" + number.to_bytes(4) + b"xx" for number in range(1, 21)]

    for page in range(3):
        asyncio.run(found.prepare(values))
        assert len(asked) == 3 * (page + 1), "no page waits for more"
    assert asked == list(range(1, 10))


def test_masked_values_are_not_decoded(broker, registry):
    """A mask's path leads through JSON; of other bytes all is hidden."""

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/t/orders/records.json")
        assert {each["value"]["text"] for each in page.json["records"]} == {"***"}

    visit(
        broker.bootstrap_servers,
        walk,
        schema_registry=registry[0],
        masks=(mask_of("orders:value.user"),),
    )


def test_number_of_a_schema_stands_before_the_value():
    """In the bytes behind a 0."""
    assert schema_number(b"\0\0\0\1\0x") == 256
    assert [schema_number(data) for data in (None, b"", b"\0\0\0\0\1", b"\1\0\0\0\1x")] == [0] * 4


@pytest.mark.parametrize("answer", [None, {}, {"schema": 1}, {"schema": "x" * (1 << 21)}])
def test_answer_without_a_schema_has_no_reader(answer):
    """Nor one that is too long."""
    assert reader_of(answer) is None
