"""Topics as tables: the newest records within limits, and nothing that is masked."""

from __future__ import annotations

import asyncio

import pytest
from topics_of_records import START, send
from visitor import Visitor, visit

from ottla import Admin, Producer
from ottla.console import topic_tables as room
from ottla.console.conditions import Conjunct
from ottla.console.masks import mask_of
from ottla.console.newest_first import Limits
from ottla.console.record_source import Span
from ottla.console.refusals import Refused
from ottla.console.topic_tables import TopicTables, both
from ottla.record.columnar import DEFAULT_MAX_ROWS
from ottla.structs import IsolationLevel, TopicPartition

P = [TopicPartition("t", number) for number in range(3)]


def read(broker, topic: str, *references: list[Conjunct], masks=(), **limits: int):
    """The table of a topic, and how much of it was read."""

    async def walk(visitor: Visitor):
        tables = TopicTables(
            visitor.app.cluster,
            Limits(**limits),
            [mask_of(each) for each in masks],
            IsolationLevel.READ_UNCOMMITTED,
            True,
        )
        return await tables.read(topic, references)

    return visit(broker.bootstrap_servers, walk)


def test_limit_leaves_the_oldest(shop, monkeypatch):
    """Of each partition the newest are there, and all of them between."""
    monkeypatch.setattr(room, "STEP", 6)
    monkeypatch.setattr(room, "SMALLEST_STEP", 2)
    table, topic = read(shop, "orders", [], records=30)

    assert not topic.is_whole
    assert 30 <= topic.read == table.num_rows < topic.total == 60
    rows = table.select(["partition", "offset"]).to_pylist()
    for partition in range(3):
        offsets = [each["offset"] for each in rows if each["partition"] == partition]
        assert offsets == list(range(20 - len(offsets), 20))


def test_references_are_read_together(shop):
    """A topic that a statement names twice is read once, for both."""
    three = [Conjunct("partition", "=", 1), Conjunct("offset", "<", 3)]
    table, topic = read(shop, "orders", three, [Conjunct("offset", ">=", 18)])
    assert (topic.read, topic.total, topic.is_whole) == (24, 24, True)
    assert set(table["partition"].to_pylist()) == {0, 1, 2}


def test_masks_hide_places_of_every_part(shop):
    """Text that is no JSON is hidden as a whole."""
    masks = ("shop.*:value.n", "shop.*:headers.h", "shop.*:key")
    rows = read(shop, "shop.odd", [], masks=masks)[0].to_pylist()
    assert [each["value"] for each in rows] == [
        '{"a": [{"b": 1.5}], "n": "***"}',
        "***",
        None,
        '{"a": "text", "n": "***"}',
    ]
    assert [each["key"] for each in rows] == ["***", None, "***", "***"]
    assert rows[0]["headers"] == [{"key": "h", "value": "***"}] * 2


@pytest.mark.parametrize(
    ("one", "two", "found"),
    [
        ({P[0]: Span(1, 5)}, {P[0]: Span(3, 9)}, {P[0]: Span(1, 9)}),
        ({P[0]: Span(4, 4)}, {P[0]: Span(7, 9)}, {P[0]: Span(7, 9)}),
        ({P[0]: Span(7, 9)}, {P[0]: Span(2, 2)}, {P[0]: Span(7, 9)}),
        ({P[0]: Span(1, 2)}, {P[1]: Span(3, 4)}, {P[0]: Span(1, 2), P[1]: Span(3, 4)}),
    ],
)
def test_spans_hold_both(one, two, found):
    """An empty one adds nothing."""
    assert both(one, two) == found


@pytest.mark.parametrize("masks", [(), ("many:value.n",)])
def test_batch_of_very_many_records_has_its_headers(shop, masks):
    """It is taken apart in slices, each with the headers of its own records."""
    count = 2 * DEFAULT_MAX_ROWS + 5
    topic = f"many{len(masks)}"
    shop.create_topic(topic, 1)
    with Producer(shop.bootstrap_servers, linger_ms=60_000, batch_size=2**21) as producer:
        for number in range(count):
            headers = [("h", b"%d" % number)] if number % 2 else []
            producer.send(topic, b"", headers=headers)
    masks = [each.replace("many", topic) for each in masks]
    table, _ = read(shop, topic, [], masks=masks, records=count)
    found = {each["offset"]: each["headers"] for each in table.to_pylist()}
    assert len(found) == count
    for number in (0, 1, DEFAULT_MAX_ROWS, DEFAULT_MAX_ROWS + 1, count - 2, count - 1):
        assert found[number] == ([{"key": "h", "value": str(number)}] if number % 2 else None)


@pytest.mark.parametrize("count", [0, 3, 30])
def test_topic_that_is_made_again_is_not_taken_for_the_old_one(shop, monkeypatch, count):
    """Offsets that were asked of the old one would be read of the new; one that is gone is said."""
    name = f"again{count}"
    shop.create_topic(name, 1)
    send(shop, name, *[(0, START, None, b"old", [])] * 10)
    read_all = room.ColumnWalk.read_all

    def make_again() -> None:
        with Admin(shop.bootstrap_servers) as admin:
            admin.delete_topics([name])
        if count:
            shop.create_topic(name, 1)
            send(shop, name, *[(0, START, None, b"new", [])] * count)

    async def changing(self, on_step) -> None:
        await asyncio.to_thread(make_again)
        await read_all(self, on_step)

    monkeypatch.setattr(room.ColumnWalk, "read_all", changing)
    if count:
        with pytest.raises(Refused, match="deleted and made again"):
            read(shop, name, [])
    else:
        _, topic = read(shop, name, [])
        assert (topic.read, topic.is_whole, [*topic.errors]) == (0, False, [0])
