"""PostgreSQL's changes from their bytes; tests/peers/test_postgres.py has them from a server."""

from __future__ import annotations

import struct
from datetime import date
from decimal import Decimal

import pytest

from ottla.connect.connectors.pgoutput import Begin, Change, Column, Commit, Decoder
from ottla.connect.data import (
    DATE,
    INT32,
    STRING,
    DataError,
    decimal_of,
    struct_of,
)


def column(name, oid, flags=0, modifier=-1):
    return struct.pack(">b", flags) + name.encode() + b"\0" + struct.pack(">Ii", oid, modifier)


def table(identity=b"d", oid=7):
    columns = [column("id", 23, flags=1), column("name", 25)]
    head = struct.pack(">I", oid) + b"public\0orders\0" + identity + struct.pack(">h", 2)
    return b"R" + head + b"".join(columns)


def row(*values):
    parts = [struct.pack(">h", len(values))]
    for value in values:
        if value in (b"n", b"u"):
            parts.append(value)
        else:
            parts.append(b"t" + struct.pack(">i", len(value)) + value)
    return b"".join(parts)


ORDERS = struct.pack(">I", 7)


@pytest.fixture
def decoder():
    found = Decoder(lambda namespace, name: frozenset({"name"}))
    assert found.read(table()) == []
    return found


def test_transactions(decoder):
    """Where they end in the log, and when they were committed."""
    begin = b"B" + struct.pack(">qqI", 500, 1_000_000, 42)
    commit = b"C" + struct.pack(">bqqq", 0, 500, 548, 0)

    assert decoder.read(begin) == [Begin(500, 946_684_801_000, 42)]
    assert decoder.read(commit) == [Commit(548)]
    assert decoder.read(b"O" + b"\0" * 9) == []


def test_rows_are_created_updated_and_deleted(decoder):
    """With what the replica identity sends of the old row."""
    (created,) = decoder.read(b"I" + ORDERS + b"N" + row(b"1", b"Ann"))
    (updated,) = decoder.read(b"U" + ORDERS + b"N" + row(b"1", b"n"))
    (moved,) = decoder.read(b"U" + ORDERS + b"K" + row(b"1", b"n") + b"N" + row(b"2", b"n"))
    (deleted,) = decoder.read(b"D" + ORDERS + b"K" + row(b"2", b"n"))

    relation = created.relation
    assert created == Change("c", relation, None, ["1", "Ann"])
    assert updated == Change("u", relation, None, ["1", None])
    assert moved == Change("u", relation, ["1", None], ["2", None], before_is_key=True)
    assert deleted == Change("d", relation, ["2", None], None, before_is_key=True)
    assert relation.read(created.after) == {"id": 1, "name": "Ann"}
    assert relation.read_key(deleted.before) == {"id": 2}
    assert relation.key == struct_of("public.orders.Key", id=INT32)
    assert relation.row == struct_of("public.orders.Value", id=INT32, name=STRING.as_optional())


def test_whole_rows_as_identity(decoder):
    """Their key is the primary key; an unchanged value is taken from the old row."""
    decoder.read(table(identity=b"f"))
    (change,) = decoder.read(b"U" + ORDERS + b"O" + row(b"1", b"large") + b"N" + row(b"2", b"u"))

    assert change.relation.read(change.after, change.before) == {"id": 2, "name": "large"}
    assert change.relation.read(change.after)["name"] == "__debezium_unavailable_value"
    assert change.relation.read_key(change.before) == {"name": "large"}


def test_emptied_tables(decoder):
    """Each of them is an event."""
    decoder.read(table(oid=8))
    found = decoder.read(b"T" + struct.pack(">ibII", 2, 0, 7, 8))

    assert [(change.operation, change.before, change.after) for change in found] == (
        [("t", None, None)] * 2
    )


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
        (1082, -1, "0044-03-15 BC", date.min),
        (1082, -1, "10000-01-01", date.max),
        (1114, -1, "1970-01-01 00:00:00.000001", 1),
        (1114, -1, "infinity", 2**63 - 1),
        (1184, -1, "2020-02-03 04:05:06+00", "2020-02-03T04:05:06Z"),
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
    with pytest.raises(DataError, match=r"c='NaN': must be bytes org.*Decimal"):
        Column("c", False, 1700, (10 << 16 | 2) + 4).read("NaN")
