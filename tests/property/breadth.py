"""How much of a wide range is tried: a part by `make test`, all by CI (OTTLA_BREADTH=full)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

IS_FULL: Final = os.environ.get("OTTLA_BREADTH") == "full"
PART: Final = 6

Value = TypeVar("Value")


def examples(count: int) -> int:
    """How many examples of a property are tried, where CI tries `count`."""
    return count if IS_FULL else -(-count // PART)


def rounds(values: Mapping[str, Value]) -> dict[str, list[Value]]:
    """The values in turn, in one round; for CI a round for each of them alone.

    A test that does something at each of many places takes the next value of the list there.
    """
    if IS_FULL:
        return {name: [value] for name, value in values.items()}
    return {"in turn": list(values.values())}


def some(values: Iterable[Value]) -> list[Value]:
    """Every sixth of the values, with the first one; for CI all of them."""
    return list(values)[:: 1 if IS_FULL else PART]
