"""The parts of JSON that another server has answered, each with the kind that its interface gives.

Some proxies, and servers of another program at the same address, answer other JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P")

KINDS: Final = {
    dict: "an object",
    list: "a list",
    int: "a number",
    str: "a text",
    bool: "a boolean",
}


class OddAnswerError(ValueError):
    """An answer, or a part of one, is of a kind that its interface does not give it."""


def kind_of(value: Any) -> str:
    """The kind of a JSON value, as a sentence names it."""
    return KINDS.get(type(value), "null" if value is None else "a value of another kind")


def json_object(body: bytes) -> dict[str, Any]:
    """The object of an answer, {} for no bytes; OddAnswerError for anything else."""
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise OddAnswerError("the answer is no JSON") from None
    if not isinstance(found, dict):
        raise OddAnswerError(f"the answer is {kind_of(found)}, not an object")
    return found


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


def is_shallow(value: Any, deepest: int) -> bool:
    """Whether a JSON value is nested no deeper."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return deepest > 0 and all(is_shallow(each, deepest - 1) for each in inner)
