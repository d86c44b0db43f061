"""Avro by its schema, and bytes and schemas that mean harm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.console.avro_values import AvroSchema
from ottla.console.decoding import written

NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "a",
    "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "n", "type": "long"}],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "scale": 3}


def value(schema: Any, data: str) -> Any:
    """The value of bytes that are written as hexadecimal digits, as JSON."""
    return written(AvroSchema(json.dumps(schema)).value_of(bytes.fromhex(data)))


@pytest.mark.parametrize(
    ("schema", "data", "text"),
    [
        ("null", "", "null"),
        ("boolean", "01", "true"),
        ("int", "01", "-1"),
        ("long", "feffffffffffffffff01", "9223372036854775807"),
        ("float", "0000c03f", "1.5"),
        ("double", "000000000000f83f", "1.5"),
        ("bytes", "0400ff", '"0x00ff"'),
        ("string", "04c3a4", '"ä"'),
        ({"type": "string"}, "0261", '"a"'),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "02", '"B"'),
        ({"type": "fixed", "name": "F", "size": 2}, "0102", '"0x0102"'),
        ({"type": "array", "items": "int"}, "04020400", "[1, 2]"),
        ({"type": "array", "items": "int"}, "020201020600", "[1, 3]"),
        ({"type": "array", "items": "int"}, "0304020400", "[1, 2]"),
        ({"type": "map", "values": "int"}, "0202610200", '{"a": 1}'),
        (["null", "string"], "020261", '"a"'),
        (DECIMAL, "0404d2", "12.34"),
        (DECIMAL, "02ff", "-0.01"),
        (FIXED_DECIMAL, "04d2", "1.234"),
        (NODE, "02000204", '{"next": {"next": null, "n": 1}, "n": 2}'),
    ],
)
def test_values_of_each_type_are_read(schema, data, text):
    """By the specification's own bytes; all digits of numbers stay."""
    assert value(schema, data) == text


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("string", "0661"),
        ("string", "01"),
        ("string", "02ff"),
        ("int", "0200"),
        (["null"], "02"),
        (["null"], "01"),
        ({"type": "enum", "name": "E", "symbols": []}, "00"),
        ({"type": "array", "items": "null"}, "feffffffffffffffff01"),
        ({"type": "array", "items": {"type": "record", "name": "R", "fields": []}}, "feffff7f" * 2),
        (NODE, "02" * 100),
        (DECIMAL, "ffffffffff7f"),
    ],
)
def test_bytes_of_another_schema_are_refused(schema, data):
    """At once, also where they say that there are very many items, or are nested for ever."""
    with pytest.raises(ValueError, match=r"\w"):
        value(schema, data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "{}",
        "null",
        '"Other"',
        '{"type": "record", "name": "R"}',
        '{"type": "fixed", "name": "F", "size": "x"}',
        '{"type": "fixed", "name": "F", "size": 1e999}',
        '{"type": "bytes", "logicalType": "decimal", "scale": Infinity}',
        '{"type": {"type": "array"}}',
        '{"type": "bytes", "logicalType": "decimal", "scale": 999999999}',
        "[" * 100_000,
        '{"type": ' * 5_000 + '"int"' + "}" * 5_000,
    ],
)
def test_schema_that_is_none_is_refused(text):
    """However deep it is, and where it needs types that are elsewhere."""
    with pytest.raises(ValueError, match=r"\w"):
        AvroSchema(text)


def test_record_that_contains_itself_ends():
    """Without a byte of its own."""
    loop = {"type": "record", "name": "L", "fields": [{"name": "l", "type": "L"}]}
    twice = {**loop, "fields": [{"name": name, "type": "L"} for name in "ab"]}
    for schema in (loop, twice):
        with pytest.raises(ValueError, match="deeper"):
            value(schema, "")
