"""Values as text: how headers are written, how they are read, and Java's text of a number.

Reading guesses the type, as Kafka's Values class does: `true`, `7` (the smallest of int8 to int64),
`1.5`, `2020-02-03`, `04:05:06.789Z`, `2020-02-03T04:05:06.789Z`, `[1,2]`, `{"a":1}`, `null`. What
is none of these is a string. Where Kafka would lose something, Ottla keeps it:

- text that only begins like a number or a list (`12:30`, `[1] or so`) is a string, the whole of it;
- a date must be one (`2020-13-45` is a string), and nothing may follow it;
- a number that a float32 cannot hold is a float64;
- a quoted string is read back as it was written, with its quotes, backslashes and blanks;
- a number whose digits would be more than 200,000 (`1e999999999`) is a string;
- a date before 1970-01-02 is written with its day.
"""

from __future__ import annotations

import math
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.config.config_type import format_double
from ottla.connect.data import (
    BITS,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MS_PER_DAY,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Schema,
    SchemaAndValue,
    SchemaType,
    array_of,
    bounded,
    decimal_of,
    map_of,
    timestamp_to_ms,
)

_NULL: Final = SchemaAndValue(None, None)
_LITERALS: Final = {
    "null": _NULL,
    "true": SchemaAndValue(BOOLEAN, True),
    "false": SchemaAndValue(BOOLEAN, False),
}
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TIMES: Final = (
    (DATE, re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), date.fromisoformat),
    (
        TIME,
        re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII),
        lambda text: time.fromisoformat(text).replace(tzinfo=None),
    ),
    (
        TIMESTAMP,
        re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII),
        datetime.fromisoformat,
    ),
)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\])')
_WORD: Final = re.compile(r'(?:[^\\:,{}\[\]"]|\\.)+', re.DOTALL)
_ENDED: Final = re.compile(r"\s*(?:[,:\]}]|\Z)")
_BLANKS: Final = re.compile(r"\s*")
_NUMERIC: Final = [
    SchemaType.INT8,
    SchemaType.INT16,
    SchemaType.INT32,
    SchemaType.INT64,
    SchemaType.FLOAT32,
    SchemaType.FLOAT64,
]
_FLOAT: Final = struct.Struct(">f")


def float32(value: float) -> float:
    """The nearest number that four bytes hold; OverflowError if there is none."""
    nearest: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return nearest


def java_float(value: float) -> str:
    """The shortest text of a float32: 0.1, where the float64 is 0.10000000149011612."""
    if not math.isfinite(value):
        return java_double(value)
    wanted = _FLOAT.pack(value)
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if _FLOAT.pack(float(text)) == wanted:
            return format_double(float(text))
    return format_double(value)


def java_double(value: float) -> str:
    """The text of Double.toString: 1.0E10, NaN, -Infinity."""
    if math.isfinite(value):
        return format_double(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def to_text(value: Any, schema: Schema | None = None) -> str:
    """The text of a value; DataError for one of a type that has none."""
    return _written(value, schema, embedded=False)


def _written(value: Any, schema: Schema | None, embedded: bool) -> str:
    if isinstance(value, str):
        if not embedded:
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, bytes | bytearray | memoryview):
        text = b64encode(value).decode()
        return f'"{text}"' if embedded else text
    if isinstance(value, list | tuple):
        items = schema.items if schema else None
        return f"[{','.join(_written(item, items, True) for item in value)}]"
    if isinstance(value, dict):
        return _written_map(value, schema)
    return simple_text(value, schema)


def _written_map(value: Mapping[Any, Any], schema: Schema | None) -> str:
    if schema is not None and schema.type is SchemaType.STRUCT:
        parts = [
            (_written(name, STRING, True), _written(value.get(name), field, True))
            for name, field in schema.by_name.items()
        ]
    else:
        keys, values = (schema.keys, schema.items) if schema else (None, None)
        parts = [
            (_written(key, keys, True), _written(item, values, True)) for key, item in value.items()
        ]
    return f"{{{','.join(f'{key}:{item}' for key, item in parts)}}}"


def simple_text(value: Any, schema: Schema | None = None) -> str:
    """The text of what is neither a collection nor text itself: `null`, `true`, `1.0E10`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (schema and schema.type in (FLOAT32.type, FLOAT64.type)):
        is_short = schema is not None and schema.type is SchemaType.FLOAT32
        return java_float(value) if is_short else java_double(float(value))
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, date | time):
        return _written_time(value)
    raise DataError(f"value of {type(value).__name__}: has no form as text")


def _written_time(value: date | time) -> str:
    if isinstance(value, datetime):
        since_1970 = timestamp_to_ms(value)
        if since_1970 >= MS_PER_DAY and since_1970 % MS_PER_DAY == 0:
            return value.date().isoformat()
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, time):
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat()


def from_text(text: str) -> SchemaAndValue:
    """The value that a text stands for; the text itself where it stands for none."""
    reader = _Reader(text)
    try:
        found = reader.value(embedded=False)
    except DataError:
        return SchemaAndValue(STRING, text)
    return found if reader.is_at_end else SchemaAndValue(STRING, text)


class _Reader:
    """Reads one value from a text; DataError where it is not one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._peek() == ""

    def value(self, embedded: bool) -> SchemaAndValue:
        """The value here; in a list or map (`embedded`) strings are quoted."""
        first = self._peek()
        if first == "[":
            return self._array()
        if first == "{":
            return self._map()
        if first == '"' and embedded:
            quoted = self._take(_QUOTED)
            text = _ESCAPED.sub(r"\1", quoted[1:-1])
            return _as_time(text) or SchemaAndValue(STRING, text)
        start = self._at
        word = self._take(_WORD).strip()
        if word in _LITERALS:
            return _LITERALS[word]
        if word[0].isdigit():
            found = self._time(start)
            if found is not None:
                return found
        found = as_number(word)
        if found is None:
            raise DataError(f"{word}: must be a number, a date, true, false or null")
        return found

    def _time(self, start: int) -> SchemaAndValue | None:
        """A date or time that begins at `start`; elsewhere a colon ends a word."""
        for schema, pattern, parse in _TIMES:
            match = pattern.match(self._text, start)
            if match is not None and _ENDED.match(self._text, match.end()):
                self._at = match.end()
                return _parsed(match.group(), schema, parse)
        return None

    def _array(self) -> SchemaAndValue:
        self._at += 1
        found: list[SchemaAndValue] = []
        while self._peek() != "]":
            found.append(self.value(embedded=True))
            if self._peek() == ",":
                self._at += 1
                if self._peek() == "]":
                    raise DataError("must have an item after the comma")
            elif self._peek() != "]":
                raise DataError("must have a comma between items")
        self._at += 1
        items = _common(found)
        if items is None:
            return SchemaAndValue(None, [item.value for item in found])
        widen = _widener(items)
        return SchemaAndValue(array_of(items), [widen(item.value) for item in found])

    def _map(self) -> SchemaAndValue:
        self._at += 1
        keys: list[SchemaAndValue] = []
        values: list[SchemaAndValue] = []
        while self._peek() != "}":
            key = self.value(embedded=True)
            if key.value is None or self._peek() != ":" or isinstance(key.value, list | dict):
                raise DataError("must have a simple key, a colon and a value")
            self._at += 1
            keys.append(key)
            values.append(self.value(embedded=True))
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "}":
                raise DataError("must have a comma between entries")
        self._at += 1
        of_keys, of_values = _common(keys), _common(values)
        if of_keys is None or of_values is None:
            pairs = zip(keys, values, strict=True)
            return SchemaAndValue(None, {key.value: item.value for key, item in pairs})
        wide_key, wide_value = _widener(of_keys), _widener(of_values)
        read = {
            wide_key(key.value): wide_value(item.value)
            for key, item in zip(keys, values, strict=True)
        }
        return SchemaAndValue(map_of(of_keys, of_values), read)

    def _peek(self) -> str:
        """The next character that is not blank; nothing at the end."""
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise DataError(f"{self._text[self._at : self._at + 1]}: no value begins so")
        self._at = match.end()
        return match.group()


def as_number(text: str) -> SchemaAndValue | None:
    """A number in the smallest type that holds it; None if the text is no number."""
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        number = bounded(Decimal(text))
    except (ValueError, InvalidOperation):
        return None
    if number.copy_abs() <= Decimal("1e19") and number == number.to_integral_value():
        whole = int(number)
        for schema in (INT8, INT16, INT32, INT64):
            if whole.bit_length() < BITS[schema.type] or whole == -(1 << BITS[schema.type] - 1):
                return SchemaAndValue(schema, whole)
    nearest, exponent = float(number), number.as_tuple().exponent
    if exponent == 0 or not math.isfinite(nearest):
        scale = -int(exponent)
        return SchemaAndValue(decimal_of(scale), number)
    try:
        is_short = java_float(nearest) == java_double(nearest)
    except OverflowError:
        is_short = False
    return SchemaAndValue(FLOAT32 if is_short else FLOAT64, nearest)


def _as_time(text: str) -> SchemaAndValue | None:
    for schema, pattern, parse in _TIMES:
        if pattern.fullmatch(text):
            return _parsed(text, schema, parse)
    return None


def _parsed(text: str, schema: Schema, parse: Callable[[str], Any]) -> SchemaAndValue | None:
    try:
        return SchemaAndValue(schema, parse(text))
    except ValueError:
        return None  # the 45th of a month: a text that only looks like a date


def _common(values: list[SchemaAndValue]) -> Schema | None:
    """The schema of all, the widest of numbers; optional if some are null. None: there is none."""
    schemas = {each.schema for each in values if each.value is not None}
    is_optional = any(each.value is None for each in values)
    if not schemas:
        return STRING.as_optional()
    if len(schemas) > 1:
        types = {schema.type for schema in schemas if schema and not schema.name}
        if len(types) != len(schemas) or not types <= set(_NUMERIC):
            return None
        common: Schema | None = Schema(max(types, key=_NUMERIC.index))
    else:
        common = schemas.pop()
    return common.as_optional() if common and is_optional else common


def _widener(schema: Schema) -> Callable[[Any], Any]:
    """Makes floats of whole numbers that stand beside floats."""
    if schema.type not in (SchemaType.FLOAT32, SchemaType.FLOAT64):
        return lambda value: value
    return lambda value: None if value is None else float(value)
