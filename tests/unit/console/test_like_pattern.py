"""Patterns of `like`."""

from __future__ import annotations

import pytest

from ottla.console.conditions import condition_of
from ottla.console.like_pattern import like, steps_of
from ottla.console.refusals import Refused


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a__d%", "abcde", True),
        ("%c_e", "abcde", True),
        ("%b__e%", "abcde", True),
        ("%b__d%", "abcde", False),
        ("___", "abc", True),
        ("__", "abc", False),
        ("%.{2}%", "abc", False),
        ("%_{2}%", "x_{2}", True),
        ("_%_", "a", False),
        ("a%a", "a", False),
        ("%_\n_%", "a\nb", True),
    ],
)
def test_signs_stand_for_letters(pattern, text, matches):
    """Line ends are letters as well; other signs are themselves."""
    assert like(pattern)(text) is matches


def test_steps_are_those_of_pieces_that_are_tried_everywhere():
    """The ends of a pattern are tried at one place."""
    assert steps_of("a_b") == steps_of("a_b%c_d") == steps_of("%letters%") == 0
    assert steps_of("%a___b%") == 3
    assert steps_of("%a_b%____%c%") == 4


def test_run_of_any_length_is_one_step():
    """Such a pattern is answered at once for a megabyte."""
    assert not like("%" + "_" * 1_900 + "b%")("a" * 1_000_000)


def test_patterns_that_would_take_long_are_refused():
    """All of a condition together."""
    part = "value like '%" + "a_" * 20 + "b%'"
    condition_of(part, 0)
    with pytest.raises(Refused, match="at most 60"):
        condition_of(f"{part} and {part}", 0)
