"""Values of MessagePack and Avro come back as they were; other bytes are refused, and no more."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any

from breadth import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.console.avro_values import AvroSchema
from ottla.console.decoding import Decoders, RawNumber, shown_bytes, written
from ottla.console.msgpack_values import msgpack_of
from ottla.console.protobuf_values import DescriptorFile

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=40), inner, max_size=4)
    ),
    max_leaves=12,
)
WHOLE = st.lists(TREES, max_size=4) | st.dictionaries(st.text(max_size=40), TREES, max_size=4)
SCHEMAS = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]),
    lambda inner: (
        inner.map(lambda each: {"type": "array", "items": each})
        | inner.map(lambda each: {"type": "map", "values": each})
        | st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(
            lambda types: {
                "type": "record",
                "name": "R",
                "fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(types)],
            }
        )
    ),
    max_leaves=8,
)


def packed(value: Any) -> bytes:
    """A value as MessagePack, in the longest form for lists and texts, and the shortest else."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        if -0x20 <= value < 0x80:
            return bytes([value & 0xFF])
        return (
            b"\xcf" + value.to_bytes(8) if value > 0 else b"\xd3" + value.to_bytes(8, signed=True)
        )
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return (bytes([0xA0 + len(data)]) if len(data) < 32 else long(0xDB, data)) + data
    if isinstance(value, list):
        return long(0xDD, value) + b"".join(map(packed, value))
    return long(0xDF, value) + b"".join(packed(k) + packed(v) for k, v in value.items())


def long(first: int, value: Any) -> bytes:
    return bytes([first]) + len(value).to_bytes(4)


@settings(max_examples=examples(60), deadline=None)
@given(WHOLE)
def test_msgpack_comes_back(value):
    """Also as the JSON of a page."""
    assert msgpack_of(packed(value)) == ("msgpack", value)
    assert json.loads(written(value)) == value


@settings(max_examples=examples(400), deadline=None)
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x80", b"\xdd", b"\xdf\0\0\0\x02", b"\x91" * 70]),
)
def test_any_bytes_are_shown(data, head):
    """As one of the kinds, whatever they are."""
    shown = shown_bytes(head + data, decoders=Decoders(packed=msgpack_of))

    assert shown.size == len(head + data)
    assert shown.text or not head + data


@settings(max_examples=examples(400), deadline=None)
@given(SCHEMAS, st.binary(max_size=100))
@example({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
def test_any_bytes_have_a_value_of_a_schema_or_none(schema, data):
    """ValueError is the only error, of bytes and of schemas that name a type twice alike."""
    try:
        value = AvroSchema(json.dumps(schema)).value_of(data)
    except ValueError:
        return
    assert written(value)
    assert not isinstance(value, RawNumber)


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_descriptor_file_or_none(data):
    """ValueError is the only error."""
    with suppress(ValueError):
        assert DescriptorFile(data).messages
