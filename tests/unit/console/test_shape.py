"""The fields of a topic's values, from a sample."""

from __future__ import annotations

import pytest
from topics_of_records import START, interleaved, send
from visitor import Visitor, visit

from ottla.console.conditions import condition_of
from ottla.console.masks import mask_of
from ottla.console.record_source import FoundRecord
from ottla.console.shape import MOST_DISTINCT, condition_for, line_of_field, shape_of


def test_fields_have_kinds_examples_and_limits():
    """Numbers exactly; items of lists share a path; what is no JSON is left out."""
    values = [
        b'{"id": 9007199254740993, "price": 1.10, "tags": ["a", "b"], "user": {"name": "x"}}',
        b'{"id": 2, "price": null, "tags": [], "ok": true}',
        b"no json",
        b"5",
        None,
    ]
    count, found = shape_of(values)
    lines = {path: line_of_field(path, each, count) for path, each in found.items()}

    assert count == 2
    assert (lines["id"].low, lines["id"].high) == ("2", "9007199254740993")
    assert (lines["id"].share, lines["user.name"].share) == (1.0, 0.5)
    assert lines["price"].kinds == ["decimal", "null"]
    assert lines["price"].examples == ["1.10", "null"]
    assert lines["tags[]"].distinct == 2
    assert lines["user"].kinds == ["object"]
    assert lines["ok"].kinds == ["true or false"]


def test_values_and_depth_are_bounded():
    """A value may have any number of fields."""
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    values = [b'{"n": %d}' % number for number in range(MOST_DISTINCT + 9)] + [deep]
    count, found = shape_of(values)
    line = line_of_field("n", found["n"], count)

    assert (line.distinct, line.is_more) == (MOST_DISTINCT, True)
    assert len(found) < 20


@pytest.mark.parametrize(
    ("path", "kind", "example", "condition"),
    [
        ("a.b", "text", "it's", "value.a.b = 'it''s'"),
        ("a", "integer", "9007199254740993", "value.a = 9007199254740993"),
        ("a[]", "text", "x", ""),
        ("a b", "text", "x", ""),
        ("a", "object", "", ""),
    ],
)
def test_condition_finds_the_example(path, kind, example, condition):
    """It is one of the language; lists have none."""
    assert condition_for(path, kind, example) == condition
    if condition.startswith("value.a ="):
        record = FoundRecord(0, 0, 0, None, b'{"a": 9007199254740993}')
        assert condition_of(condition, 0).test(record)


def test_page_has_the_fields_of_the_sample(ottla_fresh_broker):
    """Masked ones are not looked into; a topic without JSON says so."""
    interleaved(ottla_fresh_broker)
    ottla_fresh_broker.create_topic("texts", 1)
    send(ottla_fresh_broker, "texts", (0, START, None, b"text", []))

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/shape.json")).json
        assert [each["path"] for each in data["fields"]] == ["id", "status"]
        assert (data["sample"], data["json"]) == (60, 60)
        assert data["fields"][0]["examples"] == ["***"]
        page = (await visitor.get("/t/orders/shape")).text
        assert "value.status+%3D+%27ok%27" in page
        assert "No value" in (await visitor.get("/t/texts/shape")).text

    visit(ottla_fresh_broker.bootstrap_servers, walk, masks=(mask_of(".*:value.id"),))


@pytest.mark.parametrize("twin", ["", ".json", ".csv", ".jsonl"])
def test_half_of_a_surrogate_pair_is_shown_escaped(ottla_fresh_broker, twin):
    """JSON may name one in a value and in a name; UTF-8 has none."""
    value = rb'{"a": "x\ud800", "\udfff": 1}'
    ottla_fresh_broker.create_topic("halves", 1)
    send(ottla_fresh_broker, "halves", (0, START, None, value, []))

    async def walk(visitor: Visitor) -> str:
        answer = await visitor.get(f"/t/halves/shape{twin}")
        assert answer.status == 200
        return answer.text

    text = visit(ottla_fresh_broker.bootstrap_servers, walk)
    assert r"x\ud800" in text
    assert r"\udfff" in text
