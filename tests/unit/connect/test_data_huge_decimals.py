"""Numbers of a few bytes with a billion digits: refused, or kept as text, and never written out.

Written out they would take gigabytes, in calls of C that no signal ends.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from ottla.connect.connectors.databases import (
    decimal_reader,
    read_decimal_text,
    read_integer,
    read_text,
)
from ottla.connect.data import (
    DECIMAL_NAME,
    STRING,
    DataError,
    SchemaType,
    decimal_of,
    from_base,
    to_base,
)
from ottla.connect.json_converter import JsonConverter
from ottla.connect.transforms.types import cast
from ottla.connect.value_text import from_text

HUGE = ["1e999999999", "-7.5e999999", "3e-999999999", "0e999999999", "1e2147483647"]
HUGER = ["1e" + "9" * 30, "1e" + "9" * 5_000]
"""Not even a decimal has such an exponent."""
LONG = "-" + "1234567890" * 600 + ".5"
"""More digits than Python's integers are read with."""


def decimal_json(number: str, scale: str = "2") -> bytes:
    schema = {"type": "bytes", "name": DECIMAL_NAME, "parameters": {"scale": scale}}
    return b'{"schema":%b,"payload":%b}' % (json.dumps(schema).encode(), number.encode())


@pytest.mark.parametrize("text", [*HUGE, *HUGER])
def test_header_stays_text(text):
    """Alone and in a list."""
    assert from_text(text) == (STRING, text)
    assert from_text(f"[{text}]") == (STRING, f"[{text}]")


@pytest.mark.parametrize("text", [*HUGE, *HUGER])
def test_number_of_json_is_refused(text):
    """By the exponent that it is written with."""
    with pytest.raises(DataError):
        JsonConverter().to_connect_data("t", decimal_json(text))


def test_scale_of_a_schema_is_refused_with_its_value():
    """One byte would have two billion digits behind the point."""
    with pytest.raises(DataError, match="200,000 digits"):
        JsonConverter().to_connect_data("t", decimal_json('"AQ=="', "2147483647"))


@pytest.mark.parametrize("text", HUGE)
@pytest.mark.parametrize("read", [read_decimal_text, decimal_reader(2), read_text])
def test_number_of_a_database_is_refused(read, text):
    """SQLite, for one, gives back any text as a number."""
    with pytest.raises(ValueError, match="200,000 digits"):
        read(Decimal(text))


@pytest.mark.parametrize("text", [*HUGE, *HUGER])
def test_integer_of_a_database_is_refused(text):
    """Before it is made an integer."""
    with pytest.raises(ValueError, match=r"64 bits|200,000 digits"):
        read_integer(text)


@pytest.mark.parametrize("text", HUGE)
@pytest.mark.parametrize("kind", [SchemaType.INT64, SchemaType.BOOLEAN])
def test_decimal_is_not_cast_nor_written(text, kind):
    """One that a transform or a converter of somebody else has made."""
    for call in (
        lambda: cast(Decimal(text), None, kind),
        lambda: to_base(decimal_of(2), Decimal(text)),
    ):
        with pytest.raises(DataError):
            call()


def test_decimals_of_thousands_of_digits_come_back():
    """PostgreSQL's numeric has up to 131,072 digits before the point."""
    schema = decimal_of(1)

    assert from_base(schema, to_base(schema, Decimal(LONG))) == Decimal(LONG)
    assert from_text(LONG).value == Decimal(LONG)
    assert read_decimal_text(Decimal(LONG)) == LONG
