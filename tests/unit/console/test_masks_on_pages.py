"""No page, twin or link has a part of a masked value, wherever in the record it is."""

from __future__ import annotations

import json

import pytest
from topics_of_records import START, send
from visitor import Visitor, visit

from ottla.console.decoding import HIDDEN, Hiding
from ottla.console.masks import HIDDEN_QUOTE, mask_of
from ottla.console.pages import PAGES
from ottla.console.record_source import FoundRecord

SECRET = "s3cr3t-4711"
DIGITS = 4711471147114711
CARD = {"card": SECRET}
VALUES = (
    {"user": CARD, "n": "open"},
    {"user": {"card": {"number": SECRET, "more": [SECRET, DIGITS]}}},
    {"user": {"card": DIGITS}},
    {"user": [CARD, [CARD], SECRET]},
    [{"user": CARD}, SECRET],
    {"user": json.dumps(CARD)},
    {"user": DIGITS},
    {"user.card": SECRET},
    json.dumps({"user": CARD}),
    json.dumps(json.dumps({"user": CARD})),
    f"{SECRET}-json-string",
    DIGITS,
)
BYTES = (
    *(json.dumps(each).encode() for each in VALUES),
    *(json.dumps(each, indent=2).encode("utf-16") for each in VALUES[:2]),
    SECRET.encode(),
    f'{{"user": {{"card": "{SECRET}"'.encode(),
    b'\xff{"user": {"card": "s3cr3t"}}',
    b'{"user": {"card": 1}, "user": {"card": "s3cr3t"}}',
)
HEADERS = (
    ("user.token", SECRET.encode()),
    ("__connect.errors.exception.message", b"cannot read s3cr3t-4711"),
    ("__connect.errors.exception.stacktrace", b"cannot read 4711471147114711"),
    ("source.topic", b"orders"),
    ("source.partition", b"0"),
    ("source.offset", b"0"),
    ("reason", b"cannot read s3cr3t-4711"),
)
RULES = ("ord.*:value.user.card", "orders:headers.user.token")
PLACES = {"{topic}": "orders", "{partition:number}": "0"}


def has_secret(text: str) -> bool:
    """Whether any part of a masked value is in a text."""
    return "s3cr3t" in text or "47114711" in text


@pytest.mark.parametrize("data", BYTES)
@pytest.mark.parametrize("part", ["key", "value"])
def test_masked_place_is_hidden_in_bytes_of_all_kinds(part, data):
    """Where it cannot be found, all is."""
    hide = Hiding([mask_of(f"orders:{part}.user.card")])
    record = FoundRecord(0, 1, 2, None, None, ())._replace(**{part: data})

    assert not has_secret(bytes(getattr(hide(record), part)).decode("utf-8", "replace"))


def test_rest_of_an_object_is_shown():
    """A field that is not there is no reason to hide others."""
    hide = Hiding([mask_of("orders:value.user.card")])
    record = FoundRecord(0, 1, 2, None, b'{"id": 1.10, "user": {"name": "a"}}', ())

    assert hide(record) == record


def test_header_has_its_whole_name():
    """Dots and all; a header that quotes the record is hidden with the record's places."""
    of_header = Hiding([mask_of("o:headers.__connect.errors.exception.message")])
    of_value = Hiding([mask_of("o:value.a")])
    record = FoundRecord(0, 1, 2, None, None, HEADERS)

    assert [name for name, data in of_header(record).headers if data == HIDDEN.encode()] == [
        "__connect.errors.exception.message"
    ]
    assert [name for name, data in of_value(record).headers if data == HIDDEN_QUOTE.encode()] == [
        "__connect.errors.exception.message",
        "__connect.errors.exception.stacktrace",
        "reason",
    ]


@pytest.mark.parametrize("key_rule", ["orders:key", "orders:key.user.card"])
def test_no_page_has_a_part_of_a_masked_value(ottla_fresh_broker, key_rule):
    """In all pages and twins of a topic, and those of each record."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", *((0, START, each, each, HEADERS) for each in BYTES))
    masks = tuple(map(mask_of, (*RULES, key_rule)))

    async def look(visitor: Visitor, path: str) -> None:
        answer = await visitor.get(path)
        assert answer.status == 200
        assert not has_secret(answer.text), path

    async def walk(visitor: Visitor) -> None:
        paths = [each.path for each in PAGES if each.path.startswith("/t/{topic}/")]
        for path in paths:
            for name, text in PLACES.items():
                path = path.replace(name, text)
            for offset in range(len(BYTES)) if "{offset" in path else (0,):
                place = path.replace("{offset:number}", str(offset))
                await look(visitor, place)
                await look(visitor, f"{place}.json?whole=1&like=0:{offset}")
        for offset in range(len(BYTES)):
            await look(visitor, f"/t/orders/produce?like=0:{offset}")

    visit(ottla_fresh_broker.bootstrap_servers, walk, masks=masks)


def test_key_that_is_shown_has_a_link_to_its_records(ottla_fresh_broker):
    """Though a place of other keys is masked."""
    ottla_fresh_broker.create_topic("orders", 1)
    send(ottla_fresh_broker, "orders", (0, START, b"k1", b"v", []), (0, START, b"k1", b"v", []))

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get("/t/orders/0/0.json")).json["key_query"] == "key = 'k1'"

    async def hidden(visitor: Visitor) -> None:
        assert (await visitor.get("/t/orders/0/0.json")).json["key_query"] == ""

    visit(ottla_fresh_broker.bootstrap_servers, walk, masks=(mask_of("orders:value"),))
    visit(ottla_fresh_broker.bootstrap_servers, hidden, masks=(mask_of("orders:key"),))


def test_reason_of_a_masked_origin_is_hidden(ottla_fresh_broker):
    """On the page of a dead letter whose own topic is not masked."""
    ottla_fresh_broker.create_topic("dead", 1)
    headers = [*HEADERS[3:6], ("reason", b"cannot read it")]
    send(ottla_fresh_broker, "dead", (0, START, None, b"v", headers))

    async def walk(visitor: Visitor) -> str:
        return (await visitor.get("/t/dead/0/0.json")).json["origin"]["reason"]

    servers = ottla_fresh_broker.bootstrap_servers
    assert visit(servers, walk, masks=(mask_of("orders:value.a"),)) == HIDDEN_QUOTE
    assert visit(servers, walk, masks=(mask_of("other:value.a"),)) == "cannot read it"
