"""Cast, mask, and the names of schemas."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

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
    TIMESTAMP,
    DataError,
    Schema,
    SchemaType,
    SourceRecord,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)
from ottla.connect.transforms.types import (
    CastKey,
    CastValue,
    MaskFieldValue,
    SetSchemaMetadataKey,
    SetSchemaMetadataValue,
    cast,
)
from ottla.errors import ConfigError

RECORD = SourceRecord(topic="t")


@pytest.mark.parametrize(
    ("value", "schema", "kind", "expected"),
    [
        (7, INT64, "int8", 7),
        (7.9, FLOAT64, "int32", 7),
        (-7.9, FLOAT64, "int32", -7),
        (True, BOOLEAN, "int64", 1),
        ("-12", STRING, "int16", -12),
        (1, INT8, "float64", 1.0),
        ("1.5e3", STRING, "float32", 1500.0),
        ("NaN", STRING, "float64", pytest.approx(float("nan"), nan_ok=True)),
        (0.1, FLOAT64, "float32", 0.10000000149011612),
        (0, INT8, "boolean", False),
        (0.5, FLOAT64, "boolean", False),
        ("TRUE", STRING, "boolean", True),
        ("yes", STRING, "boolean", False),
        (True, BOOLEAN, "string", "true"),
        (1e10, FLOAT64, "string", "1.0E10"),
        (0.1, FLOAT32, "string", "0.1"),
        (b"abc", BYTES, "string", "YWJj"),
        (date(2020, 2, 3), DATE, "string", "2020-02-03"),
        (date(1970, 1, 11), DATE, "int32", 10),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), TIMESTAMP, "int64", 1000),
        (time(0, 0, 1), None, "int32", 1000),
        (Decimal("12.70"), decimal_of(2), "int8", 12),
        (Decimal("12.70"), decimal_of(2), "string", "12.70"),
        (None, INT8, "string", None),
    ],
)
def test_cast(value, schema, kind, expected):
    """Kafka's results, for what fits."""
    found = cast(value, schema, SchemaType(kind))

    assert found == expected
    assert type(found) is type(expected) or kind == "float64"


@pytest.mark.parametrize(
    ("value", "schema", "kind", "text"),
    [
        (300, INT32, "int8", "value=300: must fit into int8 to be cast"),
        ("300", STRING, "int8", "must fit into int8"),
        ("9" * 5000, STRING, "int64", "must fit into int64"),
        (1e300, FLOAT64, "float32", "must fit into float32"),
        (float("nan"), FLOAT64, "int32", "must be a finite number to be cast to int32"),
        ("x", STRING, "int32", "value='x': must be a whole number"),
        ("1.5", STRING, "int32", "must be a whole number"),
        ("1_0", STRING, "float64", "must be a number"),
        (b"", BYTES, "int32", "must not be bytes to be cast to int32; only to string"),
        ([1], array_of(INT8), "string", "must not be a list to be cast"),
    ],
)
def test_what_cannot_be_cast(value, schema, kind, text):
    """Kafka would keep the lowest eight bits of 300."""
    with pytest.raises(DataError, match=text):
        cast(value, schema, SchemaType(kind))


def test_cast_fields():
    """Fields that are not named stay; defaults are cast as well."""
    schema = struct_of("S", a=INT32, b=STRING, c=INT8.as_optional(5)).as_optional()
    transform = CastValue.of({"spec": "a:string, b:float64,c:boolean"})
    value = {"a": 1, "b": "2.5", "c": None}
    made = transform.apply(RECORD.replace(value=value, value_schema=schema))

    assert made.value == {"a": "1", "b": 2.5, "c": True}
    assert made.value_schema == (
        struct_of("S", a=STRING, b=FLOAT64, c=BOOLEAN.as_optional(True)).as_optional()
    )
    assert transform.apply(RECORD.replace(value={"a": 1, "x": 0})).value == (
        {"a": "1", "b": None, "c": None, "x": 0}
    )
    with pytest.raises(DataError, match="b='x': must be a number"):
        transform.apply(RECORD.replace(value={"b": "x"}))


def test_cast_the_whole_key():
    """The schema keeps its name, and its default in the new type."""
    schema = INT64.replace(name="n", version=2, optional=True, default=4)
    made = CastKey.of({"spec": "STRING"}).apply(RECORD.replace(key=7, key_schema=schema))

    assert made.key == "7"
    assert made.key_schema == STRING.replace(name="n", version=2, optional=True, default="4")
    assert CastValue.of({"spec": "int8"}).apply(RECORD.replace(value="7")).value == 7
    assert CastValue.of({"spec": "int8"}).apply(RECORD) == RECORD


@pytest.mark.parametrize(
    ("value", "schema", "kind", "expected"),
    [
        (date(1970, 1, 11), DATE, "int32", 10),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), TIMESTAMP, "int64", 1000),
        (
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            TIMESTAMP,
            "string",
            "1970-01-01T00:00:01.000Z",
        ),
        (Decimal("12.70"), decimal_of(2), "string", "12.70"),
    ],
)
def test_whole_value_that_is_no_time_any_more_is_not_called_one(value, schema, kind, expected):
    """Kafka keeps the name of the schema, and then no converter can write the value."""
    record = RECORD.replace(value=value, value_schema=schema.as_optional(value))
    made = CastValue.of({"spec": kind}).apply(record)

    assert made.value_schema == Schema(SchemaType(kind), optional=True, default=expected)
    assert made.value == expected
    made.value_schema.validate(made.value)


@pytest.mark.parametrize("spec", ["", "int9", "a:bytes", "int8,int16", "a:int8,string"])
def test_cast_specs_are_checked(spec):
    """The error lists the types."""
    with pytest.raises(ConfigError, match="must be pairs of field:type, or one type, of int8"):
        CastValue.of({"spec": spec})


def test_set_schema_metadata():
    """Name, version or both; a value without a schema cannot be named."""
    schema = struct_of("S", a=INT8.as_optional(3))
    record = RECORD.replace(value={"a": None}, value_schema=schema)
    both = SetSchemaMetadataValue.of({"schema.name": "T", "schema.version": "2"})

    assert both.apply(record).value_schema == schema.replace(name="T", version=2)
    assert both.apply(record).value == {"a": 3}
    named = SetSchemaMetadataKey.of({"schema.name": "K"})
    assert named.apply(RECORD.replace(key=1, key_schema=INT16)).key_schema == INT16.replace(
        name="K"
    )
    assert both.apply(RECORD) == RECORD
    with pytest.raises(DataError, match="value=1: must have a schema to be named"):
        both.apply(RECORD.replace(value=1))
    with pytest.raises(ConfigError, match=r"schema\.name or schema\.version must be set"):
        SetSchemaMetadataKey.of({})


MASKED = {
    "b": (True, False),
    "i": (7, 0),
    "f": (1.5, 0.0),
    "s": ("secret", ""),
    "d": (Decimal("1.5"), Decimal(0)),
    "t": (datetime(2020, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
    "y": (date(2020, 1, 1), date(1970, 1, 1)),
    "h": (time(1), time()),
    "l": ([1], []),
    "m": ({"k": 1}, {}),
    "n": (None, None),
}


def test_mask_field():
    """Each type has a value that says nothing."""
    value = {name: before for name, (before, _) in MASKED.items()} | {"open": 1}
    mask = MaskFieldValue.of({"fields": ",".join(MASKED)})
    made = mask.apply(RECORD.replace(value=value))

    assert made.value == {name: after for name, (_, after) in MASKED.items()} | {"open": 1}
    assert mask.apply(RECORD) == RECORD


def test_mask_field_with_a_replacement():
    """In the type of what it replaces."""
    mask = MaskFieldValue.of({"fields": "i,f,s,x", "replacement": "42"})
    schema = struct_of(i=INT8, f=FLOAT32, s=STRING, o=INT8.as_optional(9))
    value = {"i": 7, "f": 1.5, "s": "secret", "o": None}

    made = mask.apply(RECORD.replace(value=value, value_schema=schema))
    assert (made.value, made.value_schema) == ({"i": 42, "f": 42.0, "s": "42", "o": 9}, schema)
    plain = mask.apply(RECORD.replace(value={"i": 7, "s": "x"}))
    assert plain.value == {"i": 42, "s": "42", "f": None, "x": None}


@pytest.mark.parametrize(
    ("settings", "value", "schema", "text"),
    [
        ({}, b"x", BYTES, "a=b'x': a bytes must not be masked"),
        ({}, {}, struct_of(), "a struct must not be masked"),
        ({"replacement": "x"}, 7, INT8, r"replacement='x': must be a number to replace one"),
        ({"replacement": "300"}, 7, INT8, "must fit into int8"),
        ({"replacement": "x"}, True, BOOLEAN, "must be a number or text to be replaced"),
        ({"replacement": "x"}, {}, map_of(STRING, INT8), "must be a number or text"),
    ],
)
def test_what_cannot_be_masked(settings, value, schema, text):
    """An error names the field: better than a value that says too much."""
    mask = MaskFieldValue.of({"fields": "a"} | settings)
    with pytest.raises(DataError, match=text):
        mask.apply(RECORD.replace(value={"a": value}, value_schema=struct_of(a=schema)))


def test_mask_field_settings():
    """Which fields, and a replacement that says something."""
    with pytest.raises(ConfigError, match="replacement=: must not be empty"):
        MaskFieldValue.of({"fields": "a", "replacement": ""})
