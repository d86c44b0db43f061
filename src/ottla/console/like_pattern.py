"""Patterns of SQL's `like`: `%` stands for any letters, `_` for one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def like(pattern: str) -> Callable[[str], bool]:
    """Whether a text matches.

    The pieces between `%` are looked for one after the other, so that no text takes long; a run of
    `_` is one step, however long it is.
    """
    first, *rest = (piece_of(each) for each in pattern.split("%"))
    if not rest:
        return lambda text: first.fullmatch(text) is not None
    *middle, last = rest
    ends_after = len(pattern.rpartition("%")[2])

    def matches(text: str) -> bool:
        found = first.match(text)
        for each in middle:
            found = found and each.search(text, found.end())
        end = len(text) - ends_after
        return found is not None and end >= found.end() and last.fullmatch(text, end) is not None

    return matches


def piece_of(text: str) -> re.Pattern[str]:
    """The expression of a piece without `%`."""
    escaped = re.escape(text)
    return re.compile(re.sub("_+", lambda run: f".{{{len(run[0])}}}", escaped), re.DOTALL)


def steps_of(pattern: str) -> int:
    """How many steps the search for a pattern may take at each letter of a text.

    A piece of letters alone is found in one go; one with `_` is tried wherever it may begin.
    """
    middle = pattern.split("%")[1:-1]
    return sum(len(re.sub("_+", "_", each)) for each in middle if "_" in each)
