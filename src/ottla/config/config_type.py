"""The types a setting can have, how each is read and written as text, and rules for values.

The numbers are those that DescribeConfigs puts on the wire (KIP-569).
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

from ottla.config.whole_number import number_of
from ottla.errors import ConfigError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class Password:
    """A secret: compares and hashes as its value, never shows it."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class ConfigType(IntEnum):
    """Type of a setting; `parse` accepts text of a properties file, or a value of Python code."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    def parse(self, key: str, value: Any) -> Any:
        """The typed value of `value`; ConfigError names the key, the value and the rule."""
        if self in _BITS:
            return _parse_integer(key, value, _BITS[self])
        return _PARSERS[self](key, value)

    def format(self, value: Any) -> str | None:
        """The value as a properties file would hold it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if self is ConfigType.LIST:
            return ",".join(map(_format_item, value))
        if self is ConfigType.PASSWORD:
            return str(value.value)
        if self is ConfigType.DOUBLE:
            return format_double(value)
        return _format_item(value)


BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD

_OF_ANNOTATION: Final = {
    "bool": BOOLEAN,
    "str": STRING,
    "int": INT,
    "float": DOUBLE,
    "tuple": LIST,
    "Password": PASSWORD,
}

_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}

_DOUBLE: Final = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_WITH_UNIT: Final = r"(\d+) *([A-Za-z]+)"
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""The lengths of time, by the words that people write behind a number."""
_UNITS: Final = UNITS_MS | {
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
"""The length of each unit in the milliseconds or bytes in which settings are written."""


def type_of_annotation(annotation: Any) -> ConfigType:
    """The type of a setting whose attribute is annotated so, be it None or a list of anything."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    found = _OF_ANNOTATION.get(text.removesuffix(" | None").partition("[")[0].rpartition(".")[2])
    if found is None:
        raise TypeError(f"{text}: a setting of this type must give its ConfigType")
    return found


def _format_item(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else str(value)


def format_double(value: float) -> str:
    """The number as Java writes it: 1.0E7 from ten million on, and 5.0E-4 below a thousandth."""
    if value == 0 or 1e-3 <= abs(value) < 1e7 or not math.isfinite(value):
        return str(value)
    from decimal import Decimal

    exact = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, exact.digits))
    exponent = len(digits) - 1 + int(exact.exponent)
    return f"{'-' if exact.sign else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _parse_integer(key: str, value: Any, bits: int) -> int:
    rule = f"{key}={value}: must be a whole number of {bits} bits"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigError(rule)
    number = value if isinstance(value, int) else number_of(value.strip())
    if number is None:
        raise ConfigError(rule + _as_number(value))
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ConfigError(rule)
    return int(number)


def _as_number(text: str | int) -> str:
    """`; 1h is 3600000`, where a number with a unit was written; else nothing."""
    found = re.fullmatch(_WITH_UNIT, str(text).strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    return f"; {text} is {int(found[1]) * unit}" if found and unit else ""


def _parse_boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise ConfigError(f"{key}={value}: must be true or false")
    return bool(text == "true")


def _parse_double(key: str, value: Any) -> float:
    """Of text only what Java reads and `float` too: no `1_0`, no digits of other scripts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and re.fullmatch(_DOUBLE, value.strip())):
        try:
            number = float(value)
        except OverflowError:  # of a whole number that is too large
            number = math.inf
        if math.isfinite(number):
            return number
    raise ConfigError(f"{key}={value}: must be a number")


def _parse_string(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"{key}={value}: must be a text")


def _parse_list(key: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",")) if value.strip() else ()
    if isinstance(value, Iterable) and not isinstance(value, bytes | dict):
        return tuple(value)
    raise ConfigError(f"{key}={value}: must be a list (text with commas, or a sequence)")


def _parse_class(key: str, value: Any) -> Any:
    """An object is taken as it is; a text names it by its import path, as package.module.Name."""
    if not isinstance(value, str):
        return value
    module, _, name = value.strip().rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise ConfigError(
            f"{key}={value}: must be importable in Python as package.module.Name"
        ) from None


def _parse_password(key: str, value: Any) -> Password:
    return value if isinstance(value, Password) else Password(_parse_string(key, value))


_PARSERS: Final = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_string,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_class,
    ConfigType.PASSWORD: _parse_password,
}
