"""Fields of records that are never shown: `orders.*:value.card` hides `card` in JSON values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.structs import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HIDDEN: Final = "***"
PARTS: Final = ("key", "value")


class Mask(Value, frozen=True):
    """A rule: topics by a pattern, and a place in their records."""

    topics: re.Pattern[str]
    part: str
    """`key`, `value` or `headers`."""
    path: tuple[str, ...]
    """Names of fields within its JSON, or the name of a header; empty for all of it."""


def mask_of(text: str) -> Mask:
    """The rule of `PATTERN:value.field`, `PATTERN:key` or `PATTERN:headers.name`."""
    pattern, colon, place = text.rpartition(":")
    part, *path = place.split(".")
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
    """A parsed JSON value in which the place is hidden; lists on the way hide it in each item."""
    if not path:
        return HIDDEN
    if isinstance(value, list):
        return [masked(each, path) for each in value]
    if isinstance(value, dict) and path[0] in value:
        return {
            name: masked(each, path[1:]) if name == path[0] else each
            for name, each in value.items()
        }
    return value
