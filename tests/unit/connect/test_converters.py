"""The simple converters write Kafka's bytes, and refuse what is not theirs."""

from __future__ import annotations

import pytest

from ottla.connect.converters import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    SimpleHeaderConverter,
    StringConverter,
    java_string,
)
from ottla.connect.data import BYTES, INT8, INT32, STRING, DataError, array_of, map_of, struct_of
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("converter", "value", "data"),
    [
        (StringConverter, "Zoë", b"Zo\xc3\xab"),
        (StringConverter, "", b""),
        (ByteArrayConverter, b"\x00\xff", b"\x00\xff"),
        (ShortConverter, -2, b"\xff\xfe"),
        (IntegerConverter, 258, b"\x00\x00\x01\x02"),
        (LongConverter, -1, b"\xff" * 8),
        (FloatConverter, 1.5, b"\x3f\xc0\x00\x00"),
        (DoubleConverter, 1.5, b"\x3f\xf8" + b"\x00" * 6),
        (BooleanConverter, True, b"\x01"),
        (BooleanConverter, False, b"\x00"),
    ],
)
def test_bytes_are_those_of_kafkas_serializers(converter, value, data):
    """Both ways; null stays null."""
    each = converter()

    assert each.from_connect_data("t", None, value) == data
    assert each.to_connect_data("t", data).value == value
    assert each.to_connect_data("t", data).schema.optional
    assert each.from_connect_data("t", None, None) is None
    assert each.to_connect_data("t", None).value is None
    each.close()


@pytest.mark.parametrize(
    ("converter", "value", "text"),
    [
        (ShortConverter, 40_000, "value=40000: must be int16"),
        (IntegerConverter, "1", "value='1': must be int32"),
        (LongConverter, 1.5, r"value=1\.5: must be int64"),
        (FloatConverter, 1e300, r"value=1e\+300: must be float32"),
        (BooleanConverter, 1, "value=1: must be boolean"),
        (ByteArrayConverter, "x", "value='x': must be bytes"),
        (StringConverter, [b"x"], "must not be bytes; use ByteArrayConverter"),
        (StringConverter, "\ud800", "must have a form in utf-8"),
    ],
)
def test_a_value_of_another_type_is_refused(converter, value, text):
    """The error names the value and the rule."""
    with pytest.raises(DataError, match=text):
        converter().from_connect_data("t", None, value)


@pytest.mark.parametrize(
    ("converter", "data", "text"),
    [
        (ShortConverter, b"\x00", r"bytes b'\\x00' must be 2 for int16"),
        (LongConverter, b"", "bytes b'' must be 8"),
        (BooleanConverter, b"\x02", "must be one byte, 0 or 1"),
        (BooleanConverter, b"\x00\x01", "must be one byte, 0 or 1"),
        (StringConverter, b"\xff", "topic t: .* must be utf-8 text; ByteArrayConverter takes any"),
    ],
)
def test_bytes_of_another_kind_are_refused(converter, data, text):
    """The error shows the first bytes."""
    with pytest.raises(DataError, match=text):
        converter().to_connect_data("t", data)


def test_a_schema_of_another_type_is_refused():
    """As Kafka does for booleans and bytes."""
    with pytest.raises(DataError, match="schema int8 must be boolean"):
        BooleanConverter().from_connect_data("t", INT8, True)
    with pytest.raises(DataError, match="schema string must be bytes"):
        ByteArrayConverter().from_connect_data("t", STRING, b"")
    assert ByteArrayConverter().from_connect_data("t", BYTES, bytearray(b"x")) == b"x"


def test_the_encoding_of_text_is_a_setting():
    """Java's names of encodings are Python's too."""
    latin = StringConverter.of({"converter.encoding": "ISO-8859-1", "converter.type": "key"})

    assert latin.from_connect_data("t", None, "ë") == b"\xeb"
    assert latin.to_connect_data("t", b"\xeb").value == "ë"
    with pytest.raises(ConfigError, match=r"converter\.encoding=no: must be the name of an enc"):
        StringConverter.of({"converter.encoding": "no"})


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        (True, None, "true"),
        (1.0, None, "1.0"),
        ([1, "a", None], None, "[1, a, null]"),
        ({"a": 1, "b": [2]}, None, "{a=1, b=[2]}"),
        ({"b": None, "a": 1}, struct_of(a=INT8, b=INT8.as_optional()), "Struct{a=1}"),
        ({"k": [1]}, map_of(STRING, array_of(INT32)), "{k=[1]}"),
    ],
)
def test_other_values_are_written_as_java_does(value, schema, text):
    """What the file sink prints of records that are no strings."""
    assert java_string(value, schema) == text
    assert StringConverter().from_connect_data("t", schema, value) == text.encode()


def test_headers_are_text_of_a_guessed_type():
    """Bytes that are no text are left as they are."""
    headers = SimpleHeaderConverter.of({})

    assert headers.from_connect_data("t", None, {"a": [1]}) == b'{"a":[1]}'
    assert headers.to_connect_data("t", b"7") == (INT8, 7)
    assert headers.to_connect_data("t", b"\xff") == (BYTES, b"\xff")
    assert headers.to_connect_data("t", None) == (None, None)
    assert headers.from_connect_data("t", STRING, None) is None
