"""Regular expressions of settings, which people write for Java.

Both languages read nearly all of them alike. Named groups are written otherwise, and so are
references to a group in a replacement: `$1`, `${name}`, and a backslash before a literal character.
It stands alone as principals, topics and transforms are named by such rules, in rooms that share
no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

_NAMED_GROUP: Final = r"\(\?<(?=[A-Za-z])"
_REPLACEMENT_PART: Final = r"(?s)\\(?P<plain>.)|\$(?P<number>\d+)|\$\{(?P<name>\w+)\}"


def java_pattern(text: str) -> re.Pattern[str]:
    """The pattern that Java would read from the text; re.error for syntax that only Java has."""
    return re.compile(re.sub(_NAMED_GROUP, "(?P<", text))


def is_java_pattern(text: str) -> bool:
    """Whether both languages read it."""
    try:
        java_pattern(text)
    except re.error:
        return False
    return True


def java_replacement(replacement: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """The text to put in the place of a match; ValueError for a name of no group."""
    parts = list(_replacement_parts(replacement, pattern))

    def expand(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part[0]] or "" for part in parts)

    return expand


def _replacement_parts(
    replacement: str, pattern: re.Pattern[str]
) -> Iterator[str | tuple[int | str]]:
    """Text, and in tuples the groups that stand for text."""
    end = 0
    for match in re.finditer(_REPLACEMENT_PART, replacement):
        yield replacement[end : match.start()]
        end = match.end()
        if match["plain"] is not None:
            yield match["plain"]
        elif match["number"] is not None:
            yield from _numbered_group(match["number"], pattern.groups)
        elif match["name"] in pattern.groupindex:
            yield (match["name"],)
        else:
            raise ValueError(f"the regex {pattern.pattern!r} has no group {match['name']!r}")
    yield replacement[end:]


def _numbered_group(digits: str, count: int) -> Iterator[str | tuple[int | str]]:
    """`$12` is group 12, or group 1 and a 2 where there are fewer; text where there is neither."""
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= count:
            yield (int(digits[:length]),)
            yield digits[length:]
            return
    yield f"${digits}"
