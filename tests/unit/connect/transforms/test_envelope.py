"""The topic and the headers of a record."""

from __future__ import annotations

import pytest

from ottla.connect.data import INT8, STRING, DataError, Header, SourceRecord, struct_of
from ottla.connect.transforms.envelope import (
    DropHeaders,
    HeaderFromKey,
    HeaderFromValue,
    InsertHeader,
    RegexRouter,
)
from ottla.errors import ConfigError

RECORD = SourceRecord(topic="orders-7", headers=(Header("a", 1), Header("b", 2), Header("a", 3)))


@pytest.mark.parametrize(
    ("regex", "replacement", "topic"),
    [
        (r"(.*)-(\d)", "$2.$1", "7.orders"),
        ("orders", "x", "orders-7"),
        (".*", "all", "all"),
        ("(?<kind>[a-z]+).*", "${kind}", "orders"),
        ("(.*?)", "$1x", "xorders-7"),
    ],
)
def test_regex_router(regex, replacement, topic):
    """The whole name must match; then the first place that does is replaced, as in Java."""
    router = RegexRouter.of({"regex": regex, "replacement": replacement})

    assert router.apply(RECORD).topic == topic
    assert RECORD.topic == "orders-7"


def test_insert_and_drop_headers():
    """All of a name are dropped; the type of a new one is guessed."""
    inserted = InsertHeader.of({"header": "n", "value.literal": "7"}).apply(RECORD)

    assert inserted.headers == (*RECORD.headers, Header("n", 7, INT8))
    assert DropHeaders.of({"headers": "a,n"}).apply(inserted).headers == (Header("b", 2),)


def test_header_from():
    """Move takes the field out of the value, copy leaves it there."""
    schema = struct_of("S", a=INT8, b=STRING.as_optional("d"))
    record = SourceRecord(topic="t", value={"a": 1, "b": None}, value_schema=schema)
    settings = {"fields": "b", "headers": "h"}
    move = HeaderFromValue.of(settings | {"operation": "move"})
    copy = HeaderFromValue.of(settings | {"operation": "copy"})

    moved = move.apply(record)
    assert (moved.value, moved.value_schema) == ({"a": 1}, struct_of("S", a=INT8))
    assert moved.headers == (Header("h", "d", STRING.as_optional("d")),)
    copied = copy.apply(record)
    assert (copied.value, copied.value_schema) == (record.value, schema)
    assert copied.headers == moved.headers
    plain = move.apply(SourceRecord(topic="t", value={"a": 1}, headers=(Header("x", 0),)))
    assert (plain.value, plain.headers) == ({"a": 1}, (Header("x", 0), Header("h", None)))
    keyed = HeaderFromKey.of({"fields": "a", "headers": "h", "operation": "move"})
    assert keyed.apply(SourceRecord(topic="t", key={"a": 1})).key == {}
    missing = HeaderFromValue.of({"fields": "c", "headers": "h", "operation": "copy"})
    with pytest.raises(DataError, match="struct S: has no field c for the header h"):
        missing.apply(record)


@pytest.mark.parametrize(
    ("transform", "settings", "text"),
    [
        (RegexRouter, {"regex": "(", "replacement": ""}, r"regex=\(: must be a regular expression"),
        (RegexRouter, {"regex": "a", "replacement": "${b}"}, "has no group 'b'"),
        (DropHeaders, {"headers": ""}, "headers=: must have at least one item"),
        (InsertHeader, {"header": "h"}, r"value\.literal: must be set"),
        (
            HeaderFromValue,
            {"fields": "a,b", "headers": "h", "operation": "move"},
            "headers=h: must have one name for each of fields",
        ),
        (
            HeaderFromValue,
            {"fields": "a", "headers": "h", "operation": "cut"},
            "operation=cut: must be one of move, copy",
        ),
    ],
)
def test_settings_are_checked(transform, settings, text):
    """Before a record is seen."""
    with pytest.raises(ConfigError, match=text):
        transform.of(settings)
