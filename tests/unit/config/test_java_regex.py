"""Regular expressions of settings that were written for Java."""

from __future__ import annotations

import re

import pytest

from ottla.config.java_regex import is_java_pattern, java_pattern, java_replacement


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "made"),
    [
        (r"(\w+)-(\d+)", "$2/$1", "a-7", "7/a"),
        (r"(?<name>\w+)", "<${name}>", "a", "<a>"),
        (r"(a)(b)?", "[$2]", "a", "[]"),
        (r"(a)", "$12", "a", "a2"),
        (r"a", "$1", "a", "$1"),
        (r"a", r"\$0\\", "a", "$0\\"),
        (r"(?<=x)a", "b", "xa", "xb"),
    ],
)
def test_groups_are_named_as_in_java(pattern, replacement, text, made):
    """`$1`, `${name}`, and a backslash before what means itself."""
    compiled = java_pattern(pattern)

    assert compiled.sub(java_replacement(replacement, compiled), text) == made


def test_what_only_java_has_is_refused():
    """Better than a pattern that means something else."""
    assert is_java_pattern(r"a.*")
    assert not is_java_pattern(r"\p{Alnum}+")
    assert not is_java_pattern("(")
    with pytest.raises(ValueError, match="has no group 'b'"):
        java_replacement("${b}", re.compile("a"))
