"""Rules for places in records that are never shown."""

from __future__ import annotations

import pytest

from ottla.console.masks import HIDDEN, mask_of, masked, masks_of
from ottla.errors import ConfigError


def test_rule_is_for_topics_and_a_place():
    """The pattern may have colons itself."""
    rules = [mask_of(r"orders\..*:value.card.number"), mask_of("a:b:key")]

    assert [each.path for each in masks_of(rules, "orders.eu")] == [("card", "number")]
    assert [each.part for each in masks_of(rules, "a:b")] == ["key"]
    assert masks_of(rules, "orders") == []


@pytest.mark.parametrize("text", ["orders", "orders:", "orders:body", "(:value", "a:value."])
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
