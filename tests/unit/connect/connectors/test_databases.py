"""What values of databases become: SQLite's types x null x extremes through both forms of JSON.

tests/peers has the same with a real PostgreSQL and a real MariaDB.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy
from contexts import LoneContext, through_json

from ottla.connect.connectors.databases import (
    Database,
    Handling,
    Postgres,
    decimal_reader,
    postgres_array,
    postgres_time,
    read_boolean,
    read_bytes,
    read_date,
    read_decimal_text,
    read_float,
    read_integer,
    read_iso,
    read_text,
    read_time,
)
from ottla.connect.connectors.mysql import MySql
from ottla.connect.connectors.sql import SqlSource, database_of
from ottla.connect.connectors.sqlite import Sqlite
from ottla.connect.data import DATE, STRING, TIMESTAMP, DataError, array_of, decimal_of

TEXT = {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}
NUMBERS = "decimal.handling.mode=string"
TIMES = "time.precision.mode=isostring"
OF_SQLITE = [
    ("INTEGER", 2**63 - 1, 2**63 - 1, None),
    ("INTEGER", -(2**63), -(2**63), None),
    ("INTEGER", "abc", "must be a whole number of 64 bits", None),
    ("INTEGER", 1.5, "must be a whole number of 64 bits", None),
    ("INTEGER", b"x", "must be a whole number of 64 bits", None),
    ("BOOLEAN", 1, True, None),
    ("BOOLEAN", 2, "must be true or false", None),
    ("REAL", 0.1, 0.1, None),
    ("REAL", math.inf, "Infinity", None),
    ("REAL", "abc", "must be a number", None),
    ("NUMERIC(10, 2)", 9.5, "A7Y=", "9.5"),
    ("NUMERIC(10, 2)", 0.1 + 0.2, "Hg==", "0.30000000000000004"),
    ("NUMERIC(10, 2)", 1.239, NUMBERS, "1.239"),
    ("NUMERIC(10, 2)", "abc", "must be a number", "abc"),
    ("NUMERIC", 5, "5", "5"),
    ("NUMERIC", 0.1, "0.1", "0.1"),
    ("TEXT", "Zoë 😀", "Zoë 😀", "Zoë 😀"),
    ("TEXT", b"\xff", "must be text, and not of type bytes", None),
    ("VARCHAR(3)", "longer", "longer", "longer"),
    ("", 5, "5", "5"),
    ("", "x", "x", "x"),
    ("BLOB", b"\x00\xff", "AP8=", "AP8="),
    ("BLOB", "text", "dGV4dA==", "dGV4dA=="),
    ("BLOB", 5, "must be bytes", None),
    ("DATE", "2020-02-03", 18295, "2020-02-03"),
    ("DATE", "10000-01-01", TIMES, "10000-01-01"),
    ("DATE", "-0044-03-15", TIMES, "-0044-03-15"),
    ("DATE", 18295, TIMES, "18295"),
    ("TIME", "04:05:06.789", 14706789, "04:05:06.789"),
    ("TIME", "24:00:00", TIMES, "24:00:00"),
    ("TIMESTAMP", "1970-01-01 00:00:01.5", 1500, "1970-01-01 00:00:01.5"),
    ("TIMESTAMP", "1970-01-01T00:00:01Z", 1000, "1970-01-01T00:00:01Z"),
    ("TIMESTAMP", "1970-01-01 09:00:01+09:00", 1000, "1970-01-01 09:00:01+09:00"),
    ("TIMESTAMP", "0000-01-01 00:00:00", TIMES, "0000-01-01 00:00:00"),
    ("TIMESTAMP", 1580702706, TIMES, "1580702706"),
    ("JSON", '{"a": null}', '{"a": null}', '{"a": null}'),
]


@pytest.fixture
def values_of(tmp_path):
    """The values that a table of one column has in a topic, or the errors of its rows."""

    def read(kind, values, **given):
        path = tmp_path / "values.db"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {kind})")
            connection.executemany("INSERT INTO t (id, v) VALUES (?, ?)", enumerate(values))
        source = SqlSource(
            SqlSource.Settings.parse({"url": f"sqlite:///{path}", "tables": "t"} | given),
            LoneContext(),
        )
        source.start()
        found = source.poll()
        source.stop()
        assert [each.source_offset for each in found] == [{"id": n} for n in range(len(values))]
        return [each.error.message if each.error else through_json(each)["v"] for each in found]

    return read


@pytest.mark.parametrize(("kind", "value", "found", "as_text"), OF_SQLITE)
def test_values_of_sqlite(values_of, kind, value, found, as_text):
    """A value, or an error that names row, column and rule; the rows around it are there.

    The worker adds the setting that leaves such a row out, for all connectors.
    """
    first, one, last = values_of(kind, [None, value, None])
    assert first is last is None
    if isinstance(found, str) and one != found:
        assert one.startswith(f"table t, id=1: v={value!r}: must ")
        assert found in one
        assert "errors.tolerance" not in one
    else:
        assert one == found
    if as_text is not None:
        assert values_of(kind, [value], **TEXT) == [as_text]


def test_text_that_is_not_utf8_fails_with_its_row_alone(values_of):
    """The driver would refuse all rows that are read with it."""
    kind = "INTEGER, w TEXT AS (CASE v WHEN 1 THEN CAST(x'ff' AS TEXT) END) STORED"
    good, bad, last = values_of(kind, [0, 1, 2])

    assert (good, last) == (0, 2)
    assert "id=1: w='\\udcff': must be text in UTF-8" in bad


@pytest.mark.parametrize(
    ("read", "given", "found"),
    [
        (read_boolean, ["t", "f", "true", "false", 1, 0, b"\x01"], [1, 0, 1, 0, 1, 0, 1]),
        (read_integer, ["7", Decimal(7)], [7, 7]),
        (read_float, ["-Infinity", Decimal("0.5"), 1], [-math.inf, 0.5, 1.0]),
        (read_decimal_text, [Decimal("1E+3"), "NaN", 5], ["1000", "NaN", "5"]),
        (
            read_text,
            [UUID(int=255), {"a": None}, [True]],
            [str(UUID(int=255)), '{"a": null}', "[true]"],
        ),
        (read_bytes, [bytearray(b"a"), memoryview(b"b")], [b"a", b"b"]),
        (read_date, [datetime(2020, 2, 3), date(2020, 2, 3)], [date(2020, 2, 3)] * 2),
        (read_time, [timedelta(hours=1), time(1)], [time(1)] * 2),
        (read_iso, [date(2020, 2, 3), "infinity"], ["2020-02-03", "infinity"]),
    ],
)
def test_what_other_drivers_return(read, given, found):
    """Values of Python in the place of text."""
    assert [read(value) for value in given] == found


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (read_boolean, "yes"),
        (read_integer, True),
        (read_integer, 2**63),
        (read_integer, "NaN"),
        (read_float, b"1"),
        (read_text, b"x"),
        (read_text, {1}),
        (read_text, "cut \ud83d"),
        (read_bytes, 5),
        (read_date, "0000-00-00"),
        (read_time, timedelta(days=1)),
        (read_time, timedelta(seconds=-1)),
        (read_time, time(1, tzinfo=UTC)),
        (decimal_reader(2), Decimal("Infinity")),
    ],
)
def test_nothing_is_made_text_or_a_number_by_force(read, value):
    """Each refusal is a rule, never another value."""
    with pytest.raises(ValueError, match=r"^be "):
        read(value)


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [
        ("postgresql", Postgres),
        ("mysql", MySql),
        ("mariadb", MySql),
        ("sqlite", Sqlite),
        ("oracle", Database),
    ],
)
def test_databases_by_their_dialect(dialect, kind):
    """One that is not known has what SQLAlchemy says of it."""
    found = database_of(sqlalchemy, dialect, Handling())

    assert type(found) is kind
    assert found.column_type(sqlalchemy.Numeric(10, 2)).schema == decimal_of(2)
    assert found.column_type(sqlalchemy.Date()).schema == DATE
    assert found.column_type(sqlalchemy.DateTime()).schema == TIMESTAMP
    assert found.column_type(sqlalchemy.Uuid()).schema == STRING


@pytest.mark.parametrize(
    ("dialect", "code", "of_system"),
    [
        ("postgresql", "57P01", True),
        ("postgresql", "40P01", True),
        ("postgresql", "25006", True),
        ("postgresql", "42501", True),
        ("postgresql", "54000", False),
        ("postgresql", "22003", False),
        ("mysql", 1213, True),
        ("mysql", 2013, True),
        ("mysql", 4025, False),
        ("mysql", 1644, False),
        ("sqlite", 5 | 2 << 8, True),
        ("sqlite", 13, True),
        ("sqlite", 1, False),
        ("other", None, True),
    ],
)
def test_errors_of_the_database_by_their_code(dialect, code, of_system):
    """Drivers call much an OperationalError that is one record's own."""

    class DriverError(Exception):
        sqlstate = sqlite_errorcode = code

    error = sqlalchemy.exc.OperationalError("statement", {}, DriverError(code))
    assert database_of(sqlalchemy, dialect, Handling()).is_of_system(error) is of_system
    assert not database_of(sqlalchemy, dialect, Handling()).is_of_system(OverflowError())


def test_columns_that_are_made_hold_what_their_schema_can():
    """MySQL's defaults are whole seconds, 64 kB, and no text as a key."""
    mysql = database_of(sqlalchemy, "mysql", Handling())
    postgres = database_of(sqlalchemy, "postgresql", Handling())

    assert repr(mysql.made_type(TIMESTAMP, is_key=False)) == "DATETIME(fsp=3)"
    assert repr(mysql.made_type(STRING, is_key=False)) == "LONGTEXT()"
    assert repr(mysql.made_type(STRING, is_key=True)) == "String(length=255)"
    assert mysql.made_type(decimal_of(30), is_key=False).precision == 65
    assert postgres.made_type(decimal_of(30), is_key=False).precision == 68
    assert repr(postgres.made_type(array_of(STRING), is_key=False)) == "ARRAY(Text())"
    with pytest.raises(DataError, match="Flatten makes structs so"):
        mysql.made_type(array_of(STRING), is_key=False)


@pytest.mark.parametrize(
    ("iso", "text"),
    [
        ("-0043-03-15T12:00:00Z", "0044-03-15T12:00:00Z BC"),
        ("0000-01-01", "0001-01-01 BC"),
        ("+10000-01-01T00:00:00", "10000-01-01T00:00:00"),
        ("2020-02-03", "2020-02-03"),
        ("infinity", "infinity"),
    ],
)
def test_years_as_postgresql_reads_them(iso, text):
    """What the source has made ISO 8601 can be written again."""
    assert postgres_time(iso) == text


def test_arrays_as_postgresql_reads_them():
    """Items of any type, quoted, so that the type of the array reads each."""
    items = [
        None,
        'a "b" \\',
        True,
        1.5,
        Decimal("2.50"),
        b"\x00",
        date(2020, 2, 3),
        [1],
        {"a": None},
    ]

    assert postgres_array(items) == (
        r'{NULL,"a \"b\" \\","true","1.5","2.50","\\x00","2020-02-03",{"1"},"{\"a\": null}"}'
    )


def test_values_as_they_are_written():
    """Moments in the zone of a column, null as NULL also in JSON, text as the database reads it."""
    zone = ZoneInfo("Asia/Tokyo")
    at = datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)
    local, json_type = at.astimezone(zone).replace(tzinfo=None), sqlalchemy.JSON()
    for dialect, kind, given, expected in (
        ("postgresql", sqlalchemy.DateTime(), at, local),
        ("postgresql", sqlalchemy.DateTime(), at.replace(tzinfo=None), local),
        ("postgresql", sqlalchemy.DateTime(timezone=True), at, at),
        ("postgresql", sqlalchemy.DateTime(), "2020-02-03T04:05:06Z", local),
        ("mysql", sqlalchemy.DateTime(), "2020-02-03T04:05:06+00:00", local),
        ("mysql", sqlalchemy.TIMESTAMP(), at, at.replace(tzinfo=None)),
        ("sqlite", sqlalchemy.DateTime(), "2020-02-03 04:05:06", at.replace(tzinfo=None)),
        ("sqlite", sqlalchemy.Date(), "2020-02-03", date(2020, 2, 3)),
    ):
        database = database_of(sqlalchemy, dialect, Handling(zone=zone))
        assert database.bound(sqlalchemy.Column("v", kind), given) == expected
    database = database_of(sqlalchemy, "postgresql", Handling())
    assert str(database.bound(sqlalchemy.Column("v", json_type), None)) == "NULL"
    text = database.bound(sqlalchemy.Column("v", json_type), '{"a": 1}')
    assert (text.value, type(text.type)) == ('{"a": 1}', type(database.as_given))


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "oracle", "sqlite"])
def test_no_fraction_is_rounded_to_a_whole_number(dialect):
    """A database would do so for a column of integers; SQLite keeps what it is given."""
    database = database_of(sqlalchemy, dialect, Handling())
    column = sqlalchemy.Column("v", sqlalchemy.BigInteger())
    for number in (7.0, Decimal("7.00"), 7, -0.0, 2.0**62):
        assert database.bound(column, number) == number
    for number in (1.5, -0.1, Decimal("1.5"), float("nan"), float("inf"), Decimal("1e99999")):
        if dialect == "sqlite":
            assert database.bound(column, number) is number
        else:
            with pytest.raises(DataError, match="must be a whole number"):
                database.bound(column, number)
