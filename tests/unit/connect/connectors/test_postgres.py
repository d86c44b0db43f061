"""Settings, and changes from their bytes; tests/peers/test_postgres.py has a server."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from ottla.connect.connectors.pgoutput import Begin, Change, Commit, PgoutputDecoder
from ottla.connect.connectors.postgres import PostgresSource, lsn_of, quoted
from ottla.connect.connectors.postgres_types import Column
from ottla.connect.data import INT32, STRING, DataError, struct_of
from ottla.errors import ConfigError

GIVEN = {"connection": "dbname=shop", "tables": "public.orders", "topic.prefix": "shop"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tables": "orders"}, r"tables=orders: must be names as schema\.table"),
        ({"slot.name": "My-Slot"}, r"slot\.name=My-Slot: must be of lower-case letters"),
        ({"value.format": "json"}, r"value\.format=json: must be one of envelope, row"),
        ({"topic.prefix": ""}, r"topic\.prefix=: must not be empty"),
    ],
)
def test_settings_are_checked(settings, text):
    """The error names key, value and rule."""
    with pytest.raises(ConfigError, match=text):
        PostgresSource.Settings.parse(GIVEN | settings)


def test_places_and_names():
    """A place in the log is two numbers in hexadecimal; names may hold anything."""
    assert lsn_of("16/B374D848") == 0x16_B374D848
    assert quoted('a"b') == '"a""b"'
    assert PostgresSource.is_exactly_once(PostgresSource.Settings.parse(GIVEN))


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
    found = PgoutputDecoder(lambda namespace, name: (Column("name", True, 25, -1),))
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

    assert change.relation.read(change.after) == {"id": 2, "name": "large"}
    assert change.relation.read_key(change.before) == {"name": "large"}


def test_emptied_tables(decoder):
    """Each of them is an event."""
    decoder.read(table(oid=8))
    found = decoder.read(b"T" + struct.pack(">ibII", 2, 0, 7, 8))

    assert [(change.operation, change.before, change.after) for change in found] == (
        [("t", None, None)] * 2
    )


def test_a_key_that_is_stored_apart_is_taken_from_the_old_row(decoder):
    """An update that leaves it alone does not send it again; what is no key stays unknown."""
    (change,) = decoder.read(b"U" + ORDERS + b"K" + row(b"1", b"n") + b"N" + row(b"u", b"u"))

    assert change.relation.read_key(change.after) == {"id": 1}
    assert change.relation.read_key(change.before) == {"id": 1}
    assert change.relation.read(change.after)["name"] == "__debezium_unavailable_value"
    (change,) = decoder.read(b"U" + ORDERS + b"N" + row(b"u", b"x"))
    with pytest.raises(DataError, match="id: the key was not sent with an update of its row"):
        change.relation.read_key(change.after)


def test_domains_are_the_types_that_they_are_made_of():
    """What the log calls by the number of a domain, the database knows."""
    known = {
        "id": Column("id", True, 23, -1),
        "name": Column("name", False, 1700, (10 << 16 | 2) + 4),
    }
    decoder = PgoutputDecoder(lambda namespace, name: tuple(known.values()))
    columns = column("id", 20_000, flags=1) + column("name", 20_001)
    decoder.read(b"R" + ORDERS + b"public\0orders\0d" + struct.pack(">h", 2) + columns)
    (created,) = decoder.read(b"I" + ORDERS + b"N" + row(b"1", b"2.50"))

    assert created.relation.read(created.after) == {"id": 1, "name": Decimal("2.50")}
    assert created.relation.key == struct_of("public.orders.Key", id=INT32)


def test_a_table_that_is_named_twice_is_one():
    """Its snapshot would have each row twice."""
    given = GIVEN | {"tables": "public.orders,public.orders"}
    assert PostgresSource.Settings.parse(given).tables == ("public.orders",)
