"""Tables of databases, by SQLAlchemy: new rows as records, and records as rows."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from breadth import some
from contexts import LoneContext, through_json
from sql_tables import NOON, TABLE, UPSERT, ids, insert, record

from ottla.connect.connectors.databases import Database
from ottla.connect.connectors.sql import SqlSource
from ottla.connect.data import (
    DATE,
    INT64,
    STRING,
    TIMESTAMP,
    decimal_of,
    struct_of,
)
from ottla.errors import ConfigError

LOOSE = {"validate.non.null": "false"}


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


@pytest.mark.parametrize(("arrived", "batch"), some(product(range(8), ["1", "3", "1000"])))
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


@pytest.mark.parametrize(
    ("form", "kind"), some(product([*FORMS, "mixed"], ["TIMESTAMP", "TEXT", "REAL"]))
)
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


@pytest.mark.parametrize(
    "mode", ["timestamp", pytest.param("timestamp+incrementing", marks=pytest.mark.wide)]
)
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
    """Rows without a time are left out, also where nulls come first, as in SQLite and MariaDB."""
    database("CREATE TABLE notes (id INTEGER PRIMARY KEY, changed TIMESTAMP)")
    for number, changed in ((1, None), (2, "2020-01-01 00:00:00"), (3, None)):
        database("INSERT INTO notes VALUES (?, ?)", number, changed)
    poll = read(tables="notes", mode="timestamp", **{"batch.rows": "1"})

    assert [ids(poll()) for _ in range(3)] == [[2], [], []]
    assert sum("are never read" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize("mode", ["incrementing", "timestamp", "timestamp+incrementing"])
def test_rows_of_a_table_that_was_made_again_are_told_of(database, read, caplog, mode):
    """They are before the offset, and not read until a person has deleted that."""
    settings = {"mode": mode, "timestamp.column": "changed"}
    for number in (7, 8, 9):
        insert(database, number, NOON + timedelta(days=number))
    poll = read(**settings)

    def told():
        return sum("all of its rows are before" in each.message for each in caplog.records)

    assert [ids(poll()), ids(poll())] == [[7, 8, 9], []]
    database("DELETE FROM orders WHERE id < 9")
    assert [ids(poll()) for _ in range(9)] == [[]] * 9
    database("DELETE FROM orders")
    assert [ids(poll()) for _ in range(9)] == [[]] * 9
    assert told() == 0, "the last row is there, or none is"
    insert(database, 1)
    assert [ids(poll()) for _ in range(70)] == [[]] * 70
    assert told() == 1
    insert(database, 10, NOON + timedelta(days=10))
    assert ids(poll()) == [10]


@pytest.mark.parametrize(
    ("mode", "offset"),
    [
        ("incrementing", {"id": 3}),
        ("incrementing", {"id": "123456789012345678901234567890"}),
        ("timestamp", {"changed": "2020-02-04 00:00:00.5+00"}),
        ("timestamp", {"changed": 1580731200}),
        ("timestamp+incrementing", {"changed": "2020-02-04", "id": 3}),
        ("bulk", {}),
        ("bulk", None),
        ("incrementing", None),
    ],
)
def test_offsets_that_a_person_sets(mode, offset):
    """A place in the order of rows; any can be deleted, also of a table that is read no longer."""
    assert SqlSource.alter_offsets(given(mode), [({"table": "orders"}, offset)])
    assert SqlSource.alter_offsets(given(mode), [({"table": "gone"}, None), ({"x": 1}, None)])


@pytest.mark.parametrize(
    ("mode", "offset"),
    [
        ("incrementing", {}),
        ("incrementing", {"id": None}),
        ("incrementing", {"id": "x"}),
        ("incrementing", {"id": "NaN"}),
        ("incrementing", {"id": True}),
        ("incrementing", {"id": [1]}),
        ("incrementing", {"id": 1, "changed": "2020-02-04"}),
        ("incrementing", {"ID": 1}),
        ("timestamp", {"changed": "yesterday"}),
        ("timestamp", {"changed": None}),
        ("timestamp+incrementing", {"id": 1}),
        ("timestamp+incrementing", {"changed": "2020-02-04", "id": "2020-02-04"}),
        ("bulk", {"id": 1}),
    ],
)
def test_offsets_that_are_no_place_are_refused(mode, offset):
    """They ended the task at each start, or had all rows read once more."""
    with pytest.raises(ConfigError, match="offset="):
        SqlSource.alter_offsets(given(mode), [({"table": "orders"}, offset)])
    for partition in ({"table": "others"}, {"table": 1}, {}, {"table": "orders", "x": 1}):
        with pytest.raises(ConfigError, match="must have the one key table, and one of orders"):
            SqlSource.alter_offsets(given(mode), [(partition, {"id": 1})])


@pytest.mark.parametrize("url", ["sqlite://", "postgresql+psycopg://h/d", "mysql+pymysql://h/d"])
def test_offset_of_a_time_is_one_that_the_database_has(url):
    """A number ended the task at each start; of a day that there is not, all rows came again."""
    is_sqlite = url.startswith("sqlite")
    for value, is_right in (
        ("2020-02-29", True),
        ("2020-02-04T10:00", True),
        ("2020-02-04 10:00:00.123456+01", True),
        ("2020-02-04 10:00:00.123456+01:00", True),
        ("12020-02-04", not is_sqlite),
        ("0044-03-15 BC", not is_sqlite),
        (1580731200, is_sqlite),
        ("1580731200", is_sqlite),
        ("2021-02-29", False),
        ("2020-13-01", False),
        ("2020-02-04T24:30", False),
        ("2020-02-04garbage", False),
        ("infinity", False),
        ("", False),
        (True, False),
        (None, False),
        (["2020-02-04"], False),
    ):
        wanted = [({"table": "orders"}, {"changed": value})]
        with nullcontext() if is_right else pytest.raises(ConfigError, match="must be a time"):
            SqlSource.alter_offsets(given("timestamp", url), wanted)


def given(mode, url="sqlite://"):
    settings = {"url": url, "tables": "orders", "timestamp.column": "changed"}
    return SqlSource.Settings.parse({**settings, "mode": mode})


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
