"""Values in the JSON of records, with numbers of any size exactly, and a quick look for numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Any, Final

from ottla.console.decoding import RawNumber, parse_exactly
from ottla.structs import NamedTuple

DECODER: Any = json.JSONDecoder(parse_float=Decimal, parse_constant=RawNumber)
SCAN: Final[Callable[[str, int], tuple[Any, int]]] = DECODER.scan_once
ESCAPE: Final = b"\\u"
"""Begins a letter of a name or a text that JSON escapes."""


def number_of(text: str) -> int | Decimal | None:
    """A number of any size, exactly; None for NaN, infinity, and what Python does not read."""
    try:
        return int(text)
    except ValueError:
        return finite(text)


def finite(text: str) -> Decimal | None:
    """The decimal that a text stands for; None for other text, NaN and infinity."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


class NumberNeedle(NamedTuple):
    """A quick test of bytes for a field of JSON whose number is in a range.

    It reads no JSON: where the field's name stands before numbers alone, none of them within the
    range, no value of that name is, at any depth. A name with an escape (`\\u0061`), and a value
    that is no number, are left to the exact test. Numbers are compared as floats; rounding keeps
    their order, so that none is passed over which differs by less than a float tells.
    """

    pattern: re.Pattern[bytes]
    low: float
    high: float

    @classmethod
    def of(cls, name: str, low: int | Decimal | None, high: int | Decimal | None) -> NumberNeedle:
        """The needle for a name of ASCII letters, and numbers between two bounds, or above one."""
        pattern = re.compile(rb'"%b"\s*:\s*(-?\d[\d.eE+-]*)?' % re.escape(name.encode()))
        return cls(
            pattern,
            -inf if low is None else float(str(low)),
            inf if high is None else float(str(high)),
        )

    def may_be_in(self, data: bytes) -> bool:
        """Whether the field may have such a number; False where the exact test is false."""
        found = self.pattern.findall(data)
        if not found:
            return ESCAPE in data
        try:
            if len(found) == 1:
                return self.low <= float(found[0]) <= self.high or ESCAPE in data
            numbers = [*map(float, found)]
        except ValueError:  # something else than a number
            return True
        return (max(numbers) >= self.low and min(numbers) <= self.high) or ESCAPE in data


def parsed(data: bytes) -> Any:
    """JSON with exact numbers, read as fast as Python can; ValueError for other bytes."""
    text = data.decode()
    try:
        value, end = SCAN(text, 0)
    except (StopIteration, ValueError, InvalidOperation):  # blanks, or a number of extreme size
        return parse_exactly(text)
    if end < len(text) and text[end:].strip():
        raise ValueError("there is more behind the JSON")
    return value


class LastParsed:
    """Keeps the JSON that was read last, as a condition may have many names of it."""

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._value: Any = None

    def value_of(self, data: bytes | None) -> Any:
        """The JSON of some bytes, numbers exact; None for other bytes."""
        if data is not self._data:
            try:
                self._value = None if data is None else parsed(data)
            except (ValueError, RecursionError):
                self._value = None
            self._data = data
        return self._value


def at_path(found: Any, path: list[str]) -> Any:
    """The value at a path of some JSON; None where there is none."""
    for name in path:
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return _exact(found)


def _exact(value: Any) -> Any:
    if isinstance(value, RawNumber):
        number = number_of(value)
        return str(value) if number is None else number
    return value
