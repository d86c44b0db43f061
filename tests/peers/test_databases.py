"""SqlSource and SqlSink with a real PostgreSQL and a real MariaDB: types, zones, changes, kills."""

from __future__ import annotations

import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from contexts import WITH_SCHEMAS, LoneContext, through_json
from mariadb import MariaDb
from postgres import Postgres

from ottla.connect.connector import TryAgainError
from ottla.connect.connectors.sql import SqlSource
from ottla.connect.connectors.sql_sink import SqlSink
from ottla.connect.data import INT64, STRING, TIMESTAMP, SinkRecord, struct_of
from ottla.errors import ConfigError
from ottla.testing import wait_until

TEXT = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "array.handling.mode": "json",
}
FINEST = {"timestamp.precision": "microsecond"}
NUMBERS, TIMES, ARRAYS = (f"{key}={word}" for key, word in TEXT.items())
PREPARED = """
DROP TABLE IF EXISTS t, copy, made; DROP TYPE IF EXISTS mood CASCADE;
DROP DOMAIN IF EXISTS cents CASCADE;
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN cents AS int8
"""
OF_POSTGRES = [
    ("bool", "true", True, True),
    ("int2", "-32768", -32768, -32768),
    ("int8", str(2**63 - 1), 2**63 - 1, 2**63 - 1),
    ("float4", "0.1", 0.1, 0.1),
    ("float8", "'NaN'", "NaN", "NaN"),
    ("float8", "'-Infinity'", "-Infinity", "-Infinity"),
    ("numeric(10, 2)", "1.5", "AJY=", "1.50"),
    ("numeric(10, 2)", "'NaN'", NUMBERS, "NaN"),
    ("numeric(5, -2)", "12345", "ew==", "12300"),
    ("numeric", "1e30", f"1{'0' * 30}", f"1{'0' * 30}"),
    ("numeric", "'Infinity'", "Infinity", "Infinity"),
    ("money", "12.5", "BOI=", "12.50"),
    ("text", "'Zoë 😀'", "Zoë 😀", "Zoë 😀"),
    ("char(3)", "'a'", "a  ", "a  "),
    ("bytea", "'\\x00ff'", "AP8=", "AP8="),
    ("bit(3)", "B'101'", "101", "101"),
    ("date", "'2020-02-03'", 18295, "2020-02-03"),
    ("date", "'infinity'", TIMES, "infinity"),
    ("date", "'0044-03-15 BC'", TIMES, "-0043-03-15"),
    ("date", "'10000-01-01'", TIMES, "+10000-01-01"),
    ("time", "'04:05:06.789'", 14706789, "04:05:06.789"),
    ("time", "'24:00'", TIMES, "24:00:00"),
    ("timetz", "'04:05:06+09'", "04:05:06+09", "04:05:06+09"),
    ("timestamp", "'1970-01-01 00:00:01.5'", 1500, "1970-01-01T00:00:01.5"),
    ("timestamp", "'infinity'", TIMES, "infinity"),
    ("timestamp", "'0044-03-15 12:00 BC'", TIMES, "-0043-03-15T12:00:00"),
    ("timestamp", "'294276-12-31 00:00'", TIMES, "+294276-12-31T00:00:00"),
    ("timestamptz", "'1970-01-01 09:00:01+09'", 1000, "1970-01-01T00:00:01Z"),
    ("timestamptz", "'-infinity'", TIMES, "-infinity"),
    ("timestamptz", "'9999-12-31 23:59:00-12'", TIMES, "+10000-01-01T11:59:00Z"),
    ("interval", "'1 year 2 days 03:04:05.6'", "P1Y2DT3H4M5.6S", "P1Y2DT3H4M5.6S"),
    (
        "uuid",
        "'00000000-0000-0000-0000-0000000000ff'",
        *["00000000-0000-0000-0000-0000000000ff"] * 2,
    ),
    ("json", """'{"a": null, "b":[true]}'""", *['{"a": null, "b":[true]}'] * 2),
    ("jsonb", """'{"a":null}'""", '{"a": null}', '{"a": null}'),
    ("jsonb", "'null'", "null", "null"),
    ("xml", "'<a>x</a>'", "<a>x</a>", "<a>x</a>"),
    ("inet", "'1.2.3.4'", "1.2.3.4", "1.2.3.4"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8", "10.0.0.0/8"),
    ("int4range", "'[1,5)'", "[1,5)", "[1,5)"),
    ("point", "'(1,2)'", "(1,2)", "(1,2)"),
    ("tsvector", "'a b'", "'a' 'b'", "'a' 'b'"),
    ("mood", "'sad'", "sad", "sad"),
    ("cents", "5", 5, 5),
    ("int4[]", "'{1,NULL,3}'", [1, None, 3], "[1,null,3]"),
    ("int4[]", "'{}'", [], "[]"),
    ("int4[]", "'{{1,2},{3,4}}'", ARRAYS, "[[1,2],[3,4]]"),
    (
        "text[]",
        """'{a,"b c","NULL",NULL}'""",
        ["a", "b c", "NULL", None],
        '["a","b c","NULL",null]',
    ),
    ("numeric[]", "'{1.5,NaN}'", ["1.5", "NaN"], '[1.5,"NaN"]'),
    ("bytea[]", """'{"\\\\x00ff"}'""", ["AP8="], '["\\\\x00ff"]'),
    ("jsonb[]", """ARRAY['{"a":1}'::jsonb]""", ['{"a": 1}'], '[{"a": 1}]'),
    ("date[]", "'{2020-02-03,infinity}'", TIMES, '["2020-02-03","infinity"]'),
    ("mood[]", "'{sad,ok}'", ["sad", "ok"], '["sad","ok"]'),
]
OF_MARIADB = [
    ("boolean", "true", 1, 1),
    ("bigint", "-9223372036854775808", -(2**63), -(2**63)),
    ("bigint unsigned", str(2**64 - 1), "AP//////////", str(2**64 - 1)),
    ("float", "16777216", 16777216.0, 16777216.0),
    ("float", "0.1", 0.1, 0.1),
    ("double", "1e-320", 1e-320, 1e-320),
    ("decimal(10, 2)", "1.5", "AJY=", "1.50"),
    ("decimal(65, 30)", f"{'9' * 35}.{'9' * 30}", None, f"{'9' * 35}.{'9' * 30}"),
    ("bit(1)", "b'1'", True, True),
    ("bit(9)", "b'100000001'", "AQE=", "AQE="),
    ("date", "'2020-02-03'", 18295, "2020-02-03"),
    ("date", "'0000-00-00'", TIMES, "0000-00-00"),
    ("date", "'2020-02-00'", TIMES, "2020-02-00"),
    ("time(3)", "'04:05:06.789'", 14706789, "04:05:06.789"),
    ("time", "'-838:59:59'", TIMES, "-838:59:59"),
    ("time", "'24:00:00'", TIMES, "24:00:00"),
    ("datetime(3)", "'1970-01-01 00:00:01.5'", 1500, "1970-01-01T00:00:01.500"),
    ("datetime", "'0000-00-00 00:00:00'", TIMES, "0000-00-00T00:00:00"),
    ("datetime", "'9999-12-31 23:59:59'", 253402300799000, "9999-12-31T23:59:59"),
    ("timestamp(3) null", "'1970-01-02 00:00:01.5'", 86401500, "1970-01-02T00:00:01.500Z"),
    ("timestamp", "'0000-00-00 00:00:00'", TIMES, "0000-00-00T00:00:00Z"),
    ("year", "0", 0, 0),
    ("year", "2155", 2155, 2155),
    ("varchar(9)", "'Zoë 😀'", "Zoë 😀", "Zoë 😀"),
    ("longtext", "''", "", ""),
    ("binary(2)", "'a'", "YQA=", "YQA="),
    ("varbinary(3)", "x'00ff'", "AP8=", "AP8="),
    ("blob", "x'00ff'", "AP8=", "AP8="),
    ("enum('a', 'b')", "'a'", "a", "a"),
    ("set('a', 'b')", "'a,b'", "a,b", "a,b"),
    ("json", """'{"a": null}'""", '{"a": null}', '{"a": null}'),
    ("inet6", "'::1'", "::1", "::1"),
    (
        "uuid",
        "'00000000-0000-0000-0000-0000000000ff'",
        *["00000000-0000-0000-0000-0000000000ff"] * 2,
    ),
]


class OfPostgres:
    """A PostgreSQL, and what is to be known of it."""

    def __init__(self, folder):
        self.server = Postgres(folder)
        self.url = f"postgresql+psycopg://ottla@127.0.0.1:{self.server.port}/postgres"
        self.types = OF_POSTGRES
        self.as_text = "v::text"
        self.naive, self.zoned, self.now = "timestamp", "timestamptz", "now()"
        self.narrower = (
            ("timestamp", "timestamp(0)"),
            ("timestamptz", "timestamptz(0)"),
            ("timestamp", "timestamp(3)"),
            ("timestamp(3)", "timestamp(1)"),
            ("timestamp", "date"),
            ("timestamptz", "date"),
        )
        self.altered = "ALTER TABLE t ALTER updated_at TYPE {}"
        self.cut = {
            "second": "date_trunc('second', at)",
            "minute": "date_trunc('minute', at)",
            "hour": "date_trunc('hour', at)",
            "day": "date_trunc('day', at)",
        }
        self.coarse = ("timestamp(0)", "timestamptz(0)", "timestamp(3)", "timestamptz")
        self.far = {
            "timestamp": (
                *("-infinity", "4713-01-01 00:00:00 BC", "0001-01-01 00:00:00"),
                *("1970-01-01 00:00:00", "2025-11-02 01:30:00", "2025-11-02 01:30:00.000001"),
            ),
            "timestamptz": ("-infinity", "0044-03-15 12:00:00+00 BC", "1969-12-31 23:59:59.9+00"),
            "date": ("-infinity", "4713-01-01 BC", "0001-01-01", "2025-11-02"),
        }
        self.to_come = ("9999-12-31 23:59:59", "infinity")

    def run(self, *statements):
        return [self.server.execute(statement) for statement in statements][-1]

    def prepare(self):
        self.run(PREPARED)

    def set_zone(self, zone, *, of_writers=True):
        """The zone of sessions that do not set their own; times are written with theirs."""
        self.run(f"ALTER ROLE ottla SET timezone = '{zone}'")

    def stop(self):
        self.server.stop()


class OfMariaDb:
    """A MariaDB, and what is to be known of it."""

    def __init__(self, folder):
        self.server = MariaDb(folder)
        self.url = self.server.url
        self.types = OF_MARIADB
        self.as_text = "hex(v)"
        self.naive, self.zoned, self.now = "datetime(6)", "timestamp(6)", "now(6)"
        self.narrower = (
            ("datetime(6)", "datetime"),
            ("timestamp(6)", "timestamp"),
            ("datetime(6)", "datetime(3)"),
            ("datetime(6)", "date"),
        )
        self.altered = "ALTER TABLE t MODIFY updated_at {} NULL"
        self.cut = {
            "second": "cast(date_format(at, '%Y-%m-%d %H:%i:%s') AS datetime(6))",
            "minute": "cast(date_format(at, '%Y-%m-%d %H:%i:00') AS datetime(6))",
            "hour": "cast(date_format(at, '%Y-%m-%d %H:00:00') AS datetime(6))",
            "day": "cast(date_format(at, '%Y-%m-%d') AS datetime(6))",
        }
        self.coarse = ("datetime", "timestamp", "datetime(3)", "timestamp(6)")
        self.far = {
            "datetime(6)": (
                *("0000-00-00 00:00:00", "0001-01-01 00:00:00", "1970-01-01 00:00:00"),
                *("2025-11-02 01:30:00", "2025-11-02 01:30:00.000001"),
            ),
            "timestamp": ("0000-00-00 00:00:00", "1970-01-01 00:00:01", "2025-11-02 05:30:00"),
            "date": ("0000-00-00", "2020-02-00", "2025-11-02"),
        }
        self.to_come = ("2038-01-19 03:14:07",)
        self._zone = "+00:00"

    def run(self, *statements):
        loose = "SET sql_mode = ''"  # so that zero dates can be written
        return self.server.execute(loose, *statements, zone=self._zone)

    def prepare(self):
        self.run("DROP TABLE IF EXISTS t, copy, made")

    def set_zone(self, zone, *, of_writers=True):
        offset = datetime.now(ZoneInfo(zone)).strftime("%z")
        offset = f"{offset[:3]}:{offset[3:]}"
        self._zone = offset if of_writers else "+00:00"
        self.run(f"SET GLOBAL time_zone = '{offset}'")

    def stop(self):
        self.server.stop()


@pytest.fixture(scope="module", params=[OfPostgres, OfMariaDb])
def server(request):
    """In a folder that the server's own user can reach."""
    with TemporaryDirectory(prefix="ottla-database-") as folder:
        made = request.param(Path(folder))
        yield made
        made.stop()


@pytest.fixture
def database(server):
    """Without the tables of earlier tests, in UTC."""
    server.set_zone("UTC")
    server.prepare()
    return server


@pytest.fixture
def source(database):
    """Starts sources, which are stopped after the test."""
    made = []

    def start(stored=None, **given):
        settings = {"url": database.url, "tables": "t"} | given
        offsets = {(place,): offset for place, offset in (stored or {}).items()}
        found = SqlSource(SqlSource.Settings.parse(settings), LoneContext(offsets))
        made.append(found)
        found.start()
        return found

    start.made = made
    yield start
    for each in made:
        each.stop()


@pytest.fixture
def sink(database):
    """Starts sinks, which are stopped after the test; with what they report."""
    made = []

    def start(**given):
        reported = []

        def report(record, error):
            reported.append((record.value, str(error)))
            return Future()

        settings = {"url": database.url, "insert.mode": "upsert", "primary.key": "id"} | given
        found = SqlSink(SqlSink.Settings.parse(settings), SimpleNamespace(report=report))
        made.append(found)
        found.start()
        return found, reported

    start.made = made
    yield start
    for each in made:
        each.stop()


ZONES = ["UTC", "Asia/Tokyo", "America/New_York"]


@pytest.fixture(params=["UTC", "America/New_York"])
def of_process(request, monkeypatch):
    """The zone of the process, which must not matter."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def as_read_by_a_sink(records):
    """What comes of records through a topic, with the default converter."""
    found = []
    for number, each in enumerate(records):
        data = WITH_SCHEMAS.from_connect_data("t", each.value_schema, each.value)
        schema, value = WITH_SCHEMAS.to_connect_data("t", data)
        found.append(
            SinkRecord(topic="t", partition=0, offset=number, value=value, value_schema=schema)
        )
    return found


@pytest.mark.parametrize(
    ("zone", "of_process"),
    [
        ("UTC", "UTC"),
        ("Asia/Tokyo", "America/New_York"),
        ("America/New_York", "Asia/Kolkata"),
    ],
    indirect=["of_process"],
)
def test_values_of_every_type(database, source, sink, zone, of_process):
    """Each is there or reported with the setting that has it; as text all are, and come back.

    The zones of sessions and of the process change none of them.
    """
    database.set_zone(zone, of_writers=False)
    for kind, value, expected, text in database.types:
        case = f"{kind} {value}"
        database.prepare()
        for table in ("t", "copy"):
            database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {kind} NULL)")
        for number, each in enumerate(("NULL", value, "NULL")):
            database.run(f"INSERT INTO t VALUES ({number}, {each})")
        first, one, last = source().poll()
        assert through_json(first)["v"] is through_json(last)["v"] is None, case
        if one.error is not None:
            assert "table t, id=1: v=" in one.error.message, case
            assert expected in one.error.message, case
        else:
            found = through_json(one)["v"]
            assert expected in (None, found), f"{case}: {found}"
        records = source(**TEXT).poll()
        assert [through_json(each)["v"] for each in records] == [None, text, None], case
        writer, reported = sink(table="copy")
        writer.put(as_read_by_a_sink(records))
        assert not reported, case
        query = f"SELECT id, {database.as_text} FROM {{}} ORDER BY id"
        assert database.run(query.format("copy")) == database.run(query.format("t")), case
        writer, reported = sink(table="made", **{"auto.create": "true"})
        writer.put(as_read_by_a_sink(records))
        assert not reported, case
        for each in (*source.made, *sink.made):
            each.stop()  # a server takes so many connections


@pytest.mark.parametrize("zone", ZONES)
def test_times_with_a_zone_are_moments(database, source, sink, zone, of_process):
    """Whatever the zones of database and process are: read, compared with now, and written."""
    database.set_zone(zone)
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, updated_at {database.zoned})")
    database.run(f"INSERT INTO t VALUES (1, {database.now})")
    by_time = {"mode": "timestamp", **FINEST}
    late = source(**by_time, **{"delay.ms": "3600000"})
    assert late.poll() == []
    poll = source(**by_time).poll
    (record,) = poll()
    moment = record.value["updated_at"]

    assert abs(moment - datetime.now(UTC)) < timedelta(minutes=5)
    assert poll() == []
    database.run(f"INSERT INTO t VALUES (2, {database.now})")
    assert [each.value["id"] for each in poll()] == [2]
    database.run(f"CREATE TABLE copy (id int PRIMARY KEY, updated_at {database.zoned})")
    writer, reported = sink(table="copy")
    writer.put(as_read_by_a_sink([record]))
    assert not reported
    (copied,) = source(tables="copy", mode="bulk").poll()
    assert copied.value["updated_at"] == moment.replace(
        microsecond=moment.microsecond // 1000 * 1000
    )


@pytest.mark.parametrize("zone", ZONES)
def test_times_without_a_zone_are_in_that_of_the_setting(database, source, sink, zone, of_process):
    """In winter and in summer, also where sessions have another zone by themselves."""
    database.set_zone("Asia/Kolkata")
    local = datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
    moments = [datetime(2026, 1, 15, 12), datetime(2026, 7, 15, 12), local]
    for table in ("t", "copy"):
        database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, updated_at {database.naive})")
    for number, each in enumerate(moments):
        database.run(f"INSERT INTO t VALUES ({number}, '{each}')")
    settings = {"mode": "timestamp", "db.timezone": zone, **FINEST}
    records = source(**settings).poll()

    assert [each.value["updated_at"] for each in records] == [
        each.replace(tzinfo=ZoneInfo(zone)) for each in moments
    ]
    late = source(**settings, **{"delay.ms": "3600000"}).poll()
    assert [each.value["id"] for each in late] == [0, 1]
    writer, reported = sink(table="copy", **{"db.timezone": zone})
    texts = {"id": 9, "updated_at": "2026-01-15T12:00:00+00:00"}
    written = SinkRecord(topic="t", partition=0, offset=9, value=texts)
    writer.put([*as_read_by_a_sink(records), written])
    assert not reported
    query = "SELECT id, updated_at FROM {} WHERE id < 2 ORDER BY id"
    assert database.run(query.format("copy")) == database.run(query.format("t"))
    ((found,),) = database.run("SELECT updated_at FROM copy WHERE id = 9")
    utc = datetime(2026, 1, 15, 12, tzinfo=UTC)
    assert found == utc.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("batch", ["1", "1000"])
def test_times_far_off_have_their_place(database, source, zone, batch):
    """The first times that there are come first, each row once; those to come are waited for."""
    for kind, past in database.far.items():
        case = f"{kind} in {zone}"
        database.prepare()
        database.run(f"CREATE TABLE t (id int PRIMARY KEY, updated_at {kind} NULL)")
        rows = list(enumerate((*past, *database.to_come)))
        for number, each in reversed(rows):
            database.run(f"INSERT INTO t VALUES ({number}, '{each}')")
        for mode in ("timestamp", "timestamp+incrementing"):
            settings = {"mode": mode, "db.timezone": zone, "batch.rows": batch}
            poll = source(**settings, **TEXT).poll
            found = [each.value["id"] for _ in rows for each in poll()]
            assert found == list(range(len(past))), f"{case}, {mode}"
            poll = source(**settings).poll
            records = [each for _ in rows for each in poll()]
            assert len(records) == len(past), f"{case}, {mode}"
            for each in records:
                assert each.error is None or TIMES in each.error.message, case
        for each in source.made:
            each.stop()


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_rows_are_read_once_their_time_is_over(database, source, mode):
    """However coarse the times of a column are: rows that are written meanwhile are not missed."""
    numbers = list(range(60))
    for kind in database.coarse:
        database.prepare()
        database.run(f"CREATE TABLE t (id int PRIMARY KEY, updated_at {kind} NULL)")
        poll, found = source(mode=mode).poll, []

        def look(poll=poll, found=found):
            found.extend(each.value["id"] for each in poll())
            return len(found) >= len(numbers)

        for number in reversed(numbers):
            database.run(f"INSERT INTO t VALUES ({number}, {database.now})")
            look()
        wait_until(look, f"rows of {kind}", seen=lambda found=found: sorted(found))
        assert sorted(found) == numbers, kind


def test_times_that_are_cut_further_than_their_type(database, source, caplog):
    """By a view, a default or a program: to a second it does not matter, else a setting waits.

    Without the setting a line in the log says that there is reason for it.
    """
    zoned = database.zoned
    database.run(f"CREATE TABLE made (id int PRIMARY KEY, at {zoned} NULL)")
    for unit, expression in database.cut.items():
        database.run(f"CREATE VIEW t AS SELECT id, {expression} AS updated_at FROM made")
        try:
            poll, found = source(mode="timestamp").poll, []

            def look(poll=poll, found=found):
                found.extend(each.value["id"] for each in poll())
                return len(found) >= 40

            if unit == "second":
                for number in range(40):
                    database.run(f"INSERT INTO made VALUES ({number}, {database.now})")
                    look()
                wait_until(look, "rows of cut times", seen=lambda found=found: sorted(found))
                assert sorted(found) == list(range(40))
                continue
            for number in range(5):
                at = f"2026-01-0{number + 1} 01:0{number + 1}:07"
                database.run(f"INSERT INTO made VALUES ({100 + number}, '{at}')")
            waits = source(mode="timestamp", **{"timestamp.precision": unit}).poll
            database.run(f"INSERT INTO made VALUES (999, {database.now})")
            assert sorted(each.value["id"] for each in waits()) == list(range(100, 105))
            assert len(poll()) >= 5
            assert f"timestamp.precision={unit}" in caplog.text
        finally:
            database.run("DROP VIEW t")
            database.run("DELETE FROM made")


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_no_row_is_missed_when_times_lose_digits(database, source, mode, is_restarted):
    """Rows that get the time of the offset when their column changes are read, also as days.

    Those of that time may come again, once.
    """
    ats = ("12:00:00.6", "12:00:01", "11:59:59.999999")
    for number, (wide, narrow) in enumerate(database.narrower):
        at = ats[number % len(ats)]
        case = f"{wide} {at} as {narrow}"
        database.prepare()
        database.run(f"CREATE TABLE t (id int PRIMARY KEY, updated_at {wide} NULL)")
        database.run(f"INSERT INTO t VALUES (1, '2026-01-01 {at}')")
        reader = source(mode=mode)
        (first,) = reader.poll()
        digits = ("12:00:01.0001", "12:00:01.4", "12:00:01.999")
        late = ", ".join(f"({n}, '2026-01-01 {each}')" for n, each in enumerate(digits, 2))
        database.run(f"INSERT INTO t VALUES {late}")
        database.run(database.altered.format(narrow))
        if is_restarted:
            reader = source({("table", "t"): dict(first.source_offset)}, mode=mode)
        found = [each.value["id"] for _ in range(3) for each in reader.poll()]
        assert sorted({1, *found}) == [1, 2, 3, 4], case
        assert len(found) <= 4, case
        for each in source.made:
            each.stop()


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize(
    ("setting", "altered_in"),
    [("UTC", "UTC"), ("UTC", "Asia/Tokyo"), ("America/New_York", "UTC"), ("Asia/Tokyo", "UTC")],
)
def test_no_row_is_missed_when_times_get_or_lose_their_zone(
    database, source, caplog, mode, setting, altered_in
):
    """Whoever alters a column does so in any zone: rows of a day come again, which is said."""
    for before, after in ((database.naive, database.zoned), (database.zoned, database.naive)):
        caplog.clear()
        database.prepare()
        database.set_zone(altered_in)
        database.run(f"CREATE TABLE t (id int PRIMARY KEY, updated_at {before} NULL)")
        database.run("INSERT INTO t VALUES (0, '2025-12-30 12:00:00')")
        database.run("INSERT INTO t VALUES (1, '2026-01-01 12:00:00')")
        settings = {"mode": mode, "db.timezone": setting}
        reader = source(**settings)
        records = reader.poll()
        assert [each.value["id"] for each in records] == [0, 1]
        database.run("INSERT INTO t VALUES (2, '2026-01-01 12:00:00.000001')")
        database.run(database.altered.format(after))
        again = source({("table", "t"): dict(records[-1].source_offset)}, **settings)
        for each in (reader, again):
            found = [record.value["id"] for _ in range(3) for record in each.poll()]
            assert found in ([2], [1, 2]), f"{before} to {after}"
        assert caplog.text.count("updated_at has got a zone, or has lost it") == 2
        assert [each.value["id"] for each in again.poll()] == []
        for each in source.made:
            each.stop()


def test_rows_without_a_number(database, source, caplog):
    """A column that may be null is refused; or its nulls are left out, which is said once."""
    database.run("CREATE TABLE t (id int UNIQUE, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    database.run("INSERT INTO t VALUES (NULL, 3)")

    with pytest.raises(ConfigError, match=r"incrementing\.column=id: must not be null in t"):
        source()
    poll = source(**{"validate.non.null": "false", "batch.rows": "1"}).poll
    assert [[each.value["v"] for each in poll()] for _ in range(4)] == [[1], [2], [], []]
    assert sum("are never read" in each.message for each in caplog.records) == 1


def test_numbers_that_json_cannot_hold_as_offsets(database, source):
    """Decimals and numbers of more than 64 bits: the offset is a whole number, and is gone by."""
    database.run("CREATE TABLE t (id numeric(20, 0) PRIMARY KEY)")
    database.run("INSERT INTO t VALUES (1), (99999999999999999999)")
    reader = source(**{"batch.rows": "1"})
    found = [record.source_offset for _ in range(3) for record in reader.poll()]

    assert found == [{"id": 1}, {"id": 99999999999999999999}]
    assert all(type(each["id"]) is int for each in found)


@pytest.mark.parametrize("kind", ["int", "bigint", "numeric(20, 0)", "double precision"])
def test_number_of_an_offset_may_be_text(database, source, kind):
    """As a person writes it; PostgreSQL compares no text with a number, and read no row."""
    database.run(f"CREATE TABLE t (id {kind} PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    reader = source({("table", "t"): {"id": "2"}})

    assert [int(record.value["id"]) for record in reader.poll()] == [3]


def test_columns_that_come_go_and_change(database, source, sink):
    """Seen at the next row, by the source and by the sink."""
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int)", "INSERT INTO t VALUES (1, 1, 1)"
    )
    database.run("CREATE TABLE copy (id int PRIMARY KEY, v int, w int)")
    reader, (writer, reported) = source(), sink(table="copy")

    def step(*statements):
        database.run(*statements)
        (record,) = reader.poll()
        writer.put(as_read_by_a_sink([record]))
        return record.value

    assert step("SELECT 1") == {"id": 1, "v": 1, "w": 1}
    added = [f"ALTER TABLE {table} ADD COLUMN more text" for table in ("t", "copy")]
    assert step(*added, "INSERT INTO t VALUES (2, 2, 2, 'x')")["more"] == "x"
    gone = [f"ALTER TABLE {table} DROP COLUMN w" for table in ("t", "copy")]
    assert step(*gone, "INSERT INTO t VALUES (3, 3, 'y')") == {"id": 3, "v": 3, "more": "y"}
    changed = "TYPE" if isinstance(database, OfPostgres) else ""
    verb = "ALTER COLUMN v" if changed else "MODIFY v"
    widened = [f"ALTER TABLE {table} {verb} {changed} varchar(9)" for table in ("t", "copy")]
    assert step(*widened, "INSERT INTO t VALUES (4, 'text', 'z')")["v"] == "text"
    assert not reported
    assert [row[0] for row in database.run("SELECT id FROM copy ORDER BY id")] == [1, 2, 3, 4]


def test_errors_of_one_record_are_its_own(database, sink):
    """Whichever class the driver gives them; the others are written."""
    database.run(
        "CREATE TABLE copy (id int PRIMARY KEY, v varchar(3), n decimal(5, 2), CHECK (id <> 7))"
    )
    writer, reported = sink(table="copy")
    bad = [
        {"id": 1, "v": "too long"},
        {"id": 2, "n": 123456},
        {"id": 3, "n": "no number"},
        {"id": 7, "v": "x"},
        {"id": 10**30},
        {"id": 4, "v": "cut \ud83d"},
        {"id": 5, "v": {"a": object()}},
        {"id": 6, "other": 1},
    ]
    good = [{"id": 100 + number, "v": "ok"} for number in range(len(bad))]
    mixed = [each for pair in zip(good, bad, strict=True) for each in pair]
    writer.put(
        [SinkRecord(topic="t", partition=0, offset=n, value=each) for n, each in enumerate(mixed)]
    )

    assert [value for value, _ in reported] == bad
    found = [row[0] for row in database.run("SELECT id FROM copy ORDER BY id")]
    assert found == [each["id"] for each in good]


def test_a_server_that_is_killed_is_waited_for(database, source, sink, caplog):
    """No row and no record is lost, and none is at fault."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    reader, (writer, reported) = source(), sink(table="copy", **{"auto.create": "true"})
    records = as_read_by_a_sink(reader.poll())
    writer.put(records)
    database.run("INSERT INTO t VALUES (2, 'b')")
    database.server.stop()
    assert reader.poll() == []
    with pytest.raises(TryAgainError):
        writer.put(records)
    assert "it is asked again" in caplog.text
    database.server.start()

    (record,) = reader.poll() or reader.poll()
    writer.put(as_read_by_a_sink([record]))
    assert not reported
    assert database.run("SELECT id FROM copy ORDER BY id")[-1][0] == 2


def test_a_task_that_has_read_waits_for_its_server_at_its_start(database, caplog):
    """One that has read nothing yet ends: its address may be wrong."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    settings = SqlSource.Settings.parse({"url": database.url, "tables": "t"})
    new = SqlSource(settings, LoneContext())
    known = SqlSource(settings, LoneContext({(("table", "t"),): {"id": 1}}))
    database.server.stop()
    with pytest.raises(TryAgainError):
        new.start()
    known.start()
    assert known.poll() == []
    assert "it is asked again" in caplog.text
    database.server.start()
    assert [each.value["id"] for each in known.poll() or known.poll()] == [2]
    for each in (new, known):
        each.stop()


def test_a_table_that_is_dropped_holds_up_no_other(database, source, caplog):
    """It is read on behind the last row when it is there again, which is said."""
    for table in ("t", "copy"):
        database.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)"
        )
    reader = source(tables="t,copy")
    assert len(reader.poll()) == 2
    database.run("DROP TABLE t", "INSERT INTO copy VALUES (2)")
    assert [each.value["id"] for each in reader.poll()] == [2]
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    assert [(each.topic, each.value["id"]) for each in reader.poll()] == [("t", 2)]
    assert "table t can be read again, behind {'id': 1}" in caplog.text


def test_keys_of_text_and_fractions_of_seconds_in_tables_that_are_made(database, sink):
    """What the defaults of a database would refuse or cut."""
    writer, reported = sink(table="made", **{"auto.create": "true"})
    schema = struct_of("Row", id=STRING, at=TIMESTAMP, n=INT64, body=STRING)
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    row = {"id": "key", "at": at, "n": 2**62, "body": "x" * 100_000}
    writer.put([SinkRecord(topic="t", partition=0, offset=0, value=row, value_schema=schema)])

    assert not reported
    ((found, count),) = database.run("SELECT at, length(body) FROM made")
    assert (found.replace(tzinfo=UTC), count) == (at, 100_000)


KEYED = {
    "bigint": ["0", "1", "7"],
    "numeric(10,2)": ["0", "1.50", "7"],
    "double precision": ["0", "1.5", "7"],
    "varchar(20)": ["''", "'0'", "'7'", "'7x'", "'abc'", "'xyz'"],
}
KEYS = [0, 7, 7.0, 1.5, Decimal("7.00"), True, False]
KEYS_OF_TEXT = ["", "0", "7", " 7", "7x", "1.5", "abc", "null", "2026-01-01", "7e0"]


def is_same(key, stored):
    """Whether a key is that of a row, as a number or as a text."""
    if isinstance(stored, str):
        return stored == (key if isinstance(key, str) else f"{key}".removesuffix(".0"))
    try:
        return Decimal(key) == Decimal(str(stored))
    except InvalidOperation:
        return False


@pytest.mark.parametrize("kind", KEYED)
def test_a_key_of_another_type_reaches_no_other_row(database, sink, kind):
    """An update or a deletion is of the row with that very key, or is reported."""
    made = ", ".join(f"({each}, 'old')" for each in KEYED[kind])
    for key in (*KEYS, *KEYS_OF_TEXT):
        for is_deletion in (True, False):
            database.run("DROP TABLE IF EXISTS keyed")
            database.run(f"CREATE TABLE keyed (id {kind} PRIMARY KEY, t varchar(9))")
            database.run(f"INSERT INTO keyed VALUES {made}")
            before = [row[0] for row in database.run("SELECT id FROM keyed")]
            writer, reported = sink(table="keyed")
            value = None if is_deletion else {"t": "new"}
            writer.put([SinkRecord(topic="t", partition=0, offset=0, key=key, value=value)])
            writer.stop()
            rows = dict(database.run("SELECT id, t FROM keyed"))
            touched = {each for each in (*before, *rows) if rows.get(each) != "old"}
            number = int(key) if isinstance(key, bool) else key
            assert all(is_same(number, each) for each in touched)
            assert touched or reported or is_deletion
