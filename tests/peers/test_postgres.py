"""Every change of a real PostgreSQL, through snapshots, kills and lost connections."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from functools import wraps
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psycopg
import pytest
from contexts import through_json
from postgres import Postgres

from ottla.connect.connector import SourceTaskContext
from ottla.connect.connectors.postgres import PostgresSource, ReplicationStream
from ottla.connect.json_converter import JsonConverter
from ottla.errors import ConfigError
from ottla.testing import wait_until

TABLE = """
CREATE TABLE orders (
    id int8 PRIMARY KEY, name text, price numeric(10, 2), big bytea, ok bool, day date,
    at timestamp, seen timestamptz, tags text[], exact numeric, f float4
)
"""


@pytest.fixture(scope="module")
def server():
    """In a folder that the server's own user can reach."""
    with TemporaryDirectory(prefix="ottla-postgres-") as folder:
        server = Postgres(Path(folder))
        yield server
        server.stop()


@pytest.fixture
def database(server):
    """Without tables and slots of earlier tests."""
    server.execute(
        "DROP TABLE IF EXISTS orders, other; DROP PUBLICATION IF EXISTS ottla; "
        "DROP DOMAIN IF EXISTS cents; CREATE DOMAIN cents AS int8"
    )
    wait_until(
        lambda: not server.execute("SELECT FROM pg_replication_slots WHERE active"),
        "the readers of earlier tests to be gone",
    )
    server.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    server.execute(TABLE)
    return server


class StoredOffsets(SourceTaskContext):
    """A worker's memory: what was delivered and stored."""

    transaction = None
    properties = {}  # noqa: RUF012 # as a context has them
    name = "cdc"
    is_stopping = False

    def __init__(self):
        self.stored = None

    def wait(self, seconds):
        return False

    def request_task_reconfiguration(self):
        pass

    def offset(self, partition):
        return self.stored

    def fail(self, error):
        raise error


class Capture:
    """A task that is driven as a worker drives it, and started again when it was killed."""

    def __init__(self, server, **settings):
        self.context = StoredOffsets()
        given = {
            "connection": server.connection,
            "tables": "public.orders",
            "topic.prefix": "shop",
        } | settings
        self.settings = PostgresSource.Settings.parse(given)
        self.records = []
        self.task = None
        self.start()

    def start(self):
        self.task = PostgresSource(self.settings, self.context)
        self.task.start()

    def kill(self):
        self.task.stop()

    def take(self, most=None):
        """One poll, of which all (or only some) arrive."""
        found = self.task.poll()
        for record in found[:most]:
            self.records.append(record)
            self.context.stored = dict(record.source_offset)
            self.task.commit_record(record, None)
        self.task.commit()
        return found

    def take_until(self, done):
        """Polls until something holds."""
        wait_until(done, "records", seen=lambda: len(self.records), meanwhile=self.take)

    def table(self):
        """What the records say is in the table."""
        found = {}
        for record in self.records:
            if record.value is None:
                found.pop(record.key["id"], None)
            elif self.settings.value_format == "row":
                found[record.key["id"]] = record.value
            elif record.value["op"] != "d":
                found[record.key["id"]] = record.value["after"]
        return found


def test_rows_and_changes_with_their_types(database):
    """The snapshot and the log write the same values, and JSON takes them."""
    row = (
        "'Zoë', 9.50, '\\x00ff', true, '2020-02-03', '2020-02-03 04:05:06.789123', "
        "'2020-02-03 04:05:06.5+02', '{a,\"b c\"}', 1.10, 0.1"
    )
    database.execute(f"INSERT INTO orders VALUES (1, {row})")
    capture = Capture(database)
    capture.take_until(lambda: len(capture.records) == 1)
    database.execute(f"INSERT INTO orders VALUES (2, {row})")
    database.execute("UPDATE orders SET name = NULL WHERE id = 1")
    database.execute("UPDATE orders SET id = 3 WHERE id = 1")
    database.execute("DELETE FROM orders WHERE id = 2")
    database.execute("TRUNCATE orders")
    capture.take_until(lambda: len(capture.records) == 8)
    capture.kill()

    values = [record.value for record in capture.records]
    assert [value and value["op"] for value in values] == ["r", "c", "u", "u", None, "d", None, "t"]
    assert values[0]["after"] == {
        "id": 1,
        "name": "Zoë",
        "price": Decimal("9.50"),
        "big": b"\x00\xff",
        "ok": True,
        "day": date(2020, 2, 3),
        "at": 1_580_702_706_789_123,
        "seen": "2020-02-03T02:05:06.5Z",
        "tags": '{a,"b c"}',
        "exact": "1.10",
        "f": 0.1,
    }
    assert values[1]["after"] == values[0]["after"] | {"id": 2}
    assert values[0]["source"]["snapshot"] == "true"
    assert values[1]["source"]["txId"] is not None
    assert [record.key and record.key["id"] for record in capture.records] == (
        [1, 2, 1, 3, 1, 2, 2, None]
    )
    assert {record.topic for record in capture.records} == {"shop.public.orders"}
    for record in capture.records:
        assert JsonConverter().from_connect_data("t", record.value_schema, record.value) or (
            record.value is None
        )


def test_unchanged_large_values_are_marked(database):
    """An update that leaves a value of a megabyte alone does not send it."""
    capture = Capture(database, **{"value.format": "row"})
    capture.take()
    database.execute(
        "INSERT INTO orders (id, name, big) SELECT 1, string_agg(md5(n::text), ''), "
        "decode(string_agg(md5(n::text), ''), 'hex') FROM generate_series(1, 5000) n"
    )
    database.execute("UPDATE orders SET ok = true")
    capture.take_until(lambda: len(capture.records) == 2)
    capture.kill()

    first, second = (record.value for record in capture.records)
    assert len(first["name"]) == 160_000
    assert second["name"] == "__debezium_unavailable_value"
    assert second["big"] == b"__debezium_unavailable_value"


@pytest.mark.parametrize("seed", range(20))
def test_the_topic_ends_in_the_tables_state(database, seed):
    """20 seeds: changes under kills of task, server and connection; none lost, none twice."""
    random = Random(seed)
    database.execute("INSERT INTO orders (id, name) SELECT n, 'old' FROM generate_series(1, 50) n")
    capture = Capture(database, **{"value.format": "row", "batch.events": "7"})
    for step in range(30):
        match random.randrange(8):
            case 0:
                capture.kill()
                capture.start()
            case 1:
                found = capture.take(most=random.randrange(7))
                if found:
                    capture.kill()
                    capture.start()
            case 2 if step % 7 == 0:
                database.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
                )
            case 3:
                capture.take()
            case _:
                low = random.randrange(60)
                statement = random.choice(
                    (
                        "INSERT INTO orders (id, name) SELECT n, '{s}' FROM "
                        "generate_series({a}, {b}) n ON CONFLICT (id) DO UPDATE SET name = '{s}'",
                        "UPDATE orders SET name = '{s}', price = {s} WHERE id BETWEEN {a} AND {b}",
                        "DELETE FROM orders WHERE id BETWEEN {a} AND {b}",
                    )
                )
                database.execute(statement.format(s=step, a=low, b=low + random.randrange(10)))
    if seed % 5 == 0:
        database.stop()
        database.start()
    rows = {row[0]: row[1] for row in database.execute("SELECT id, name FROM orders")}

    capture.take_until(lambda: {key: row["name"] for key, row in capture.table().items()} == rows)
    capture.kill()
    offsets = [tuple(record.source_offset.items()) for record in capture.records]
    streamed = [offset for offset in offsets if dict(offset).get("tx")]
    assert len(streamed) == len(set(streamed))


def test_the_log_is_let_go_while_the_tables_rest(database):
    """Changes of other tables move the slot on: they would fill the disk otherwise."""
    capture = Capture(database)
    capture.take()
    database.execute("CREATE TABLE other AS SELECT n FROM generate_series(1, 10000) n")
    (end,) = database.execute("SELECT pg_current_wal_lsn() - '0/0'")[0]

    def confirmed():
        return database.execute(
            "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = 'ottla'"
        )[0][0]

    capture.take_until(lambda: confirmed() >= end)
    capture.kill()


def test_what_is_missing_is_said(database):
    """A table that is not there, and a slot that is gone, with all that it kept."""
    with pytest.raises(Exception, match=r'relation "public\.nothing" does not exist'):
        Capture(database, tables="public.nothing")
    capture = Capture(database)
    database.execute("INSERT INTO orders (id) VALUES (1)")
    capture.take_until(lambda: capture.records)
    capture.kill()
    PostgresSource.alter_offsets(capture.settings, [({"slot": "ottla"}, None)])
    with pytest.raises(ConfigError, match="can be deleted only"):
        PostgresSource.alter_offsets(capture.settings, [({"slot": "ottla"}, {"lsn": 1})])
    capture.context.stored = {"lsn": 1}
    capture.start()
    with pytest.raises(ConfigError, match=r'slot\.name=ottla: .*"ottla" does not exist'):
        capture.take()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_table_that_is_dropped_holds_up_no_other(database, caplog, monkeypatch, is_restarted):
    """It is said, also when it is made again, and then it is captured again."""
    monkeypatch.setattr("ottla.connect.connectors.postgres.LOOK_MS", 0)
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    database.execute("INSERT INTO other VALUES (1)")
    capture = Capture(database, tables="public.orders,public.other")
    capture.take_until(lambda: len(capture.records) == 1)
    database.execute("DROP TABLE other")
    if is_restarted:
        capture.kill()
        capture.start()
    database.execute("INSERT INTO orders (id) VALUES (1)")
    capture.take_until(lambda: len(capture.records) == 2)
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    capture.take_until(lambda: "public.other is captured from here on" in caplog.text)
    database.execute("INSERT INTO other VALUES (2)")
    capture.take_until(lambda: len(capture.records) == 3)
    capture.kill()

    assert [record.key["id"] for record in capture.records] == [1, 1, 2]
    assert caplog.text.count("public.other is not in the database") == 1


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("change", "now"),
    [
        ("ALTER TABLE other RENAME TO renamed", "public.renamed"),
        ("CREATE SCHEMA moved; ALTER TABLE other SET SCHEMA moved", "moved.other"),
        (
            "ALTER TABLE other RENAME TO renamed; CREATE TABLE other (id int PRIMARY KEY)",
            "public.renamed",
        ),
    ],
    ids=["renamed", "moved", "replaced"],
)
def test_a_table_that_gets_another_name_is_named(
    database, caplog, monkeypatch, change, now, is_restarted
):
    """Its changes go on to a topic of its new name, or end at a start: both with a word."""
    monkeypatch.setattr("ottla.connect.connectors.postgres.LOOK_MS", 10**9)
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    capture = Capture(database, tables="public.orders,public.other")
    database.execute("INSERT INTO other VALUES (1)")
    capture.take_until(lambda: len(capture.records) == 1)
    try:
        if is_restarted:
            capture.kill()
        database.execute(change)
        if is_restarted:
            capture.start()
            text = f"publication ottla: {now} is not among tables, and not captured from here on"
            assert text in caplog.text
            return
        database.execute(f"INSERT INTO {now} VALUES (2)")
        capture.take_until(lambda: len(capture.records) == 2)
        assert capture.records[1].topic == f"shop.{now}"
        assert caplog.text.count(f"{now} is in publication ottla and not among tables") == 1
        assert f"its changes go to the topic shop.{now}" in caplog.text
    finally:
        capture.kill()
        database.execute("DROP TABLE IF EXISTS renamed; DROP SCHEMA IF EXISTS moved CASCADE")


@pytest.mark.parametrize("kind", ["full", "domain"])
def test_changes_of_a_table_that_is_dropped_before_they_are_read(database, kind):
    """The stream describes it, where the database cannot any longer."""
    database.execute(
        "CREATE TABLE other (id cents PRIMARY KEY)"
        if kind == "domain"
        else "CREATE TABLE other (id int8 PRIMARY KEY)"
    )
    if kind == "full":
        database.execute("ALTER TABLE other REPLICA IDENTITY FULL")
    capture = Capture(database, tables="public.orders,public.other")
    capture.take()
    database.execute("INSERT INTO other VALUES (1)")
    database.execute("DROP TABLE other")
    database.execute("INSERT INTO orders (id) VALUES (2)")
    capture.take_until(lambda: len(capture.records) == 2)
    capture.kill()

    assert [int(record.value["after"]["id"]) for record in capture.records] == [1, 2]


def test_a_task_that_has_read_waits_for_its_server_at_its_start(database):
    """One that has read nothing yet ends: its address may be wrong."""
    capture = Capture(database)
    database.execute("INSERT INTO orders (id) VALUES (1)")
    capture.take_until(lambda: len(capture.records) == 1)
    capture.kill()
    database.stop()
    capture.start()
    assert capture.take() == []
    stored, capture.context.stored = capture.context.stored, None
    with pytest.raises(Exception, match="refused"):
        capture.start()
    capture.context.stored = stored
    database.start()
    capture.start()
    database.execute("INSERT INTO orders (id) VALUES (2)")
    capture.take_until(lambda: len(capture.records) == 2)
    capture.kill()


class Outages:
    """Loses the connection at one of the calls by which a task asks its database."""

    def __init__(self, monkeypatch, at):
        self.at = at
        self.count = 0
        for owner, name in ((PostgresSource, "_connect"), (ReplicationStream, "next_message")):
            monkeypatch.setattr(owner, name, self.failing(getattr(owner, name)))

    def failing(self, call):
        @wraps(call)
        def ask(*arguments, **more):
            self.count += 1
            if self.count == self.at:
                raise psycopg.OperationalError("the connection was lost")
            return call(*arguments, **more)

        return ask


@pytest.mark.parametrize("at", range(2, 26))
def test_no_row_is_passed_over_whenever_the_connection_is_lost(database, monkeypatch, at):
    """In the snapshot, at its end, and between two messages of the log that are one batch."""
    database.execute("INSERT INTO orders (id) SELECT * FROM generate_series(0, 9)")
    outages = Outages(monkeypatch, at)
    capture = Capture(database, **{"batch.events": "4", "value.format": "row"})
    capture.take_until(lambda: len(capture.table()) == 10)
    for start in (10, 20):
        database.execute(
            f"INSERT INTO orders (id) SELECT * FROM generate_series({start}, {start + 9})"
        )
    capture.take_until(lambda: 29 in capture.table())
    capture.take_until(lambda: outages.count > at)
    capture.kill()

    assert sorted(capture.table()) == list(range(30))
    changes = [record.key["id"] for record in capture.records if record.key["id"] >= 10]
    assert changes == list(range(10, 30))


def test_a_publication_that_is_dropped_ends_the_task(database):
    """It is not there for the log that was written meanwhile: it would be tried without end."""
    capture = Capture(database)
    database.execute("INSERT INTO orders (id) VALUES (1)")
    capture.take_until(lambda: capture.records)
    capture.kill()
    database.execute("DROP PUBLICATION ottla")
    database.execute("INSERT INTO orders (id) VALUES (2)")
    capture.start()
    with pytest.raises(ConfigError, match=r"publication .ottla. does not exist: delete the off"):
        capture.take_until(lambda: len(capture.records) == 2)
    capture.kill()


ROWS = {"value.format": "row"}


def captured(database, *statements, count, tables="public.other", **settings):
    """The records that statements leave behind, after an empty snapshot."""
    capture = Capture(database, tables=tables, **settings)
    capture.take()
    for statement in statements:
        database.execute(statement)
    capture.take_until(lambda: len(capture.records) >= count)
    capture.kill()
    return capture.records


def test_a_partitioned_table_is_one_topic(database):
    """Its snapshot and its changes, whatever partition they are in."""
    database.execute(
        "CREATE TABLE other (id int, d date, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)"
    )
    for year in (2026, 2027):
        database.execute(
            f"CREATE TABLE other_{year} PARTITION OF other "
            f"FOR VALUES FROM ('{year}-01-01') TO ('{year + 1}-01-01')"
        )
    database.execute("INSERT INTO other VALUES (1, '2026-05-01')")
    records = captured(
        database, "INSERT INTO other VALUES (2, '2027-05-01')", "DELETE FROM other", count=6
    )

    assert {record.topic for record in records} == {"shop.public.other"}
    ops = [record.value and record.value["op"] for record in records]
    assert ops == ["r", "c", "d", None, "d", None]


def test_a_publication_without_the_root_is_left_and_told_of(database, caplog):
    """It may be read by others: the log says what to do."""
    database.execute("CREATE TABLE other (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.execute("CREATE PUBLICATION ottla FOR TABLE orders")
    Capture(database, tables="public.other").kill()
    Capture(database, tables="public.orders").kill()

    said, *others = [each.message for each in caplog.records if "no publish_via" in each.message]
    assert not others
    assert "changes of public.other go to topics of its partitions" in said
    assert "SET (publish_via_partition_root = true)" in said


def test_a_large_key_that_was_left_alone_is_no_other_key(database):
    """It is stored apart and not sent again: no tombstone for a row that lives."""
    database.execute("CREATE TABLE other (id text PRIMARY KEY, v int, big text)")
    for column in ("id", "big"):
        database.execute(f"ALTER TABLE other ALTER {column} SET STORAGE EXTERNAL")
    records = captured(
        database,
        "INSERT INTO other VALUES (repeat('k', 2400), 1, repeat('b', 9000))",
        "UPDATE other SET v = 2",
        "UPDATE other SET id = 'short'",
        count=4,
        **ROWS,
    )

    keys = [record.key["id"] for record in records]
    assert keys == ["k" * 2400, "k" * 2400, "k" * 2400, "short"]
    assert [record.value and record.value["v"] for record in records] == [1, 2, None, 2]
    assert records[1].value["id"] == "k" * 2400
    assert {each.value["big"] for each in (records[1], records[3])} == {
        "__debezium_unavailable_value"
    }


EVERYTHING = [
    ("bool", ["true"]),
    ("int2", ["-32768"]),
    ("int8", [str(2**63 - 1)]),
    ("float4", ["'NaN'", "0.1", "3.4028235e38"]),
    ("float8", ["'-Infinity'", "1e-320"]),
    ("numeric(10, 2)", ["-99999999.99"]),
    ("numeric(5, -2)", ["12345"]),
    ("numeric", ["'NaN'", "1e200"]),
    ("money", ["12.5"]),
    ("char(3)", ["'a'"]),
    ("bytea", ["''", "'\\x00ff'"]),
    ("bit(3)", ["B'101'"]),
    ("date", ["'infinity'", "'0001-01-01'", "'9999-12-31'"]),
    ("time", ["'24:00'"]),
    ("timetz", ["'04:05:06.5+09'"]),
    ("timestamp", ["'infinity'", "'4713-01-01 00:00 BC'", "'294246-12-31 23:59:59.999999'"]),
    ("timestamptz", ["'-infinity'", "'0044-03-15 12:00+00 BC'", "'294276-12-31 23:59+00'"]),
    ("interval", ["'1 year -2 days 03:04:05.6'"]),
    ("uuid", ["'00000000-0000-0000-0000-0000000000ff'"]),
    ("json", ["""'{"a": null, "b":[true]}'""", "'null'"]),
    ("jsonb", ["""'{"a": null}'"""]),
    ("xml", ["'<a>x</a>'"]),
    ("inet", ["'::1/64'"]),
    ("tstzrange", ["'[2020-01-01 00:00+00, infinity)'"]),
    ("int4multirange", ["'{[1,5),[7,9)}'"]),
    ("point", ["'(1,2)'"]),
    ("tsvector", ["'a b'"]),
    ("int4[]", ["'{1,NULL}'", "'{{1,2},{3,4}}'"]),
    ("text[]", ["""'{a,"b c",NULL}'"""]),
    ("composite", ["'(1,x)'"]),
]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_every_type_is_the_same_in_snapshot_and_log(database, zone):
    """With null and extremes, whatever the database's zone is, through both forms of JSON."""
    database.execute(
        "DROP TYPE IF EXISTS composite CASCADE; CREATE TYPE composite AS (a int, b text)"
    )
    database.execute(f"ALTER ROLE ottla SET timezone = '{zone}'")
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(EVERYTHING))
    database.execute(f"CREATE TABLE other (id int PRIMARY KEY, {columns})")
    rows = [
        ", ".join(values[row] if row < len(values) else "NULL" for _, values in EVERYTHING)
        for row in range(4)
    ]
    for number, row in enumerate(rows):
        database.execute(f"INSERT INTO other VALUES ({number}, {row})")
    capture = Capture(database, tables="public.other", **ROWS)
    capture.take_until(lambda: len(capture.records) == len(rows))
    for number, row in enumerate(rows):
        database.execute(f"INSERT INTO other VALUES ({number + len(rows)}, {row})")
    capture.take_until(lambda: len(capture.records) == 2 * len(rows))
    capture.kill()
    database.execute("ALTER ROLE ottla RESET timezone")

    found = [through_json(each) for each in capture.records]
    for each in found:
        each.pop("id")
    assert found[: len(rows)] == found[len(rows) :]
    assert set(found[3].values()) == {None}
    named = {kind: found[0][f"c{number}"] for number, (kind, _) in enumerate(EVERYTHING)}
    assert named["timestamptz"] == "-infinity"
    assert (named["json"], named["interval"]) == ('{"a": null, "b":[true]}', "P1Y-2DT3H4M5.6S")
    assert (named["numeric"], named["float4"], named["int4[]"]) == ("NaN", "NaN", "{1,NULL}")


BAD = "INSERT INTO other (id, n) VALUES (1, 1), (2, 'NaN'), (3, 3)"


@pytest.mark.parametrize("is_snapshot", [True, False])
def test_a_value_without_a_place_is_reported_and_passed_over(database, is_snapshot):
    """In the snapshot and in the log: with its row, and the setting that has it."""
    database.execute("CREATE TABLE other (id int PRIMARY KEY, n numeric(10, 2), d date)")
    statements = (BAD, "UPDATE other SET d = '10000-01-01' WHERE id = 1")
    if is_snapshot:
        for statement in statements:
            database.execute(statement)
        statements = ()
    records = captured(database, *statements, count=3 + (not is_snapshot))

    texts = sorted(each.error.message for each in records if each.error)
    nan, year = texts if "NaN" in texts[0] else reversed(texts)
    assert "public.other, id='2': n='NaN': must be a finite number" in nan
    assert "decimal.handling.mode=string has it as text" in nan
    assert "public.other, id='1': d='10000-01-01': must be a day" in year
    assert "time.precision.mode=isostring has it as text" in year
    good = [each.value["after"]["id"] for each in records if not each.error]
    assert good == ([3] if is_snapshot else [1, 3])


def test_settings_that_have_every_number_and_time(database):
    """As text; domains are the types that they are made of."""
    database.execute("DROP DOMAIN IF EXISTS money2 CASCADE; DROP DOMAIN IF EXISTS price CASCADE")
    database.execute("CREATE DOMAIN price AS numeric(10, 2); CREATE DOMAIN money2 AS price")
    database.execute("CREATE TABLE other (id int PRIMARY KEY, n money2, d date, t timestamp)")
    insert = "INSERT INTO other VALUES ({}, '{}', '0044-03-15 BC', '294276-12-31')"
    text = {"decimal.handling.mode": "string", "time.precision.mode": "isostring"}
    (one,) = captured(database, insert.format(1, "NaN"), count=1, **ROWS, **text)
    assert one.value == {
        "id": 1,
        "n": "NaN",
        "d": "-0043-03-15",
        "t": "+294276-12-31T00:00:00",
    }
    database.execute("DELETE FROM other")
    database.execute("INSERT INTO other VALUES (2, 1.50)")
    again = Capture(database, tables="public.other", **{"slot.name": "again"}, **ROWS)
    again.take_until(lambda: again.records)
    database.execute("INSERT INTO other VALUES (3, 2.50)")
    again.take_until(lambda: len(again.records) == 2)
    again.kill()
    assert [each.value["n"] for each in again.records] == [Decimal("1.50"), Decimal("2.50")]


def test_what_rows_alone_cannot_tell_is_in_the_log(database, caplog):
    """An emptied table, and deletions of rows that have no key."""
    database.execute("CREATE TABLE other (v int); ALTER TABLE other REPLICA IDENTITY FULL")
    records = captured(
        database,
        "INSERT INTO other VALUES (1), (2)",
        "DELETE FROM other",
        "TRUNCATE other",
        "INSERT INTO other VALUES (3)",
        count=5,
        **ROWS,
    )

    values = [(record.key, record.value) for record in records]
    assert values == [
        (None, {"v": 1}),
        (None, {"v": 2}),
        (None, None),
        (None, None),
        (None, {"v": 3}),
    ]
    said = [each.message for each in caplog.records]
    assert said == [
        "public.other has no key: value.format=row does not say which of its rows are deleted, "
        "value.format=envelope does",
        "public.other was emptied: value.format=row has no record of it",
    ]
