"""Headers as text: what is guessed, and what is written."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)
from ottla.connect.value_text import from_text, java_double, java_float, to_text

MOMENT = datetime(2020, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("", STRING, ""),
        ("null", None, None),
        (" true ", BOOLEAN, True),
        ("false", BOOLEAN, False),
        ("7", INT8, 7),
        ("-128", INT8, -128),
        ("128", INT16, 128),
        ("+40000", INT32, 40000),
        ("3000000000", INT64, 3_000_000_000),
        ("9223372036854775808", decimal_of(0), Decimal("9223372036854775808")),
        ("1e3", INT16, 1000),
        ("1.0", INT8, 1),
        ("1.5", FLOAT32, 1.5),
        ("0.1", FLOAT32, 0.1),
        ("3.141592653589793", FLOAT64, 3.141592653589793),
        ("1e300", FLOAT64, 1e300),
        ("1e400", decimal_of(-400), Decimal("1e400")),
        ("2020-02-03", DATE, date(2020, 2, 3)),
        ("04:05:06.789Z", TIME, time(4, 5, 6, 789000)),
        ("2020-02-03T04:05:06.789Z", TIMESTAMP, MOMENT),
        ("[1,2]", array_of(INT8), [1, 2]),
        ("[1, 300]", array_of(INT16), [1, 300]),
        ("[1,2.5]", array_of(FLOAT32), [1.0, 2.5]),
        ('["a",null]', array_of(STRING.as_optional()), ["a", None]),
        ('[1,"a"]', None, [1, "a"]),
        ("[]", array_of(STRING.as_optional()), []),
        ("[[1],[2]]", array_of(array_of(INT8)), [[1], [2]]),
        ('{"a":1,"b":-2}', map_of(STRING, INT8), {"a": 1, "b": -2}),
        ('{"a":"2020-02-03"}', map_of(STRING, DATE), {"a": date(2020, 2, 3)}),
        ("{1:04:05:06.789Z}", map_of(INT8, TIME), {1: time(4, 5, 6, 789000)}),
        ('["a\\"b\\\\", " "]', array_of(STRING), ['a"b\\', " "]),
    ],
)
def test_types_are_guessed(text, schema, value):
    """The smallest type that holds the whole text."""
    assert from_text(text) == (schema, value)


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "hello",
        "12:30",
        "1,2",
        "1.2.3",
        "7 apples",
        "2020-13-45",
        "2020-02-03 or so",
        "[1] or so",
        "[1,]",
        "[1 2]",
        "[a]",
        "[",
        "{1}",
        '{"a":1',
        '{null:"a"}',
        "true}",
        "nan",
        "1e99999999999",
        "\\",
        '"',
    ],
)
def test_what_is_nothing_else_is_a_string(text):
    """The whole text, where Kafka would take its first word."""
    assert from_text(text) == (STRING, text)


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        (None, None, "null"),
        (True, None, "true"),
        (-7, None, "-7"),
        (0.1, FLOAT32, "0.1"),
        (1e10, None, "1.0E10"),
        (1, FLOAT64, "1.0"),
        (Decimal("1.50"), None, "1.50"),
        ("a b", None, "a b"),
        (b"abc", None, "YWJj"),
        (date(2020, 2, 3), None, "2020-02-03"),
        (time(4, 5), None, "04:05:00.000Z"),
        (MOMENT, None, "2020-02-03T04:05:06.789Z"),
        (datetime(2020, 2, 3), None, "2020-02-03"),
        (datetime(1969, 7, 20, 20, 17), None, "1969-07-20T20:17:00.000Z"),
        (["a", 1, None, b"abc"], None, '["a",1,null,"YWJj"]'),
        ({"a": {"b": 'c"'}}, None, '{"a":{"b":"c\\""}}'),
        ({"b": 2, "a": 1}, struct_of(a=INT8, b=INT8), '{"a":1,"b":2}'),
        ([0.1], array_of(FLOAT32), "[0.1]"),
    ],
)
def test_values_have_a_text(value, schema, text):
    """As SimpleHeaderConverter writes them."""
    assert to_text(value, schema) == text


def test_what_has_no_text_is_refused():
    """A plug-in may put anything into a header."""
    with pytest.raises(DataError, match="value of complex: has no form as text"):
        to_text(1j)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e-9, "-1.25E-9"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value, text):
    """Readers compare bytes."""
    assert java_double(value) == text


def test_a_float32_has_its_own_shortest_text():
    """The float64 next to it has seventeen digits."""
    assert java_float(0.10000000149011612) == "0.1"
    assert java_float(16777216.0) == "1.6777216E7"
    assert java_float(3.4028234663852886e38) == "3.4028235E38"
    assert to_text(b"", BYTES) == ""
