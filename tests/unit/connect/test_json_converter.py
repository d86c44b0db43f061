"""JSON with and without schemas: Kafka's bytes, and errors that lead to the place."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum

import pytest

from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Schema,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)
from ottla.connect.json_converter import JsonConverter
from ottla.errors import ConfigError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
PLAIN = {"schemas.enable": "false"}
PERSON = struct_of("Person", id=INT64, name=STRING, tags=array_of(STRING).as_optional())

EXACT = [
    (STRING, "foo", b'{"schema":{"type":"string","optional":false},"payload":"foo"}'),
    (INT8.as_optional(), None, b'{"schema":{"type":"int8","optional":true},"payload":null}'),
    (BOOLEAN, True, b'{"schema":{"type":"boolean","optional":false},"payload":true}'),
    (FLOAT32, 0.1, b'{"schema":{"type":"float","optional":false},"payload":0.1}'),
    (FLOAT64, 1e10, b'{"schema":{"type":"double","optional":false},"payload":1.0E10}'),
    (BYTES, b"\x00\xff", b'{"schema":{"type":"bytes","optional":false},"payload":"AP8="}'),
    (
        INT16.replace(name="n", version=2, doc="d", parameters={"p": "q"}, default=5),
        7,
        b'{"schema":{"type":"int16","optional":false,"name":"n","version":2,"doc":"d",'
        b'"parameters":{"p":"q"},"default":5},"payload":7}',
    ),
    (
        PERSON,
        {"id": 1, "name": "Ann", "tags": None},
        b'{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},'
        b'{"type":"string","optional":false,"field":"name"},{"type":"array","items":{"type":'
        b'"string","optional":false},"optional":true,"field":"tags"}],"optional":false,"name":'
        b'"Person"},"payload":{"id":1,"name":"Ann","tags":null}}',
    ),
    (
        map_of(STRING, INT32),
        {"a": 1},
        b'{"schema":{"type":"map","keys":{"type":"string","optional":false},"values":'
        b'{"type":"int32","optional":false},"optional":false},"payload":{"a":1}}',
    ),
    (
        map_of(INT32, STRING),
        {1: "a"},
        b'{"schema":{"type":"map","keys":{"type":"int32","optional":false},"values":'
        b'{"type":"string","optional":false},"optional":false},"payload":[[1,"a"]]}',
    ),
    (
        decimal_of(2),
        Decimal("1.56"),
        b'{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal"'
        b',"version":1,"parameters":{"scale":"2"}},"payload":"AJw="}',
    ),
    (
        DATE,
        date(1970, 1, 11),
        b'{"schema":{"type":"int32","optional":false,"name":"org.apache.kafka.connect.data.Date"'
        b',"version":1},"payload":10}',
    ),
    (
        TIME,
        time(0, 0, 1),
        b'{"schema":{"type":"int32","optional":false,"name":"org.apache.kafka.connect.data.Time"'
        b',"version":1},"payload":1000}',
    ),
    (
        TIMESTAMP,
        datetime(2020, 1, 1, tzinfo=UTC),
        b'{"schema":{"type":"int64","optional":false,"name":'
        b'"org.apache.kafka.connect.data.Timestamp","version":1},"payload":1577836800000}',
    ),
]


@pytest.mark.parametrize(("schema", "value", "data"), EXACT)
def test_the_envelope_is_kafkas_byte_for_byte(schema, value, data):
    """Key order, names of types and forms of values; and what is written is read back."""
    converter = JsonConverter()

    assert converter.from_connect_data("t", schema, value) == data
    for _ in range(2):  # the first time parses the schema, the second knows its bytes
        found = converter.to_connect_data("t", data)
        assert found.schema == schema
        assert found.value == pytest.approx(value) if schema is FLOAT32 else found.value == value


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, 2.5, True, None, "é"]}, '{"a":[1,2.5,true,null,"é"]}'),
        ({}, "{}"),
        ("\x1f\n\\u001f\x7f", '"\\u001F\\n\\\\u001f\x7f"'),
        (1e-7, "1.0E-7"),
        (2**63, "9223372036854775808"),
    ],
)
def test_without_schemas_the_payload_stands_alone(value, data):
    """Control characters and numbers as Jackson writes them."""
    converter = JsonConverter.of(PLAIN)

    assert converter.from_connect_data("t", None, value) == data.encode()
    assert converter.to_connect_data("t", data.encode()) == (None, value)


def test_some_values_come_back_otherwise():
    """JSON has neither bytes nor keys that are no text."""
    converter = JsonConverter.of(PLAIN)

    assert converter.from_connect_data("t", None, {1: b"a"}) == b'[[1,"YQ=="]]'
    assert converter.from_connect_data("t", None, float("nan")) == b'"NaN"'
    assert converter.from_connect_data("t", PERSON, {"id": 1, "name": ""}) == (
        b'{"id":1,"name":"","tags":null}'
    )


class Quoted(str):
    """As SQLAlchemy's names are."""


class Colour(str, Enum):  # noqa: UP042 # its text differs from its value
    """A text with a name."""

    RED = "r"


class Level(IntEnum):
    """A number with a name."""

    HIGH = 3


def test_subclasses_are_what_they_are_made_of():
    """Names of a database's driver, enums and ordered maps: as values, as keys, in schemas."""
    plain, schemas = JsonConverter.of(PLAIN), JsonConverter()
    value = OrderedDict({Quoted("a"): Colour.RED, "n": Level.HIGH, "l": namedtuple("P", "x")(1)})

    assert plain.from_connect_data("t", None, value) == b'{"a":"r","n":3,"l":[1]}'
    named = struct_of(Quoted("orders"), {Quoted("id"): INT64})
    assert b'"name":"orders"' in schemas.from_connect_data("t", named, {"id": 1})
    with pytest.raises(DataError, match="a object must have a schema"):
        plain.from_connect_data("t", None, object())


def test_nothing_is_null_bytes_only_without_a_schema():
    """A tombstone with an optional schema is written as JSON, as in Kafka."""
    enveloped, plain = JsonConverter(), JsonConverter.of(PLAIN)

    assert enveloped.from_connect_data("t", None, None) is None
    assert enveloped.from_connect_data("t", None, 5) == b'{"schema":null,"payload":5}'
    assert enveloped.to_connect_data("t", b'{"schema":null,"payload":0.5}') == (None, 0.5)
    assert plain.from_connect_data("t", STRING.as_optional(), None) == b"null"
    assert enveloped.to_connect_data("t", None) == plain.to_connect_data("t", None) == (None, None)
    assert plain.to_connect_data("t", b"") == (None, None)


def test_decimals_may_be_numbers():
    """Both forms are read, whichever is written; no digit is lost."""
    numeric = JsonConverter.of({"decimal.format": "numeric"})
    schema, value = decimal_of(20), Decimal("0.12345678901234567890")
    written = numeric.from_connect_data("t", schema, value)

    assert written.endswith(b'"payload":0.12345678901234567890}')
    for _ in range(2):
        assert JsonConverter().to_connect_data("t", written) == (schema, value)
    base64 = JsonConverter().from_connect_data("t", schema, value)
    assert numeric.to_connect_data("t", base64) == (schema, value)


def test_defaults_stand_in_for_nulls():
    """Both ways, unless replace.null.with.default is false."""
    schema = struct_of(a=INT8.replace(default=3, optional=True), b=array_of(INT8).as_optional([1]))
    filled = JsonConverter.of(PLAIN)
    kept = JsonConverter.of(PLAIN | {"replace.null.with.default": "false"})

    assert filled.from_connect_data("t", schema, {}) == b'{"a":3,"b":[1]}'
    assert kept.from_connect_data("t", schema, {}) == b'{"a":null,"b":null}'
    data = JsonConverter.of({"replace.null.with.default": False}).from_connect_data("t", schema, {})
    first, second = (JsonConverter().to_connect_data("t", data).value for _ in range(2))
    assert first == {"a": 3, "b": [1]}
    assert first["b"] is not second["b"] is not schema.by_name["b"].default
    unfilled = JsonConverter.of({"replace.null.with.default": False})
    assert unfilled.to_connect_data("t", data) == (schema, {"a": None, "b": None})


def test_one_schema_can_stand_for_all_records():
    """schema.content: records carry none (KAFKA-3821)."""
    converter = JsonConverter.of({"schema.content": '{"type":"float"}'})

    assert converter.to_connect_data("t", b"0.5") == (FLOAT32, 0.5)
    with pytest.raises(DataError, match=r"topic t: value='x': must be float32"):
        converter.to_connect_data("t", b'"x"')


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (INT8, 128, "value=128: must be int8"),
        (INT8, None, "value=None: must be int8, which is required"),
        (FLOAT32, 1e300, r"value=1e\+300: must be float32"),
        (STRING, 1, "value=1: must be string"),
        (PERSON, [1], r"value=\[1\]: must be struct Person"),
        (PERSON, {"id": "x", "name": ""}, "id='x': must be int64"),
        (PERSON, {"id": 1, "name": "", "tags": ["a", 2]}, r"tags\[1\]=2: must be string"),
        (PERSON, {"id": 1, "name": "", "nmae": 2}, "nmae=2: struct Person has no such field"),
        (map_of(STRING, INT8), {"a": "b"}, r"\['a'\]='b': must be int8"),
        (DATE, "x", "value='x': must be int32 .*Date"),
        (None, {"a": [date(1, 1, 1)]}, r"\['a'\]\[0\]=.*: a date must have a schema"),
        (None, "\ud800", "must be text without lone surrogates"),
    ],
)
def test_what_cannot_be_written_is_named(schema, value, text):
    """The error leads to the place in the value."""
    with pytest.raises(DataError, match=text):
        JsonConverter().from_connect_data("t", schema, value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", r"topic t: bytes b'{': must be JSON"),
        (b"", "must be JSON, but there are no bytes"),
        (b'{"a":1}', r"must be .* for JSON without schemas set schemas\.enable=false"),
        (b'{"schema":null,"payload":1,"x":2}', "and nothing else"),
        (b'{"schema":null,"payload":NaN}', "NaN is no number of JSON"),
        (b"\x00\x00\x00\x00\x07rest", "begin as those of a converter with a schema registry"),
        (b'{"schema":{"type":"int9"},"payload":1}', "must be an object whose type is of int8, "),
        (b'{"schema":{"type":"struct"},"payload":1}', "a struct must have a list of fields"),
        (b'{"schema":{"type":"array"},"payload":1}', "must have the schema of its values"),
        (
            b'{"schema":{"type":"struct","fields":[{"type":"int8"}]},"payload":1}',
            "must have the name of its field",
        ),
        (
            b'{"schema":{"type":"int8","parameters":{"a":1}},"payload":1}',
            "schema parameter a=1: must be a string",
        ),
        (b'{"schema":{"type":"int8"},"payload":300}', "value=300: must be int8"),
        (b'{"schema":{"type":"int8"},"payload":null}', "value=None: must be int8, which is req"),
        (b'{"schema":{"type":"bytes"},"payload":"*"}', "must be bytes, as text in base64"),
        (b'{"schema":{"type":"float"},"payload":1e300}', "must be float32"),
        (b'{"schema":{"type":"double"},"payload":[]}', r"value=\[\]: must be float64"),
        (
            b'{"schema":{"type":"struct","fields":[{"type":"array","items":{"type":"int8"},'
            b'"field":"a"}]},"payload":{"a":[1,"x"]}}',
            r"topic t: .*a\[1\]='x': must be int8",
        ),
        (
            b'{"schema":{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}},'
            b'"payload":{"1":2}}',
            "must be an array of pairs in JSON, for a map",
        ),
    ],
)
def test_what_cannot_be_read_is_named(data, text):
    """Topic, first bytes or place, and the likely cause; also when the schema is known."""
    converter = JsonConverter()
    for _ in range(2):
        with pytest.raises(DataError, match=text):
            converter.to_connect_data("t", data)


def test_schemas_may_alternate():
    """More schemas than are kept, each with what follows its payload checked."""
    converter = JsonConverter.of({"schemas.cache.size": 2})
    samples = [(schema, value, data) for schema, value, data in EXACT if schema is not FLOAT32]
    for _ in range(3):
        for schema, value, data in samples:
            assert converter.from_connect_data("t", schema, value) == data
            assert converter.to_connect_data("t", data) == (schema, value)
            with pytest.raises(DataError, match="and nothing else"):
                converter.to_connect_data("t", data[:-1] + b',"payload2":1}')


def test_blanks_and_other_order_do_not_matter():
    """Envelopes are written by hand too."""
    found = (Schema(INT8.type, optional=True), 5)
    for data in (
        b' {"payload": 5, "schema": {"optional": true, "type": "int8"}} ',
        b'{"schema": {"type": "int8", "optional": true}, "payload": 5}',
        b'{"schema":{"type":"int8","optional":true} , "payload":5}',
        b'{"schema":{"type":"int8","optional":true},"payload": 5 } ',
    ):
        assert JsonConverter().to_connect_data("t", data) == found


def test_settings_are_checked():
    """The error names key, value and rule."""
    with pytest.raises(ConfigError, match=r"decimal\.format=TEXT: must be BASE64 or NUMERIC"):
        JsonConverter.of({"decimal.format": "TEXT"})
    with pytest.raises(ConfigError, match=r"schemas\.cache\.size=0: must be at least 1"):
        JsonConverter.of({"schemas.cache.size": 0})


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        (PLAIN, b'{"a":1}'),
        (PLAIN, b"1"),
        ({}, b'{"schema":{"type":"int32","optional":false},"payload":1}'),
        ({"schema.content": '{"type":"int32"}'}, b"1"),
    ],
)
def test_byte_order_mark_is_passed_over(settings, data):
    """As by Jackson, once and at the beginning."""
    converter = JsonConverter.of(settings)

    assert converter.to_connect_data("t", BYTE_ORDER_MARK + data) == (
        converter.to_connect_data("t", data)
    )
    for wrong_data in (2 * BYTE_ORDER_MARK + data, BYTE_ORDER_MARK, data + BYTE_ORDER_MARK):
        if wrong_data != BYTE_ORDER_MARK or settings != PLAIN:
            with pytest.raises(DataError):
                converter.to_connect_data("t", wrong_data)
