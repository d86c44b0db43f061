"""SQLite: which times are compared, and that none of those that matter is left out for that."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

import pytest
import sqlalchemy
from contexts import LoneContext

from ottla.connect.connectors.column_times import EPOCH, MICROSECOND, moment_us
from ottla.connect.connectors.sql import SqlSource
from ottla.connect.connectors.sqlite import MOMENT

FIRST = datetime(2025, 12, 1)
FORMS = {
    "text": lambda at: at.isoformat(" ", "seconds"),
    "text with a zone": lambda at: (at - timedelta(hours=12)).isoformat("T") + "-12:00",
    "text far to the east": lambda at: (at + timedelta(hours=23)).isoformat("T") + "+23:00",
    "digits": lambda at: at.strftime("%Y%m%d%H%M%S"),
    "digits as a number": lambda at: int(at.strftime("%Y%m%d%H%M%S")),
    "seconds": lambda at: (at - EPOCH) // timedelta(seconds=1),
    "seconds as text": lambda at: str((at - EPOCH) // timedelta(seconds=1)),
    "milliseconds": lambda at: (at - EPOCH) // timedelta(milliseconds=1),
    "microseconds": lambda at: (at - EPOCH) // MICROSECOND,
    "nanoseconds": lambda at: (at - EPOCH) // MICROSECOND * 1000,
    "Julian days": lambda at: (at - EPOCH) / timedelta(days=1) + 2_440_587.5,
    "a day": lambda at: at.strftime("%Y-%m-%d"),
    "a day as a number": lambda at: int(at.strftime("%Y%m%d")),
}


@pytest.fixture
def table(tmp_path):
    """Makes a table of rows with a time each, with or without an index; returns its URL."""

    def made(times, kind="TIMESTAMP", is_indexed=False):
        path = tmp_path / "shop.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DROP TABLE IF EXISTS t")
            connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, changed {kind})")
            if is_indexed:
                connection.execute("CREATE INDEX by_time ON t (changed)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(times)))
        return f"sqlite:///{path}"

    return made


@pytest.fixture
def source():
    """Starts sources, which are stopped after the test."""
    started = []

    def start(url, context=None, **given):
        settings = {"url": url, "tables": "t", "timestamp.column": "changed", "batch.rows": "7"}
        settings |= {"mode": "timestamp+incrementing"} | given
        settings = {key: value for key, value in settings.items() if value is not None}
        found = SqlSource(SqlSource.Settings.parse(settings), context or LoneContext())
        started.append(found)
        found.start()
        return found

    yield start
    for each in started:
        each.stop()


def read_to_the_end(source):
    """The numbers and the times of the rows."""
    found = []
    while records := source.poll():
        assert len(records) <= 7
        found += [tuple(record.value.values()) for record in records]
    return found


ISO = {"time.precision.mode": "isostring"}


@pytest.mark.parametrize(
    ("spread", "kind", "is_indexed"),
    [
        (timedelta(hours=3), "TIMESTAMP", True),
        pytest.param(timedelta(days=9), "VARCHAR(40)", False, marks=pytest.mark.wide),
        pytest.param(timedelta(days=4000), "TIMESTAMP", False, marks=pytest.mark.wide),
        (timedelta(days=4000), "VARCHAR(40)", True),
    ],
)
def test_rows_come_in_the_order_of_their_times(table, source, kind, is_indexed, spread):
    """In any mixture of forms, close together and years apart: each row once, in its turn."""
    chance = Random(7)
    for form in FORMS:
        forms = ["text", "seconds", form] if form != "text" else sorted(FORMS)
        ats = [FIRST - spread * chance.random() for _ in range(40)] + [FIRST] * 9
        given = [FORMS[chance.choice(forms)](at.replace(microsecond=0)) for at in ats]

        found = read_to_the_end(source(table(given, kind, is_indexed), **ISO))

        assert sorted(number for number, _ in found) == list(range(len(given))), form
        moments = [moment_us(time, UTC) for _, time in found]
        assert moments == sorted(moments), form


@pytest.mark.parametrize("form", ["text", "text with a zone", "seconds", "milliseconds"])
@pytest.mark.parametrize("is_indexed", [False, True])
def test_few_times_are_compared_however_many_there_are(table, source, form, is_indexed):
    """At the beginning, in the middle, and when nothing is new: not all of them each time."""
    times = [FORMS[form](FIRST - timedelta(days=1, hours=n)) for n in range(3000)]
    reader = source(table(times, is_indexed=is_indexed))
    compared = []

    @sqlalchemy.event.listens_for(reader._engine, "before_cursor_execute")
    def count(connection, cursor, *_):
        def moment(raw):
            compared.append(raw)
            return moment_us(raw, UTC)

        cursor.connection.create_function(MOMENT, 1, moment, deterministic=True)

    for _ in range(3):
        assert len(reader.poll()) == 7
    assert len(compared) < 3 * 5 * 200
    reader._offsets["t"] = {"changed": times[0], "id": 0}
    compared.clear()
    for _ in range(3):
        assert reader.poll() == []
    assert len(compared) < 3 * 5 * 200


def test_a_gap_in_time_holds_nothing_up(table, source):
    """Many rows that were read just before it, and none for years behind them."""
    old = [FORMS["text"](datetime(2001, 1, 1, 0, n // 60, n % 60)) for n in range(50)]
    new = [FORMS["text"](datetime(2020, 1, 1, 0, 0, n)) for n in range(20)]

    assert [number for number, _ in read_to_the_end(source(table(old + new)))] == list(range(70))


NUMBERS = [-(2**63), -5, 0, 3, 4, 2**63 - 1]


@pytest.mark.parametrize(
    "offset",
    [
        None,
        3,
        "3",
        3.5,
        -(2**63),
        2**63 - 1,
        -(2**64),
        2**63,
        10**30,
        -(10**30),
        "1e400",
        1e300,
    ],
)
def test_numbers_of_any_size_are_places(tmp_path, source, offset):
    """One beyond 64 bits ended the task at each start; the least one stopped the whole table."""
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO t VALUES (?)", [(each,) for each in NUMBERS])
    place = {} if offset is None else {(("table", "t"),): {"id": offset}}
    found = source(
        f"sqlite:///{path}",
        LoneContext(place),
        mode="incrementing",
        **{"incrementing.column": "id", "timestamp.column": None},
    )

    assert [each.value["id"] for each in found.poll() or ()] == [
        each for each in NUMBERS if offset is None or each > Decimal(offset)
    ]
