"""Tables of databases, by SQLAlchemy: new rows as records, and records as rows."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy
from contexts import LoneContext, through_json

from ottla.connect.connector import TryAgainError
from ottla.connect.connectors.databases import Database
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
LOOSE = {"validate.non.null": "false"}


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

        poll.source = source
        return poll

    def behind(offset, **settings):
        """A source that goes on behind a stored offset."""
        stored.clear()
        stored[("table", "orders"),] = offset
        return start(**settings).source

    start.behind = behind
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
        "changed": NOON.replace(tzinfo=UTC),
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


@pytest.mark.parametrize("arrived", range(8))
@pytest.mark.parametrize("batch", ["1", "3", "1000"])
def test_rows_of_one_time_come_again_if_only_some_have_arrived(database, read, arrived, batch):
    """A source that goes on behind any of its records, with a restart, misses no row."""
    times = [NOON, NOON, NOON, NOON + timedelta(hours=1), NOON + timedelta(hours=1)]
    for number, at in enumerate([*times, NOON + timedelta(hours=2), NOON + timedelta(hours=2)]):
        insert(database, number, at)
    settings = {"mode": "timestamp", "batch.rows": batch}
    source = read(**settings).source
    sent = [each for _ in range(7) for each in source.poll()][:arrived]
    again = read.behind(sent[-1].source_offset if sent else None, **settings)
    found = [each.value["id"] for _ in range(7) for each in again.poll()]

    assert {each.value["id"] for each in sent} | set(found) == set(range(7))
    assert len(found) <= 7 - arrived + 2, "no more than the rows of one time come twice"


def test_changed_rows_by_time_and_number(database, read):
    """The number tells rows of one time apart."""
    for number in range(5):
        insert(database, number)
    mode = {"mode": "timestamp+incrementing", "batch.rows": "2"}

    assert ids(read(**mode)()) == [0, 1]
    poll = read(**mode)
    assert [ids(poll()), ids(poll()), ids(poll())] == [[2, 3], [4], []]


@pytest.mark.parametrize("batch", ["1", "2", "3", "7", "100"])
@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
def test_rows_that_share_a_number_are_read_together(database, read, mode, batch):
    """The border of a batch is never between them, whatever their column is declared to be."""
    for number, shared in enumerate([1, 1, 1, 2, 3, 3, 4, 4, 4, 4, 4, 5]):
        database(
            "INSERT INTO orders VALUES (?, ?, ?, NULL, ?)",
            *(number, str(number), shared, (NOON + timedelta(hours=shared)).isoformat(" ")),
        )
    poll = read(mode=mode, **{"incrementing.column": "price", "batch.rows": batch, **LOOSE})
    found = [ids(poll()) for _ in range(12)]

    assert sorted(each for some in found for each in some) == list(range(12))


def test_times_that_are_too_new_wait(database, read):
    """A transaction that is not over yet may still add rows of the same time."""
    insert(database, 1, datetime.now(UTC).replace(tzinfo=None))
    insert(database, 2)

    assert ids(read(mode="timestamp", **{"delay.ms": "3600000"})()) == [2]


class Times:
    """A clock that is put on by hand, in place of that of a database."""

    def __init__(self, monkeypatch, now):
        self.now = now
        monkeypatch.setattr(Database, "now", lambda database, connection: self.now)

    def go_on(self, **time):
        self.now += timedelta(**time)


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_rows_of_one_second_are_read_once_it_is_over(database, read, monkeypatch, mode):
    """Rows whose times are in whole seconds are not missed, whenever the source asks."""
    times = Times(monkeypatch, datetime(2026, 1, 1, tzinfo=UTC))
    poll = read(mode=mode)
    numbers, found = list(range(40)), []
    for number in reversed(numbers):
        database("INSERT INTO orders VALUES (?, 'x', 1, NULL, ?)", number, f"{times.now:%F %T}")
        found += ids(poll())
        times.go_on(milliseconds=230)
    times.go_on(seconds=2)
    found += ids(poll())

    assert sorted(found) == numbers


FORMS = {
    "text": lambda at: f"{at:%F %T}",
    "text with T": lambda at: f"{at:%FT%T}",
    "text with Z": lambda at: f"{at:%FT%T}Z",
    "another zone": lambda at: at.astimezone(ZoneInfo("Asia/Kolkata")).isoformat(),
    "fractions": lambda at: at.replace(tzinfo=None).isoformat(),
    "milliseconds": lambda at: at.replace(tzinfo=None).isoformat("T", "milliseconds"),
    "minutes": lambda at: f"{at:%F %H:%M}",
    "days": lambda at: f"{at:%F}",
    "unix seconds": lambda at: int(at.timestamp()),
    "unix time": lambda at: at.timestamp(),
    "unix milliseconds": lambda at: int(at.timestamp() * 1000),
    "julian days": lambda at: at.timestamp() / 86400 + 2440587.5,
    "digits": lambda at: f"{at:%Y%m%d%H%M%S}",
}
FINE = ["text", "text with T", "text with Z", "another zone", "fractions", "milliseconds"]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TEXT", "REAL"])
@pytest.mark.parametrize("form", [*FORMS, "mixed"])
def test_no_row_is_missed_in_whatever_form_sqlite_has_times(
    database, read, monkeypatch, kind, form
):
    """Rows that are written while the source reads come once, restarts or not."""
    times = Times(monkeypatch, datetime(2026, 1, 1, 23, 58, 30, tzinfo=UTC))
    database(f"CREATE TABLE notes (id INTEGER PRIMARY KEY, changed {kind})")
    mode = "timestamp" if len(kind + form) % 2 else "timestamp+incrementing"
    settings = {"tables": "notes", "mode": mode, "batch.rows": "3"}
    numbers, found = list(range(24)), []
    poll = read(**settings)
    for number in reversed(numbers):
        spelled = FINE[number % len(FINE)] if form == "mixed" else form
        database("INSERT INTO notes VALUES (?, ?)", number, FORMS[spelled](times.now))
        if number == 9:
            poll = read(**settings)
        if number % 3:
            found += poll()
        times.go_on(milliseconds=5170)
    times.go_on(days=1)
    while some := poll():
        found += some

    names = [each.value["id"] if each.error is None else each.error.message for each in found]
    assert len(names) == len(numbers)
    assert len(set(map(str, names))) == len(numbers)


def test_times_that_sqlite_cannot_order_are_named(database, read, caplog):
    """What is none, and what says less than others: with a value, and the setting."""
    database("CREATE TABLE notes (id INTEGER PRIMARY KEY, changed TIMESTAMP)")
    times = ["2026-01-05 11:00:07", "soon", "2026-01-05", "2026-01-04"]
    for number, each in enumerate(times):
        database("INSERT INTO notes VALUES (?, ?)", number, each)
    poll = read(tables="notes", mode="timestamp")

    assert [ids(poll()), ids(poll()), ids(poll())] == [[3, 2, 0], [], []]
    said = [each.message for each in caplog.records]
    assert sum("such as changed='soon'): they are never read" in each for each in said) == 1
    assert sum("timestamp.precision=day" in each for each in said) == 1
    caplog.clear()
    poll = read(tables="notes", mode="timestamp", **{"timestamp.precision": "day"})
    assert ids(poll()) == []
    assert "timestamp.precision" not in caplog.text


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_rows_of_a_day_are_read_once_it_is_over(database, read, monkeypatch, mode):
    """A column of dates says no more than the day."""
    times = Times(monkeypatch, datetime(2026, 1, 1, 23, tzinfo=UTC))
    poll = read(mode=mode, **{"timestamp.column": "day"})
    database("INSERT INTO orders VALUES (2, 'x', 1, '2026-01-01', '2026-01-01 00:00')")
    assert poll() == []
    database("INSERT INTO orders VALUES (1, 'x', 1, '2026-01-01', '2026-01-01 00:00')")
    times.go_on(hours=1)

    assert sorted(ids(poll())) == [1, 2]


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize(
    ("zone", "midnight"),
    [
        ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 10, 24, 20, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 10, tzinfo=UTC)),
        ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
    ],
    ids=["autumn", "at UTC", "half an hour", "spring"],
)
def test_no_row_is_missed_when_clocks_are_changed(
    database, read, monkeypatch, zone, midnight, mode
):
    """An hour that comes again is read when its second pass is over."""
    times = Times(monkeypatch, midnight)
    poll, numbers, found = read(mode=mode, **{"db.timezone": zone}), list(range(100)), []
    for number in reversed(numbers):
        insert(database, number, times.now.astimezone(ZoneInfo(zone)).replace(tzinfo=None))
        times.go_on(minutes=7)
        found += ids(poll())

    assert sorted(found) == numbers


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


@pytest.mark.parametrize("mode", ["bulk", "incrementing"])
def test_a_table_that_is_named_twice_is_read_once(database, read, mode):
    """By one of the tasks, and once in each poll."""
    insert(database, 1)
    poll = read(tables="orders,orders", mode=mode)

    assert ids(poll()) == [1]
    assert len(poll.source.tasks(2)) == 1


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"incrementing.column": "name"},
            r"incrementing\.column=name: must be a number in orders, not TEXT",
        ),
        (
            {"incrementing.column": "price"},
            r"price: must not be null in orders; with validate\.non\.null=false",
        ),
        ({"db.timezone": "Mars"}, r"db\.timezone=Mars: must be the name of a time zone"),
        ({"tables": "nothing"}, "table nothing: must be in the database"),
        ({"incrementing.column": "no"}, "mode=incrementing: orders must have no"),
        ({"url": "nothing://x"}, "url: must be a database that SQLAlchemy can reach"),
    ],
)
def test_what_is_wrong_is_named_at_the_start(read, settings, text):
    """No row is asked for."""
    with pytest.raises(ConfigError, match=text):
        read(**settings)


def test_rows_without_a_number_are_left_out_and_said_once(database, read, caplog):
    """With validate.non.null=false; they never bring the reader back to the beginning."""
    for number, price in ((1, None), (2, 5), (3, None), (4, "text"), (5, 6), (6, float("inf"))):
        insert(database, number)
        database("UPDATE orders SET price = ? WHERE id = ?", price, number)
    settings = {"incrementing.column": "price", "validate.non.null": "false", "batch.rows": "1"}
    poll = read(**settings)

    assert [ids(poll()) for _ in range(4)] == [[2], [5], [], []]
    assert ids(read(**settings)()) == []
    said = [each.message for each in caplog.records if "are never read" in each.message]
    assert len(said) == 2, "once for each start"
    assert "rows in which price is null" in said[0]


def test_rows_without_a_time_are_left_out_and_said_once(database, read, caplog):
    """Also where nulls come first, as in SQLite and MariaDB."""
    database("CREATE TABLE notes (id INTEGER PRIMARY KEY, changed TIMESTAMP)")
    for number, changed in ((1, None), (2, "2020-01-01 00:00:00"), (3, None)):
        database("INSERT INTO notes VALUES (?, ?)", number, changed)
    poll = read(tables="notes", mode="timestamp", **{"batch.rows": "1"})

    assert [ids(poll()) for _ in range(3)] == [[2], [], []]
    assert sum("are never read" in each.message for each in caplog.records) == 1


def test_columns_that_come_and_go_are_seen(database, read):
    """Without a restart, in the schema of the next rows."""
    poll = read()
    insert(database, 1)
    first = poll()[0]
    database("ALTER TABLE orders ADD COLUMN more INTEGER DEFAULT 7")
    insert_with = "INSERT INTO orders (id, changed, more) VALUES (?, '2020-01-01 00:00:00', 8)"
    database(insert_with, 2)
    second = poll()[0]
    database("ALTER TABLE orders DROP COLUMN name")
    database(insert_with, 3)
    third = poll()[0]

    assert "more" not in first.value
    assert (second.value["more"], second.value_schema.by_name["more"]) == (8, INT64.as_optional())
    assert "name" in second.value
    assert "name" not in third.value


def test_a_column_that_may_be_null_since_is_read(database, read):
    """A null says that the table is not as it was described."""
    poll = read()
    insert(database, 1)
    assert not poll()[0].value_schema.by_name["changed"].optional
    database("ALTER TABLE orders RENAME TO before")
    database(TABLE.replace("changed TIMESTAMP NOT NULL", "changed TIMESTAMP"))
    database("INSERT INTO orders (id) VALUES (2)")

    (record,) = poll()
    assert record.value["changed"] is None
    assert through_json(record)["changed"] is None


@pytest.mark.parametrize(
    ("broken", "mended", "reason"),
    [
        ("DROP TABLE orders", TABLE, "table orders: must be in the database"),
        (
            "ALTER TABLE orders RENAME COLUMN id TO number",
            "ALTER TABLE orders RENAME COLUMN number TO id",
            "orders must have id",
        ),
    ],
    ids=["dropped", "without its number"],
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_table_that_cannot_be_read_holds_up_no_other(
    database, read, caplog, broken, mended, reason, is_restarted
):
    """It is said once, and where the table is read on when it can be read again."""
    database("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    database("INSERT INTO other VALUES (1)")
    insert(database, 5)
    settings = {"tables": "orders,other"}
    poll = read(**settings)
    assert ids(poll()) == [5, 1]
    database(broken)
    if is_restarted:
        poll = read(**settings)
    for number in (2, 3):
        database("INSERT INTO other VALUES (?)", number)
        assert ids(poll()) == [number]
    database(mended)
    insert(database, 6)

    assert ids(poll()) == [6]
    said = [each.message for each in caplog.records]
    assert sum(reason in each for each in said) == 1
    assert sum("table orders can be read again, behind {'id': 5}" in each for each in said) == 1


def test_an_outage_is_waited_for(database, read, caplog):
    """The database is asked again, and the rows come when it answers."""
    insert(database, 1)
    poll = read(url=f"{database.url}?timeout=0")
    with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert poll() == []

    assert ids(poll()) == [1]
    assert "table orders: database is locked; it is asked again" in caplog.text


ZONES = ["UTC", "Asia/Tokyo", "America/New_York"]


@pytest.fixture(params=["UTC", "Asia/Kolkata"])
def of_process(request, monkeypatch):
    """The zone of the process, which must not matter."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("zone", ZONES)
def test_times_without_a_zone_are_in_that_of_the_database(database, read, sink, zone, of_process):
    """Read, compared with the present, and written: summer time too."""
    now = datetime.now(ZoneInfo(zone)).replace(tzinfo=None) - timedelta(seconds=2)
    winter, summer = datetime(2026, 1, 15, 12), datetime(2026, 7, 15, 12)
    for number, at in enumerate((winter, summer, now, now - timedelta(hours=2))):
        insert(database, number, at)
    zoned = {"db.timezone": zone, "mode": "timestamp"}
    records = read(**zoned)()
    late = read(**zoned, **{"delay.ms": "3600000", "topic.prefix": "late-"})

    assert ids(records) == [0, 1, 3, 2]
    moments = [record.value["changed"] for record in records]
    expected = [at.replace(tzinfo=ZoneInfo(zone)) for at in (winter, summer)]
    assert moments[:2] == expected
    assert through_json(records[0])["changed"] == int(expected[0].timestamp() * 1000)
    assert ids(late()) == []
    writer, reported = sink(**UPSERT, table="orders", **{"db.timezone": zone})
    writer.put([record(9, each.value, value_schema=each.value_schema) for each in records])
    assert not reported
    kept = [text for (text,) in database("SELECT changed FROM orders ORDER BY id LIMIT 2")]
    assert kept == ["2026-01-15 12:00:00.000000", "2026-07-15 12:00:00.000000"]


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


@pytest.mark.parametrize("key_type", ["INTEGER", "TEXT", "TEXT COLLATE NOCASE", "NUMERIC"])
@pytest.mark.parametrize("seed", range(2))
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
