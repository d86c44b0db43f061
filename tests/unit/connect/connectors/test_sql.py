"""Tables of databases, by SQLAlchemy: new rows as records, and records as rows."""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from types import SimpleNamespace

import pytest
from contexts import LoneContext

from ottla.connect.connectors.sql import SqlSink, SqlSource
from ottla.connect.data import (
    DATE,
    INT64,
    STRING,
    TIMESTAMP,
    SinkRecord,
    array_of,
    decimal_of,
    struct_of,
)
from ottla.errors import ConfigError

TABLE = """
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, name TEXT, price NUMERIC(10, 2), day DATE, changed TIMESTAMP NOT NULL
)
"""
NOON = datetime(2020, 2, 3, 12)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "shop.db"

    def execute(statement, *values):
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    execute.url = f"sqlite:///{path}"
    execute(TABLE)
    return execute


def insert(database, number, at=NOON, name="x"):
    database(
        "INSERT INTO orders VALUES (?, ?, 9.5, '2020-02-03', ?)",
        number,
        name,
        at.isoformat(" ", "microseconds"),
    )


@pytest.fixture
def read(database):
    """Starts a source that goes on where the last one was; stops them after the test."""
    stored, made = {}, []

    def start(**settings):
        given = {"url": database.url, "tables": "orders", "timestamp.column": "changed"} | settings
        source = SqlSource(SqlSource.Settings.parse(given), LoneContext(stored))
        made.append(source)
        source.start()

        def poll():
            found = source.poll()
            for record in found:
                stored[tuple(record.source_partition.items())] = record.source_offset
            return found

        return poll

    yield start
    for source in made:
        source.stop()


def ids(records):
    return [record.value["id"] for record in records]


def test_rows_have_the_schema_of_their_table(database, read):
    """Types, nulls and the primary key."""
    insert(database, 1)

    (record,) = read(**{"topic.prefix": "shop."})()

    assert (record.topic, record.key, record.key_schema) == (
        ("shop.orders", {"id": 1}, struct_of(id=INT64))
    )
    assert record.value == {
        "id": 1,
        "name": "x",
        "price": Decimal("9.50"),
        "day": date(2020, 2, 3),
        "changed": NOON,
    }
    assert record.value_schema == struct_of(
        "orders",
        id=INT64,
        name=STRING.as_optional(),
        price=decimal_of(2).as_optional(),
        day=DATE.as_optional(),
        changed=TIMESTAMP,
    )
    record.value_schema.validate(record.value)
    assert (record.source_partition, record.source_offset) == ({"table": "orders"}, {"id": 1})


def test_new_rows_by_a_number(database, read):
    """In order, so many at once, and behind the last one after a restart."""
    for number in (3, 1, 2):
        insert(database, number)
    poll = read(**{"batch.rows": "2"})

    assert [ids(poll()), ids(poll()), ids(poll())] == [[1, 2], [3], []]
    insert(database, 4)
    assert ids(read()()) == [4]


def test_changed_rows_by_time(database, read):
    """Rows that share a time come together, however many they are."""
    for number in range(5):
        insert(database, number, NOON + timedelta(hours=number // 3))
    poll = read(mode="timestamp", **{"batch.rows": "2"})

    assert [ids(poll()), ids(poll()), ids(poll())] == [[0, 1, 2], [3, 4], []]
    database("UPDATE orders SET changed = '2020-02-04 00:00:00.123456' WHERE id = 1")
    assert ids(poll()) == [1]
    assert ids(read(mode="timestamp")()) == []


def test_changed_rows_by_time_and_number(database, read):
    """The number tells rows of one time apart."""
    for number in range(5):
        insert(database, number)
    mode = {"mode": "timestamp+incrementing", "batch.rows": "2"}

    assert ids(read(**mode)()) == [0, 1]
    poll = read(**mode)
    assert [ids(poll()), ids(poll()), ids(poll())] == [[2, 3], [4], []]


def test_times_that_are_too_new_wait(database, read):
    """A transaction that is not over yet may still add rows of the same time."""
    insert(database, 1, datetime.now(UTC).replace(tzinfo=None))
    insert(database, 2)

    assert ids(read(mode="timestamp", **{"delay.ms": "3600000"})()) == [2]


def test_the_whole_table_each_time(database, read):
    """mode=bulk."""
    insert(database, 1)
    poll = read(mode="bulk")

    assert [ids(poll()), ids(poll())] == [[1], [1]]


def test_tasks_share_the_tables(database):
    """No more tasks than tables."""
    settings = SqlSource.Settings.parse({"url": database.url, "tables": "a,b,c"})
    planned = SqlSource(settings, LoneContext()).tasks(2)
    owned = [
        SqlSource(
            SqlSource.Settings.parse({"url": database.url, "tables": "a,b,c"} | task), LoneContext()
        )._own_tables()
        for task in planned
    ]

    assert owned == [["a", "c"], ["b"]]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tables": "nothing"}, "table nothing: must be in the database"),
        ({"incrementing.column": "no"}, "mode=incrementing: orders must have no"),
        ({"url": "nothing://x"}, "url: must be a database that SQLAlchemy can reach"),
    ],
)
def test_what_is_not_there_is_named(read, settings, text):
    """When it is asked for."""
    with pytest.raises(ConfigError, match=text):
        read(**settings)()


@pytest.fixture
def sink(database):
    """Starts sinks, and keeps what they report; stops them after the test."""
    made = []

    def start(**settings):
        reported = []

        def report(record, error):
            reported.append((record.offset, str(error)))
            return Future()

        given = {"url": database.url} | settings
        found = SqlSink(SqlSink.Settings.parse(given), SimpleNamespace(report=report))
        made.append(found)
        found.start()
        return found, reported

    yield start
    for each in made:
        each.stop()


def record(offset, value, **more):
    return SinkRecord(topic="people", partition=0, offset=offset, value=value, **more)


PERSON = struct_of("Person", id=INT64, name=STRING.as_optional(), born=DATE.as_optional())
UPSERT = {"insert.mode": "upsert", "primary.key": "id", "auto.create": "true"}


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


def test_null_keys_and_nested_values_are_refused(database, sink):
    """A table has columns of simple types, and rows that can be found again."""
    writer, reported = sink(**UPSERT)
    nested = struct_of(id=INT64, l=array_of(INT64))
    writer.put([record(0, {"id": 1, "l": []}, value_schema=nested)])
    writer.put([record(1, {"id": None, "name": "x"}, value_schema=PERSON)])

    assert "must be simple to be a column; Flatten makes structs so" in reported[0][1]
    assert "primary.key id must not be null" in reported[1][1]


@pytest.mark.parametrize("seed", range(5))
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


def test_settings_of_the_sink():
    """A row is found by its key only."""
    with pytest.raises(ConfigError, match=r"primary\.key=: must be set with insert\.mode=upsert"):
        SqlSink.Settings.parse({"url": "sqlite://", "insert.mode": "upsert"})
