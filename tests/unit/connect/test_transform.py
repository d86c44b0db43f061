"""Predicates, paths to fields, and what all transforms have in common."""

from __future__ import annotations

import pytest

from ottla.connect.data import STRING, DataError, Header, SourceRecord, struct_of
from ottla.connect.field_path import path_of
from ottla.connect.predicates import Filter, HasHeaderKey, RecordIsTombstone, TopicNameMatches
from ottla.connect.transforms.fields import HoistFieldValue, InsertFieldKey, InsertFieldValue
from ottla.errors import ConfigError

RECORD = SourceRecord(topic="orders-7", value="v", headers=(Header("h", 1),))


@pytest.mark.parametrize(
    ("predicate", "settings", "holds"),
    [
        (TopicNameMatches, {"pattern": r"orders-\d"}, True),
        (TopicNameMatches, {"pattern": "orders"}, False),
        (TopicNameMatches, {"pattern": "(?<kind>[a-z]+)-7"}, True),
        (HasHeaderKey, {"name": "h"}, True),
        (HasHeaderKey, {"name": "g"}, False),
        (RecordIsTombstone, {}, False),
    ],
)
def test_predicates(predicate, settings, holds):
    """A topic's whole name must match."""
    assert predicate.of(settings).test(RECORD) is holds


def test_tombstones_and_filter():
    """A record without a value; and the transform that drops what it gets."""
    assert RecordIsTombstone.of({}).test(RECORD.replace(value=None))
    assert Filter.of({}).apply(RECORD) is None


@pytest.mark.parametrize(
    ("predicate", "settings", "text"),
    [
        (TopicNameMatches, {"pattern": "("}, r"pattern=\(: must be a regular expression"),
        (TopicNameMatches, {"pattern": ""}, "must be a regular expression that is not empty"),
        (TopicNameMatches, {}, "pattern: must be set"),
        (HasHeaderKey, {"name": ""}, "name=: must not be empty"),
    ],
)
def test_settings_are_checked(predicate, settings, text):
    """Before a record is seen."""
    with pytest.raises(ConfigError, match=text):
        predicate.of(settings)


@pytest.mark.parametrize(
    ("text", "syntax", "path"),
    [
        ("a.b", "V1", ("a.b",)),
        ("a.b", "V2", ("a", "b")),
        ("a", "v2", ("a",)),
        ("`a.b`.c", "V2", ("a.b", "c")),
        ("a.`b.c`", "V2", ("a", "b.c")),
        ("a.`b`c`", "V2", ("a", "b`c")),
        ("`a\\`.b`.c", "V2", ("a`.b", "c")),
        ("a.", "V2", ("a", "")),
    ],
)
def test_paths_to_fields(text, syntax, path):
    """KIP-821: dots lead inwards, backticks hold a name together."""
    assert path_of(text, syntax) == path


def test_a_backtick_needs_its_other():
    """The error says where the name begins."""
    with pytest.raises(ConfigError, match="begins at character 2"):
        path_of("a.`b.c", "V2")


def test_each_has_a_class_for_keys_and_one_for_values():
    """With Kafka's names, and their own."""
    package = "org.apache.kafka.connect.transforms"

    assert InsertFieldKey.kafka_class == f"{package}.InsertField$Key"
    assert InsertFieldValue.kafka_class == f"{package}.InsertField$Value"
    assert InsertFieldKey.__name__ == "InsertFieldKey"


def test_what_has_no_fields_is_refused():
    """The error names the part, the value and the transform."""
    insert = InsertFieldValue.of({"topic.field": "t"})

    with pytest.raises(DataError, match="value='v' with no schema: must be a struct or a dict for"):
        insert.apply(RECORD)
    with pytest.raises(DataError, match="with schema string"):
        insert.apply(RECORD.replace(value_schema=STRING))


def test_schemas_are_made_once():
    """Records of one schema share what is made of it; the oldest of many is forgotten."""
    hoist = HoistFieldValue.of({"field": "f"})
    schemas = [struct_of(f"S{number}") for number in range(17)]
    made = [hoist.apply(RECORD.replace(value_schema=schema)).value_schema for schema in schemas]
    again = [hoist.apply(RECORD.replace(value_schema=schema)).value_schema for schema in schemas]

    assert made == again
    assert again[-1] is hoist.apply(RECORD.replace(value_schema=schemas[-1])).value_schema
