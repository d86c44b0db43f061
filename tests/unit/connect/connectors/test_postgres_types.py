"""Values of PostgreSQL's log by the numbers of their types: Connect's, or an error."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from ottla.connect.connectors.databases import Handling
from ottla.connect.connectors.postgres_types import Column
from ottla.connect.data import DATE, STRING, DataError, decimal_of


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "value"),
    [
        (16, -1, "t", True),
        (16, -1, "f", False),
        (17, -1, "\\x00ff", b"\x00\xff"),
        (20, -1, "-9223372036854775808", -(2**63)),
        (701, -1, "NaN", pytest.approx(float("nan"), nan_ok=True)),
        (1700, (10 << 16 | 2) + 4, "1.50", Decimal("1.50")),
        (1700, -1, "NaN", "NaN"),
        (1082, -1, "2020-02-03", date(2020, 2, 3)),
        (1082, -1, "infinity", date.max),
        (1082, -1, "-infinity", date.min),
        (1700, (5 << 16 | 2046) + 4, "12300", Decimal(12300)),
        (1114, -1, "1970-01-01 00:00:00.000001", 1),
        (1114, -1, "infinity", 2**63 - 1),
        (1114, -1, "0001-01-01 00:00:00 BC", -62_167_219_200_000_000),
        (1114, -1, "10000-01-01 00:00:00", 253_402_300_800_000_000),
        (1184, -1, "2020-02-03 04:05:06+00", "2020-02-03T04:05:06Z"),
        (1184, -1, "0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00Z"),
        (1184, -1, "10000-01-01 00:00:00.5+00", "+10000-01-01T00:00:00.5Z"),
        (3802, -1, '{"a": 1}', '{"a": 1}'),
        (23, -1, None, None),
    ],
)
def test_values_of_columns(oid, modifier, text, value):
    """As Debezium has them; what has no type of Connect's stays text."""
    assert Column("c", False, oid, modifier).read(text) == value


def test_schemas_of_columns():
    """A numeric has the scale of its column, or is text where it has none."""
    assert Column("c", False, 1700, (10 << 16 | 2) + 4).schema == decimal_of(2)
    assert Column("c", False, 1700, -1).schema is STRING
    assert Column("c", False, 1082, -1).schema is DATE
    assert Column("c", False, 1700, (5 << 16 | 2046) + 4).schema == decimal_of(-2)


NUMERIC = (10 << 16 | 2) + 4


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "rule", "handling", "value"),
    [
        (1700, NUMERIC, "NaN", "decimal.handling.mode=string", Handling(decimals="string"), "NaN"),
        (1700, NUMERIC, "Infinity", "decimal.handling", Handling(decimals="double"), float("inf")),
        (
            1082,
            -1,
            "10000-01-01",
            "time.precision.mode",
            Handling(times="isostring"),
            "+10000-01-01",
        ),
        (1082, -1, "0044-03-15 BC", "time.precision", Handling(times="isostring"), "-0043-03-15"),
        (
            *(1114, -1, "294276-12-31 00:00:00", "time.precision"),
            *(Handling(times="isostring"), "+294276-12-31T00:00:00"),
        ),
    ],
)
def test_what_has_no_place_has_one_by_a_setting(oid, modifier, text, rule, handling, value):
    """The error names the setting, with which the value is there."""
    with pytest.raises(DataError, match=f"c='{text}': must be .*{rule}"):
        Column("c", False, oid, modifier).read(text)
    assert Column("c", False, oid, modifier, handling).read(text) == value
