"""Fields of records that are never shown: `orders.*:value.card` hides `card` in JSON values.

A path leads through objects and lists. Where it meets anything else before its end, such as a text
that may be JSON itself, there is no field that could be hidden alone: all of that is hidden.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.structs import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HIDDEN: Final = "***"
HIDDEN_QUOTE: Final = (
    "Hidden, as it may quote a record: this console hides records, or parts of them."
)
PARTS: Final = ("key", "value")


class Mask(Value, frozen=True):
    """A rule: topics by a pattern, and a place in their records."""

    topics: re.Pattern[str]
    part: str
    """`key`, `value` or `headers`."""
    path: tuple[str, ...]
    """Names of fields within its JSON, or the one name of a header; empty for all of it."""


def mask_of(text: str) -> Mask:
    """The rule of `PATTERN:value.field`, `PATTERN:key` or `PATTERN:headers.name`."""
    pattern, colon, place = text.rpartition(":")
    part, dot, rest = place.partition(".")
    path = [rest] if part == "headers" and dot else rest.split(".") if dot else []
    if not colon or part not in (*PARTS, "headers") or not all(path):
        raise ConfigError(
            f"--mask {text}: must be PATTERN:PLACE, where PLACE begins with key, value or headers, "
            "as in 'orders.*:value.card'"
        )
    try:
        return Mask(re.compile(pattern), part, tuple(path))
    except re.error as error:
        raise ConfigError(f"--mask {text}: no regular expression: {error}") from None


def mask_text(mask: Mask) -> str:
    """The text of a rule, as `mask_of` reads it."""
    return f"{mask.topics.pattern}:{'.'.join((mask.part, *mask.path))}"


def masks_of(masks: Iterable[Mask], topic: str) -> list[Mask]:
    """The rules for the records of a topic."""
    return [each for each in masks if each.topics.fullmatch(topic)]


def masked(value: Any, path: Sequence[str]) -> Any:
    """A parsed JSON value in which the place is hidden; lists on the way hide it in each item.

    A name of a field may have dots itself: it is then more than one part of the path.
    """
    if not path or not isinstance(value, list | dict):
        return HIDDEN
    if isinstance(value, list):
        return [masked(each, path) for each in value]
    rests = {".".join(path[:count]): path[count:] for count in range(1, len(path) + 1)}
    return {
        name: masked(each, rests[name]) if name in rests else each for name, each in value.items()
    }
