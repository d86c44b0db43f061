"""Rules for places in records that are never shown."""

from __future__ import annotations

import pytest

from ottla.console.masks import HIDDEN, mask_of, mask_text, masked, masks_of
from ottla.errors import ConfigError


def test_rule_is_for_topics_and_a_place():
    """The pattern may have colons itself."""
    rules = [mask_of(r"orders\..*:value.card.number"), mask_of("a:b:key")]

    assert [each.path for each in masks_of(rules, "orders.eu")] == [("card", "number")]
    assert [each.part for each in masks_of(rules, "a:b")] == ["key"]
    assert masks_of(rules, "orders") == []


@pytest.mark.parametrize(
    "text", ["orders", "orders:", "orders:body", "(:value", "a:value.", "a:headers."]
)
def test_rule_that_is_none_is_refused(text):
    """With the rule's form."""
    with pytest.raises(ConfigError, match="--mask"):
        mask_of(text)


def test_place_is_hidden_in_lists_too():
    """Fields that are not there are no error."""
    value = {"cards": [{"number": 1, "kind": "a"}, {"kind": "b"}], "id": 2}

    assert masked(value, ("cards", "number")) == {
        "cards": [{"number": HIDDEN, "kind": "a"}, {"kind": "b"}],
        "id": 2,
    }
    assert masked(value, ("missing", "number")) == value
    assert masked(value, ()) == HIDDEN


def test_place_behind_no_object_is_hidden_whole():
    """It may be JSON within a text; names of fields may have dots."""
    assert masked({"cards": '{"number": 1}', "id": 2}, ("cards", "number")) == {
        "cards": HIDDEN,
        "id": 2,
    }
    assert masked("text", ("cards",)) == HIDDEN
    assert masked({"a.b": 1, "a": {"b": 2}}, ("a", "b")) == {"a.b": HIDDEN, "a": {"b": HIDDEN}}


def test_header_has_one_name():
    """Of which dots are a part; the text of a rule reads back as the rule."""
    rule = mask_of("a:headers.__connect.errors.topic")

    assert rule.path == ("__connect.errors.topic",)
    assert mask_of(mask_text(rule)) == rule
