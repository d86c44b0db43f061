"""Rules of values: what holds, and how it is said."""

from __future__ import annotations

import pytest

from ottla.config.rule import (
    any_of,
    at_least,
    between,
    each_one_of,
    name_in_requests,
    not_empty,
    one_of,
)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (at_least(2), 2, 1),
        (between(1, 3), 3, 4),
        (one_of("a", "b"), "b", "c"),
        (not_empty(), "a", ""),
        (each_one_of("a", "b"), ("b", "a"), ("a", "c")),
        (each_one_of("a", "b"), ("a",), ()),
        (each_one_of("a", "b"), ("a",), ("a", "a")),
        (name_in_requests(), "\u00e9" * 16_383, "\u00e9" * 16_384),
        (name_in_requests(), "", "a\udcffb"),
        (any_of(between(1, 9), one_of("x")), 9, 10),
    ],
)
def test_rule_holds_for_the_good_value_only(rule, good, bad):
    """Both sides of each limit."""
    assert rule.holds(good)
    assert not rule.holds(bad)


def test_rule_says_what_it_wants():
    """The text completes "the value must"."""
    assert any_of(at_least(2), one_of("x", "y")).text == "be at least 2, or be one of x, y"
