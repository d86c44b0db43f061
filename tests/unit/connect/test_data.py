"""Schemas hold their values to Kafka Connect's types, and say what is wrong with one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
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
    TIME,
    TIMESTAMP,
    DataError,
    Header,
    Schema,
    SchemaType,
    SinkRecord,
    SourceRecord,
    array_of,
    decimal_of,
    from_base,
    infer_schema,
    map_of,
    schema_for,
    struct_of,
    to_base,
)

PERSON = struct_of("Person", id=INT64, name=STRING, age=INT8.as_optional())


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, -128),
        (INT16, 32767),
        (INT32, -(2**31)),
        (INT64, 2**63 - 1),
        (FLOAT32, 1.5),
        (FLOAT64, 1),
        (BOOLEAN, True),
        (STRING, ""),
        (BYTES, b"\x00"),
        (DATE, date(1, 1, 1)),
        (TIME, time(23, 59, 59)),
        (TIMESTAMP, datetime(2020, 1, 1)),
        (decimal_of(2), Decimal("1.5")),
        (array_of(INT8), (1, 2)),
        (map_of(STRING, array_of(INT8)), {"a": [1]}),
        (PERSON, {"id": 1, "name": "Ann"}),
        (INT8.as_optional(), None),
        (INT8.replace(default=3), None),
    ],
)
def test_what_fits_passes(schema, value):
    """Each type takes the Python values that its documentation names."""
    schema.validate(value)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (INT8, 128, r"value=128: must be int8 \(a whole number of 8 bits\)"),
        (INT64, True, r"value=True: must be int64"),
        (INT32, 1.0, r"value=1\.0: must be int32"),
        (STRING, b"x", r"value=b'x': must be string"),
        (BOOLEAN, 1, r"value=1: must be boolean"),
        (STRING, None, r"value=None: must be string, which is required"),
        (DATE, datetime(2020, 1, 1), r"must be int32 org.*Date \(a datetime.date\)"),
        (TIME, time(1, tzinfo=timezone(timedelta(hours=2))), "must be a time in UTC"),
        (decimal_of(1), Decimal("0.15"), "must be a number with 1 digits behind the point"),
        (decimal_of(1), Decimal("NaN"), "must be a finite number"),
        (array_of(INT8), [1, "x"], r"\[1\]='x': must be int8"),
        (map_of(STRING, INT8), {"a": 300}, r"\['a'\]=300: must be int8"),
        (map_of(STRING, INT8), {1: 3}, r"value=1: must be string"),
        (PERSON, {"id": 1, "name": 2}, r"name=2: must be string"),
        (PERSON, {"id": 1}, r"name=None: must be string, which is required"),
        (PERSON, {"id": 1, "name": "", "nmae": 1}, r"nmae=1: struct Person has no such field"),
        (struct_of(who=PERSON), {"who": {"id": "x"}}, r": who\.id='x': must be int64"),
        (struct_of(l=array_of(PERSON)), {"l": [{"id": 1, "name": 0}]}, r": l\[0\]\.name=0: must"),
    ],
)
def test_what_does_not_fit_is_named(schema, value, text):
    """An error says which field, which value and which rule."""
    with pytest.raises(DataError, match=text):
        schema.validate(value)


def test_a_long_value_is_not_shown_whole():
    """A megabyte of text does not fill the log."""
    with pytest.raises(DataError) as caught:
        INT8.validate("x" * 1_000_000)

    assert len(str(caught.value)) < 200


def test_a_default_must_fit():
    """A schema with a wrong default is refused when it is made."""
    with pytest.raises(DataError, match="default='x': must be int8"):
        INT8.replace(default="x")


def test_collections_need_schemas_of_their_items():
    """An array of nothing in particular could hold anything."""
    with pytest.raises(DataError, match="must have the schema of its values"):
        Schema(SchemaType.ARRAY)
    with pytest.raises(DataError, match="must have the schema of its keys"):
        Schema(SchemaType.MAP, value_schema=INT8)


def test_a_field_stands_once():
    """Two fields of one name could not be told apart."""
    with pytest.raises(DataError, match="field a must stand once"):
        Schema(SchemaType.STRUCT, fields=struct_of(a=INT8).fields * 2)


def test_a_struct_is_filled_with_defaults():
    """Absent fields have their default; unknown ones are refused."""
    schema = struct_of("S", a=INT8.replace(default=4), b=STRING.as_optional())

    assert schema.struct() == {"a": 4, "b": None}
    assert schema.struct(a=None) == {"a": None, "b": None}
    with pytest.raises(DataError, match="has no field c"):
        schema.struct(c=1)


def test_schemas_compare_by_all_that_they_say():
    """Equal schemas hash alike; any difference makes them unequal."""
    same = struct_of("Person", id=INT64, name=STRING, age=INT8.as_optional())
    variants = [
        PERSON.replace(version=2),
        PERSON.replace(doc="d"),
        PERSON.replace(parameters={"a": "b"}),
        PERSON.as_optional(),
        struct_of("Person", id=INT64),
        INT8.replace(default=1),
        INT8,
    ]

    assert same == PERSON
    assert hash(same) == hash(PERSON)
    assert len({PERSON, *variants}) == 1 + len(variants)


@pytest.mark.parametrize(
    ("schema", "value", "base"),
    [
        (decimal_of(2), Decimal("1.56"), b"\x00\x9c"),
        (decimal_of(2), Decimal("-1.56"), b"\xff\x64"),
        (decimal_of(0), Decimal("-128"), b"\x80"),
        (decimal_of(0), Decimal(128), b"\x00\x80"),
        (decimal_of(3), Decimal(0).scaleb(-3), b"\x00"),
        (DATE, date(1970, 1, 2), 1),
        (DATE, date(1969, 12, 31), -1),
        (TIME, time(0, 0, 1, 2000), 1002),
        (TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        (TIMESTAMP, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), -1),
    ],
)
def test_logical_values_have_a_base(schema, value, base):
    """Both ways, as Kafka's classes have it."""
    assert to_base(schema, value) == base
    assert from_base(schema, base) == value


def test_what_is_finer_than_a_millisecond_is_cut_off():
    """Microseconds are cut off, and a timestamp without a zone is UTC."""
    east = timezone(timedelta(hours=2))

    assert to_base(TIME, time(0, 0, 0, 1999)) == 1
    assert to_base(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 0, 1999)) == 1
    assert to_base(TIMESTAMP, datetime(1970, 1, 1, 2, tzinfo=east)) == 0


@pytest.mark.parametrize(
    ("schema", "base", "text"),
    [
        (DATE, 2**31 - 1, "value=2147483647: must be in the years 1 to 9999"),
        (DATE, -(2**31), "must be in the years 1 to 9999"),
        (TIMESTAMP, 2**63 - 1, "must be in the years 1 to 9999"),
        (TIME, 86_400_000, "must be from 0 to 86399999"),
        (TIME, -1, "must be from 0 to 86399999"),
        (decimal_of(1).replace(parameters={}), b"\x01", "parameter scale=None must be a number"),
    ],
)
def test_a_base_without_a_logical_value_is_refused(schema, base, text):
    """Java's dates reach further than Python's."""
    with pytest.raises(DataError, match=text):
        from_base(schema, base)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (True, BOOLEAN),
        (7, INT64),
        (1.5, FLOAT64),
        ("x", STRING),
        (b"x", BYTES),
        (date(2020, 1, 1), DATE),
        (datetime(2020, 1, 1), TIMESTAMP),
        (Decimal("1.50"), decimal_of(2)),
        ([1, None], array_of(INT64.as_optional())),
        ({"a": ["b"]}, map_of(STRING, array_of(STRING))),
        ([], None),
        ([1, "a"], None),
        ({"a": 1, "b": "c"}, None),
        (None, None),
        (object(), None),
    ],
)
def test_a_schema_is_inferred_where_there_is_one(value, schema):
    """As Kafka's Values.inferSchema: mixed and empty collections have none."""
    assert infer_schema(value) == schema


def test_a_dataclass_is_a_struct():
    """Plug-ins describe their values by a class."""

    @dataclass
    class Reading:
        sensor: str
        at: datetime
        values: list[float]
        labels: dict[str, str]
        note: str | None = None

    assert schema_for(Reading) == struct_of(
        "Reading",
        sensor=STRING,
        at=TIMESTAMP,
        values=array_of(FLOAT64),
        labels=map_of(STRING, STRING),
        note=STRING.as_optional(),
    )
    with pytest.raises(DataError, match="type complex: must be one with a schema"):
        schema_for(complex)


def test_headers_may_be_given_as_pairs():
    """The last of a name is the one that counts."""
    record = SourceRecord(topic="t", headers=(("a", 1), Header("a", 2, INT8), ("b", None)))

    assert record.headers == (Header("a", 1), Header("a", 2, INT8), Header("b", None))
    assert record.header("a") == Header("a", 2, INT8)
    assert record.header("c") is None


def test_a_renamed_record_keeps_its_place():
    """Offsets are committed where the record stands in Kafka (KIP-793)."""
    record = SinkRecord(topic="t", partition=3, offset=5, value="v")
    renamed = record.replace(topic="u", partition=0)

    assert (renamed.topic, renamed.partition, renamed.value) == ("u", 0, "v")
    assert (renamed.original_topic, renamed.original_partition, renamed.offset) == ("t", 3, 5)
    assert record.topic == "t"
