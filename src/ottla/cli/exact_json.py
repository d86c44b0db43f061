"""JSON that is read and written as it was meant: nothing of it may be lost on the way."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any


def exact_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError for what `json.dumps` would not write as it was.

    That are NaN and Infinity, which JSON does not have, names that an object has twice, of which
    Python keeps one, and numbers with more digits than a double has.
    """
    return json.loads(
        text, parse_float=_exact_float, parse_constant=_refuse, object_pairs_hook=_object
    )


def json_line(
    value: Any, *, indent: int | None = None, is_short: bool = False, is_ascii: bool = False
) -> str:
    """A value as JSON that stays JSON where `Terminal.print` escapes what acts on a terminal.

    A number that JSON does not have is null. With `is_short` there are no blanks.
    """
    separators = (",", ":") if is_short else None
    text = json.dumps(
        _finite(value), ensure_ascii=is_ascii, indent=indent, separators=separators, default=str
    )
    return text.replace("\x7f", "\\u007f")  # the only one of them that JSON does not escape so


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _exact_float(text: str) -> float:
    number = float(text)
    if Decimal(repr(number)) != Decimal(text):
        raise ValueError(f"the number {text} would become {number!r}")
    return number


def _refuse(name: str) -> Any:
    raise ValueError(f"there is no {name} in JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twice!r} twice")
    return found
