"""The parts of a Connect worker's answers, each with the kind that Connect's REST gives it.

Some proxies, and servers that are no worker, answer other JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P")

KINDS: Final = {dict: "an object", list: "a list", int: "a number", str: "a text"}
DEEPEST: Final = 32
"""How deep the offsets of a connector may be nested: a page is made of them by recursion."""


class OddAnswerError(ValueError):
    """A part of an answer is of a kind that Connect does not give it."""


def kind_of(value: Any) -> str:
    """The kind of a JSON value, as a sentence names it."""
    return KINDS.get(type(value), "null" if value is None else "a value of another kind")


def part(found: Mapping[str, Any], name: str, kind: type[P]) -> P:
    """A part of an object; an empty one where it is not there, OddAnswerError for another kind."""
    value = found.get(name, kind())
    if not isinstance(value, kind):
        raise OddAnswerError(f"{name} is {kind_of(value)}, not {KINDS[kind]}")
    return value


def text_of(found: Mapping[str, Any], name: str) -> str:
    """A part as a text; empty for null, OddAnswerError for an object or a list."""
    value = found.get(name)
    if isinstance(value, dict | list):
        raise OddAnswerError(f"{name} is {kind_of(value)}, not a text")
    return "" if value is None else str(value)


def texts_of(found: Mapping[str, Any], name: str) -> list[str]:
    """A list of texts."""
    return [part({name: each}, name, str) for each in part(found, name, list)]


def offsets_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The offsets of a connector: the partition and the offset of each, which are any JSON."""
    offsets = [part({"offset": each}, "offset", dict) for each in part(found, "offsets", list)]
    if not is_shallow(offsets, DEEPEST):
        raise OddAnswerError(f"offsets are nested deeper than {DEEPEST} levels")
    return [{name: each.get(name) for name in ("partition", "offset")} for each in offsets]


def is_shallow(value: Any, deepest: int) -> bool:
    """Whether a JSON value is nested no deeper."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return deepest > 0 and all(is_shallow(each, deepest - 1) for each in inner)
