"""Records as rows of databases, by SQLAlchemy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, timedelta
from decimal import Decimal
from random import Random

import pytest
import sqlalchemy
from breadth import examples
from sql_tables import NOON, UPSERT, insert, record

from ottla.connect.connector import TryAgainError
from ottla.connect.connectors.sql_sink import SqlSink
from ottla.connect.data import (
    DATE,
    INT64,
    STRING,
    SinkRecord,
    array_of,
    struct_of,
)
from ottla.errors import ConfigError

PERSON = struct_of("Person", id=INT64, name=STRING.as_optional(), born=DATE.as_optional())


def test_rows_by_their_key(database, sink):
    """Replaced, deleted by a null, and the same after all of it came twice."""
    writer, reported = sink(**UPSERT)
    records = [
        record(0, {"id": 1, "name": "Ann", "born": date(2000, 1, 2)}, value_schema=PERSON),
        record(1, {"id": 2, "name": None, "born": None}, value_schema=PERSON),
        record(2, {"id": 1, "name": "Anna", "born": None}, value_schema=PERSON),
        record(3, None, key={"id": 2}),
    ]
    for _ in range(2):
        writer.put(records)

    assert database("SELECT * FROM people") == [(1, "Anna", None)]
    assert not reported
    columns = [
        (name, kind, required, key)
        for _, name, kind, required, _, key in (database("PRAGMA table_info(people)"))
    ]
    assert columns == [("id", "BIGINT", 1, 1), ("name", "TEXT", 0, 0), ("born", "DATE", 0, 0)]


def test_a_key_of_one_value(database, sink):
    """Which is no field of the value."""
    writer, _ = sink(**UPSERT)
    schema = struct_of("Name", name=STRING)
    writer.put([record(0, {"name": "Ann"}, value_schema=schema, key=7, key_schema=INT64)])

    assert database("SELECT id, name FROM people") == [(7, "Ann")]


def test_a_bad_record_takes_no_other_along(database, sink):
    """It is reported, with what the database says of it."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    writer, reported = sink()
    writer.put(
        [
            record(0, {"id": 1, "name": "Ann"}),
            record(1, {"id": 1, "name": "again"}),
            record(2, {"id": 2, "name": None}),
            record(3, {"id": 3, "nmae": "x"}),
            record(4, "text"),
            record(5, {"id": 6, "name": "Bob"}),
        ]
    )

    assert database("SELECT * FROM people") == [(1, "Ann"), (6, "Bob")]
    assert [offset for offset, _ in reported] == [1, 2, 3, 4]
    assert "has no column nmae" in reported[2][1]
    assert "must be a struct or a dict" in reported[3][1]


def test_records_that_make_no_row_take_no_transaction(database, sink, monkeypatch):
    """Each would be one where a column is missing at the target."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    writer, reported = sink()
    written = []
    monkeypatch.setattr(
        writer,
        "_write",
        lambda records: (written.append(len(records)), SqlSink._write(writer, records)),
    )
    bad = {each: {"id": each, "other": 1} for each in range(1, 200)}
    writer.put([record(each, bad.get(each, {"id": each})) for each in range(300)])

    assert written == [300, 101]
    assert [offset for offset, _ in reported] == list(bad)
    assert database("SELECT count(*) FROM people") == [(101,)]


@pytest.mark.parametrize("key_type", ["INTEGER", "TEXT", "TEXT COLLATE NOCASE", "NUMERIC"])
@pytest.mark.parametrize("seed", range(examples(2)))
def test_batches_are_as_their_records_one_by_one(database, sink, key_type, seed):
    """Rows of parts of the columns, deletions and bad records, in batches of any size."""
    chance = Random(seed)
    table = f"(id {key_type} PRIMARY KEY, name TEXT NOT NULL DEFAULT 'none', more TEXT)"
    database(f"CREATE TABLE people {table}")
    is_text = "TEXT" in key_type
    writer, reported = sink(**{**UPSERT, "auto.create": "false"})
    model, bad, offset = {}, [], 0
    for _ in range(20):
        batch = []
        for _ in range(chance.choice([1, 2, 5, 40])):
            number = chance.randrange(60)
            key = chance.choice("aA") + str(number) if is_text else number
            place = key.lower() if "NOCASE" in key_type else key
            kind = chance.choice(["row", "row", "part", "delete", "null", "unknown", "text"])
            value = {"id": key, "name": f"n{offset}", "more": chance.choice([None, "x"])}
            row = {**model.get(place, {"name": "none", "more": None}), "id": key}
            if kind == "part":
                del value[chance.choice(["name", "more"])]
            if kind == "null":
                value["name"] = None
            if kind == "unknown":
                value["other"] = 1
            if kind == "delete":
                model.pop(place, None)
                batch.append(record(offset, None, key={"id": key}))
            elif kind in ("row", "part"):
                model[place] = row | value
                batch.append(record(offset, value))
            else:
                bad.append(offset)
                batch.append(record(offset, "text" if kind == "text" else value))
            offset += 1
        writer.put(batch)

    assert [each for each, _ in reported] == bad
    found = database("SELECT id, name, more FROM people ORDER BY id")
    expected = [(each["id"], each["name"], each["more"]) for each in model.values()]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(("bad", "most"), [((), 3), ((700,), 60), (range(0, 1000, 100), 400)])
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_new_rows_go_together(database, sink, mode, bad, most):
    """A thousand take few statements, and a bad one among them costs no statement for each."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE)")
    writer, reported = sink(**{**UPSERT, "insert.mode": mode})
    statements = []
    sqlalchemy.event.listen(
        writer._engine, "before_cursor_execute", lambda *call: statements.append(call[2])
    )
    names = [None if number in bad else "x" for number in range(1000)]
    rows = [{"id": n, "name": name, "born": "2000-01-02"} for n, name in enumerate(names)]
    writer.put([record(number, row) for number, row in enumerate(rows)])

    assert [offset for offset, _ in reported] == list(bad)
    assert database("SELECT count(*) FROM people") == [(1000 - len(bad),)]
    about_rows = [each for each in statements if "PRAGMA" not in each and "sqlite_" not in each]
    assert len(about_rows) <= most


def test_null_keys_and_nested_values_are_refused(database, sink):
    """A table has columns of simple types, and rows that can be found again."""
    writer, reported = sink(**UPSERT)
    nested = struct_of(id=INT64, l=array_of(INT64))
    writer.put([record(0, {"id": 1, "l": []}, value_schema=nested)])
    writer.put([record(1, {"id": None, "name": "x"}, value_schema=PERSON)])

    assert "must be simple to be a column; Flatten makes structs so" in reported[0][1]
    assert "primary.key id must not be null" in reported[1][1]


@pytest.mark.parametrize("seed", range(examples(5)))
def test_a_table_is_copied_whatever_happens(database, read, sink, seed):
    """Through source and sink, with restarts: the copy equals the table."""
    random = Random(seed)
    mode = {"mode": "timestamp+incrementing", "batch.rows": "3"}
    poll, (writer, _) = read(**mode), sink(**UPSERT, table="copy")
    for step in range(40):
        at = NOON + timedelta(seconds=step)
        if random.random() < 0.5:
            insert(database, step, at)
        else:
            number = random.randrange(step + 1)
            database(
                "UPDATE orders SET name = ?, changed = ? WHERE id = ?",
                str(step),
                at.isoformat(" ", "microseconds"),
                number,
            )
        if random.random() < 0.2:
            poll = read(**mode)
        batch = [
            SinkRecord(
                topic="orders",
                partition=0,
                offset=step,
                value=each.value,
                value_schema=each.value_schema,
                key=each.key,
                key_schema=each.key_schema,
            )
            for each in poll()
        ]
        writer.put(batch)
    while found := poll():
        writer.put([record(0, each.value, value_schema=each.value_schema) for each in found])

    expected = database("SELECT id, name FROM orders ORDER BY id")
    assert database("SELECT id, name FROM copy ORDER BY id") == expected


def test_columns_of_the_sink_that_come_and_go_are_seen(database, sink):
    """Without a restart; a record with a column that is gone is reported."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, old TEXT)")
    writer, reported = sink()
    writer.put([record(0, {"id": 1, "old": "x"})])
    database("ALTER TABLE people ADD COLUMN age INTEGER")
    writer.put([record(1, {"id": 2, "age": 30})])
    database("ALTER TABLE people DROP COLUMN old")
    writer.put([record(2, {"id": 3, "name": "Bob"}), record(3, {"id": 4, "old": "y"})])

    assert database("SELECT id, name, age FROM people") == [
        (1, None, None),
        (2, None, 30),
        (3, "Bob", None),
    ]
    assert reported == [(3, "INVALID_RECORD: table people: has no column old")]


class Strange:
    """A value of no type that a driver knows, which says no more than that."""

    def __repr__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "value", [10**30, "cut \ud83d", [1], {"a": 1}, object(), b"x", float, Strange(), ("a", 1)]
)
def test_any_error_of_one_record_is_its_own(database, sink, value):
    """Of whatever type the driver raises: the others are written, and it is reported once."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY, at TIMESTAMP)")
    writer, reported = sink()
    values = [value if number == 1 else None for number in range(3)]
    writer.put([record(n, {"id": n, "at": each}) for n, each in enumerate(values)])

    assert database("SELECT id FROM people") == [(0,), (2,)]
    assert [offset for offset, _ in reported] == [1]


def test_decimals_keep_their_digits_or_are_reported(database, sink):
    """SQLite stores floats; a column of text has all digits."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY, n NUMERIC(38, 2), t TEXT)")
    writer, reported = sink()
    long = Decimal("1234567890123456789.12")
    for number, row in enumerate(({"n": Decimal("9.50")}, {"n": long}, {"t": long})):
        writer.put([record(number, {"id": number} | row)])

    assert database("SELECT n, t FROM people") == [(9.5, None), (None, str(long))]
    ((offset, error),) = reported
    assert offset == 1
    assert "n=1234567890123456789.12: must be a number that a float holds" in error


def test_an_error_of_the_database_is_nobodys(database, sink):
    """A lock of another writer: the records come again."""
    database("CREATE TABLE people (id INTEGER PRIMARY KEY)")
    writer, reported = sink(url=f"{database.url}?timeout=0")
    with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TryAgainError, match="database is locked"):
            writer.put([record(0, {"id": 1})])
    writer.put([record(0, {"id": 1})])

    assert database("SELECT id FROM people") == [(1,)]
    assert not reported


@pytest.mark.parametrize("parts", range(3))
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_rows_beside_bad_ones_are_there_once_whenever_the_database_goes(
    database, sink, monkeypatch, mode, parts
):
    """Another connection locks it after so many transactions of a batch with two bad records."""
    database("CREATE TABLE people (id INTEGER, name TEXT NOT NULL)")
    more = UPSERT if mode == "upsert" else {}
    writer, reported = sink(url=f"{database.url}?timeout=0", **more)
    records = [record(n, {"id": n, "name": None if n in (3, 6) else "x"}) for n in range(10)]
    path = database.url.removeprefix("sqlite:///")
    write, committed = writer._write, []

    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def write_until_it_is_locked(some):
            if len(committed) == parts:
                other.execute("BEGIN EXCLUSIVE")
            write(some)
            committed.append(some)

        monkeypatch.setattr(writer, "_write", write_until_it_is_locked)
        with pytest.raises(TryAgainError, match="locked"):
            writer.put(records)
        other.execute("ROLLBACK")
    monkeypatch.setattr(writer, "_write", write)
    assert not reported
    writer.put(records)

    assert sorted(database("SELECT id FROM people")) == [(n,) for n in range(10) if n not in (3, 6)]
    assert [offset for offset, _ in reported] == [3, 6]
    writer.put([record(n, {"id": n, "name": "x"}) for n in range(10, 12)])
    assert len(database("SELECT id FROM people")) == 10


def test_a_deletion_from_a_table_that_is_not_made_yet(database, sink):
    """There is nothing to delete; a record without a schema makes no table, and says so."""
    writer, reported = sink(**UPSERT)
    writer.put([record(0, None, key={"id": 1})])
    writer.put([record(1, {"id": 1})])
    writer.put([record(2, {"id": 1, "name": "Ann", "born": None}, value_schema=PERSON)])

    assert database("SELECT id FROM people") == [(1,)]
    assert reported == [
        (1, "INVALID_RECORD: table people: a record must have a schema to be created by")
    ]


def test_settings_of_the_sink():
    """A row is found by its key only."""
    with pytest.raises(ConfigError, match=r"primary\.key=: must be set with insert\.mode=upsert"):
        SqlSink.Settings.parse({"url": "sqlite://", "insert.mode": "upsert"})
