"""Java properties files, with all the liberties they take."""

from __future__ import annotations

import pytest

from ottla.config.properties import parse_properties
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\r\nc:3\rd 4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n! comment\n\n   \n  a=1", {"a": "1"}),
        ("a=1\\\n   ,2\\\n   ,3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=one\\\n# not a comment", {"a": "one# not a comment"}),
        ("a\\=b\\ c=d=e", {"a=b c": "d=e"}),
        ("a=\\u0041\\t\\n\\x", {"a": "A\t\nx"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1  ", {"a": "1"}),
        ("a = = b", {"a": "= b"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_file_is_read_as_java_reads_it(text, expected):
    """Comments, separators, escapes, continued lines."""
    assert parse_properties(text) == expected


def test_broken_unicode_escape_is_refused():
    """The text of the line is in the error."""
    with pytest.raises(ConfigError, match="hexadecimal"):
        parse_properties("a=\\u12")
