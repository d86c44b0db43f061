"""Transforms that add, drop, rename and nest fields, with a schema and without."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ottla.connect.data import (
    INT8,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    DataError,
    SinkRecord,
    SourceRecord,
    array_of,
    map_of,
    struct_of,
)
from ottla.connect.transforms.fields import (
    ExtractFieldKey,
    ExtractFieldValue,
    FlattenValue,
    HoistFieldKey,
    HoistFieldValue,
    InsertFieldValue,
    ReplaceFieldValue,
    ValueToKey,
)
from ottla.errors import ConfigError

SCHEMA = struct_of("S", a=INT8, b=STRING.as_optional("d")).replace(version=3, doc="x")
VALUE = {"a": 1, "b": None}
PLAIN = SinkRecord(topic="t", partition=2, offset=7, timestamp_ms=1500, value=VALUE)
TYPED = PLAIN.replace(value_schema=SCHEMA)
ALL = {
    "topic.field": "topic!",
    "partition.field": "part?",
    "offset.field": "off",
    "timestamp.field": "at",
    "static.field": "who",
    "static.value": "me",
}


def test_insert_field():
    """Topic, partition, offset, timestamp and a constant; a default is filled in."""
    insert = InsertFieldValue.of(ALL)
    added = {"topic": "t", "part": 2, "off": 7, "at": 1500, "who": "me"}

    assert insert.apply(PLAIN).value == VALUE | added
    made = insert.apply(TYPED)
    assert made.value == {"a": 1, "b": "d"} | added | {
        "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    }
    assert made.value_schema == SCHEMA.replace(
        fields=(
            *SCHEMA.fields,
            ("topic", STRING),
            ("part", INT32.as_optional()),
            ("off", INT64.as_optional()),
            ("at", TIMESTAMP.as_optional()),
            ("who", STRING.as_optional()),
        )
    )
    made.value_schema.validate(made.value)
    assert PLAIN.value == {"a": 1, "b": None}


def test_insert_field_leaves_out_what_there_is_not():
    """A source's record may have neither partition nor timestamp; a tombstone stays one."""
    source = SourceRecord(topic="t", value={})
    insert = InsertFieldValue.of({"partition.field": "p", "timestamp.field": "at"})

    assert insert.apply(source).value == {}
    assert insert.apply(source.replace(value=None)).value is None
    with pytest.raises(DataError, match="records of a source have no offset"):
        InsertFieldValue.of({"offset.field": "o"}).apply(source)


def test_insert_field_must_not_double_a_field():
    """A field stands once in a struct."""
    with pytest.raises(DataError, match="field a must stand once"):
        InsertFieldValue.of({"topic.field": "a"}).apply(TYPED)


@pytest.mark.parametrize(
    ("settings", "value", "names"),
    [
        ({"exclude": "a"}, {"b": "d"}, ["b"]),
        ({"include": "a"}, {"a": 1}, ["a"]),
        ({"include": "a,b", "exclude": "b"}, {"a": 1}, ["a"]),
        ({"renames": "a:c"}, {"c": 1, "b": "d"}, ["c", "b"]),
        ({"renames": "a:b,b:a"}, {"b": 1, "a": "d"}, ["b", "a"]),
        ({"exclude": "a", "renames": "a:b"}, {"b": "d"}, ["b"]),
        ({"blacklist": "a"}, {"b": "d"}, ["b"]),
        ({"whitelist": "a"}, {"a": 1}, ["a"]),
    ],
)
def test_replace_field(settings, value, names):
    """Drops, keeps and renames; the older names of the settings work too."""
    replace = ReplaceFieldValue.of(settings)
    made = replace.apply(TYPED)

    assert made.value == value
    assert [field.name for field in made.value_schema.fields] == names
    assert made.value_schema.name == "S"
    without = {name: None if item == "d" else item for name, item in value.items()}
    assert replace.apply(PLAIN).value == without
    assert replace.apply(PLAIN.replace(value=None)).value is None


def test_replace_null_with_default_false_keeps_nulls():
    """Of all transforms that read fields."""
    settings = {"exclude": "a", "replace.null.with.default": "false"}

    assert ReplaceFieldValue.of(settings).apply(TYPED).value == {"b": None}


def test_value_to_key():
    """The fields that are named, in this order."""
    to_key = ValueToKey.of({"fields": "b,a"})

    assert to_key.apply(PLAIN).key == {"b": None, "a": 1}
    made = to_key.apply(TYPED)
    assert (made.key, made.value) == ({"b": "d", "a": 1}, VALUE)
    assert made.key_schema == struct_of(b=STRING.as_optional("d"), a=INT8)
    assert ValueToKey.of({"fields": "c"}).apply(PLAIN).key == {"c": None}
    with pytest.raises(DataError, match="has no field c for the key"):
        ValueToKey.of({"fields": "c"}).apply(TYPED)


def test_hoist_and_extract_field():
    """One is the other's way back."""
    keyed = PLAIN.replace(key=5, key_schema=INT8)
    hoisted = HoistFieldKey.of({"field": "id"}).apply(keyed)

    assert (hoisted.key, hoisted.key_schema) == ({"id": 5}, struct_of(id=INT8))
    assert ExtractFieldKey.of({"field": "id"}).apply(hoisted) == keyed
    assert HoistFieldValue.of({"field": "v"}).apply(PLAIN.replace(value=None)).value == {"v": None}


def test_extract_field():
    """With its default; null stays null; a missing field is an error if there is a schema."""
    extract = ExtractFieldValue.of({"field": "b"})

    assert extract.apply(PLAIN).value is None
    assert extract.apply(TYPED).value == "d"
    assert extract.apply(TYPED).value_schema == STRING.as_optional("d")
    tombstone = extract.apply(TYPED.replace(value=None))
    assert (tombstone.value, tombstone.value_schema) == (None, STRING.as_optional("d"))
    assert ExtractFieldValue.of({"field": "c"}).apply(PLAIN).value is None
    with pytest.raises(DataError, match="field=c: struct S has no such field"):
        ExtractFieldValue.of({"field": "c"}).apply(TYPED)


def test_extract_field_further_in():
    """field.syntax.version=V2 (KIP-821)."""
    inner = struct_of(**{"b.c": struct_of(d=INT8).as_optional()})
    extract = ExtractFieldValue.of({"field": "a.`b.c`.d", "field.syntax.version": "V2"})
    value = {"a": {"b.c": {"d": 4}}}
    typed = PLAIN.replace(value=value, value_schema=struct_of(a=inner))

    assert extract.apply(PLAIN.replace(value=value)).value == 4
    assert extract.apply(typed).value == 4
    assert extract.apply(typed.replace(value={"a": {"b.c": None}})).value is None
    with pytest.raises(DataError, match="value=3: must be a dict to have"):
        extract.apply(PLAIN.replace(value={"a": 3}))


def test_flatten():
    """Names are joined; what is below an optional struct is optional."""
    schema = struct_of(
        "S",
        a=INT8,
        s=struct_of(b=STRING.as_optional("d"), c=struct_of(d=INT8).as_optional()),
        l=array_of(struct_of(x=INT8)),
    )
    value = {"a": 1, "s": {"b": None, "c": {"d": 2}}, "l": [{"x": 1}]}
    flatten = FlattenValue.of({"delimiter": "_"})

    made = flatten.apply(PLAIN.replace(value=value, value_schema=schema))
    assert made.value == {"a": 1, "s_b": "d", "s_c_d": 2, "l": [{"x": 1}]}
    assert made.value_schema == struct_of(
        "S",
        a=INT8,
        s_b=STRING.as_optional("d"),
        s_c_d=INT8.as_optional(),
        l=array_of(struct_of(x=INT8)),
    )
    assert flatten.apply(PLAIN.replace(value=value)).value == made.value | {"s_b": None}
    empty = flatten.apply(
        PLAIN.replace(value={"a": 1, "s": {"b": "", "c": None}, "l": []}, value_schema=schema)
    )
    assert empty.value == {"a": 1, "s_b": "", "s_c_d": None, "l": []}
    assert flatten.apply(PLAIN.replace(value=None)).value is None


@pytest.mark.parametrize(
    ("transform", "value"),
    [
        (FlattenValue.of({}), {"a.b": 1, "a": {"b": 2}}),
        (FlattenValue.of({"delimiter": "_"}), {"a": {"b_c": 1, "b": {"c": 2}}}),
        (ReplaceFieldValue.of({"renames": "a:b"}), {"b": 1, "a": 2}),
        (ReplaceFieldValue.of({"renames": "a:c,b:c"}), {"b": 1, "a": 2}),
    ],
)
def test_fields_that_get_one_name_are_refused(transform, value):
    """One of them was lost without a word where the value has no schema."""
    with pytest.raises(DataError, match="must stand once"):
        transform.apply(SourceRecord(topic="t", value=value))


def test_flatten_takes_defaults_of_the_struct_around():
    """A field has the value that its place has in the default of its struct."""
    inner = struct_of(b=INT8).replace(default={"b": 9})
    made = FlattenValue.of({}).apply(PLAIN.replace(value={}, value_schema=struct_of(s=inner)))

    assert made.value == {"s.b": 9}
    assert made.value_schema == struct_of(**{"s.b": INT8.replace(default=9)})


def test_flatten_refuses_maps_in_structs():
    """Their keys are not known before the record is."""
    schema = struct_of(m=map_of(STRING, INT8))
    with pytest.raises(DataError, match="m: a map in a struct must not be flattened"):
        FlattenValue.of({}).apply(PLAIN.replace(value={"m": {}}, value_schema=schema))


@pytest.mark.parametrize(
    ("transform", "settings", "text"),
    [
        (InsertFieldValue, {}, "one of topic.field, .* must be set"),
        (InsertFieldValue, {"static.field": "a"}, "static.value=None: must be set where"),
        (ReplaceFieldValue, {"renames": "a"}, "renames=a: must be pairs of old:new"),
        (ValueToKey, {"fields": "a,a"}, "fields=a,a: must have at least one item, and none twice"),
        (HoistFieldValue, {}, "field: must be set"),
        (
            ExtractFieldValue,
            {"field": "a", "field.syntax.version": "V3"},
            "field.syntax.version=V3: must be V1 or V2",
        ),
    ],
)
def test_settings_are_checked(transform, settings, text):
    """Before a record is seen; the error names key, value and rule."""
    with pytest.raises(ConfigError, match=text):
        transform.of(settings)
