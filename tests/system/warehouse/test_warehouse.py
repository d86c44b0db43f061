"""Topics in tables: loaded from an access log, gone on with, rewound, and written by streams."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.pipelines.access_log import AccessLog, requests
from ottla.pipelines.patient_query import PatientQuery
from ottla.spark.data_loss import DataLossError
from ottla.spark.source import RECORD_ORDER
from ottla.warehouse.delta import DeltaHome, history, open_delta, read_table, sql
from ottla.warehouse.layout import Layout
from ottla.warehouse.plain_parquet import ParquetHome
from ottla.warehouse.sinks import QUERY_ID, AppendSink, MergeSink
from ottla.warehouse.table_location import Place, WarehouseError
from ottla.warehouse.warehouse_load import LoadOptions, WarehouseLoad

pytestmark = pytest.mark.spark

WAIT_S = 60
FIELDS = "client string, time timestamp, path string, status int, size bigint"


@pytest.fixture
def topic(broker, unique):
    """A topic of two partitions, without records."""
    name = unique("warehouse")
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(name, 2)])
    return name


@pytest.fixture
def home(tmp_path):
    return DeltaHome(Place.of(tmp_path / "table"))


@pytest.fixture
def load(spark, broker, topic, home):
    """Loads what is in the topic now."""

    def load(
        home=home, layout=None, name="load", max_records=None, accept_new_topic=False, **source
    ):
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **source}
        layout = layout or Layout()
        options = LoadOptions(given, name, layout, max_records, accept_new_topic=accept_new_topic)
        found = []
        WarehouseLoad(spark, home, options).run(found.append)
        return found

    return load


def publish(broker, topic, values, **where):
    with ottla.Producer(broker.bootstrap_servers, linger_ms=5) as producer:
        for value in values:
            producer.send(topic, value, **where)


def read_values(place):
    return sorted(row["value"] for row in sql(place.uri, "SELECT value FROM records").to_pylist())


def numbers(start, end):
    return [b"%03d" % number for number in range(start, end)]


@pytest.mark.wide
def test_figures_of_the_access_log(spark, broker, topic, home, load, access_log):
    """By day, from fields of JSON values: as a plain script over the file computes them."""
    found = list(requests(AccessLog(access_log).lines()))
    days = defaultdict(list)
    for each in found:
        days[each.time.date()].append(each)
    expected = {
        day: (
            len(of_day),
            sum(each.status >= 400 for each in of_day),
            sum(each.size or 0 for each in of_day),
            len({each.client for each in of_day}),
        )
        for day, of_day in days.items()
    }
    publish(broker, topic, [as_json(each) for each in found])

    loads = load(layout=Layout(FIELDS, "day", "time"), max_records=4_000)

    query = (
        "SELECT day, count(*), count(CASE WHEN status >= 400 THEN 1 END), sum(size), "
        "count(DISTINCT client) FROM records GROUP BY day"
    )
    assert {row[0]: row[1:] for row in tuples(sql(home.place.uri, query))} == expected
    read_table(spark, home.place.uri).createOrReplaceTempView("records")
    assert {row[0]: tuple(row[1:]) for row in spark.sql(query).collect()} == expected
    assert sum(loaded.row_count for loaded in loads) == len(found) == 9_999
    assert len(loads) == 3
    assert {path.name for path in Path(home.place.uri).glob("day=*")} == {
        f"day={day}" for day in expected
    }


def as_json(request):
    fields = request._asdict()
    fields["time"] = request.time.isoformat()
    return json.dumps(fields).encode()


def tuples(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_load_goes_on_where_the_table_ends(broker, topic, home, load):
    """With records, partitions and columns that have come since; a load of nothing is none."""
    publish(broker, topic, numbers(0, 100))
    assert [each.row_count for each in load()] == [100]
    assert load() == []
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_partitions({topic: 3})
    publish(broker, topic, numbers(100, 150), partition=2, headers=[("h", b"1")])
    publish(broker, topic, [b'{"n": 7}', b"no JSON"], partition=0)

    (loaded,) = load(layout=Layout("n long", with_headers=True))

    assert (loaded.row_count, loaded.load.number) == (52, 2)
    assert read_values(home.place) == sorted([*numbers(0, 150), b'{"n": 7}', b"no JSON"])
    rows = sql(
        home.place.uri, "SELECT value, n FROM records WHERE n IS NOT NULL OR value = 'no JSON'"
    )
    assert sorted(tuples(rows)) == [(b"no JSON", None), (b'{"n": 7}', 7)]
    with_headers = sql(home.place.uri, "SELECT headers FROM records WHERE headers IS NOT NULL")
    assert with_headers["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]] * 50


def test_names_load_for_themselves(broker, topic, home, load):
    """One begins at the end of the log, and keeps that although there is nothing to load."""
    publish(broker, topic, numbers(0, 10))

    assert [each.row_count for each in load(name="late", startingOffsets="latest")] == [0]
    publish(broker, topic, numbers(10, 15))

    assert [each.row_count for each in load(name="late")] == [5]
    assert read_values(home.place) == numbers(10, 15)


def test_rewound_load_reads_again_from_a_point_in_time(broker, topic, home, load):
    """After a bad run: what is younger is deleted and loaded again, and is there once."""
    publish(broker, topic, numbers(0, 20), timestamp_ms=1_000)
    load()
    publish(broker, topic, numbers(20, 30), timestamp_ms=2_000)
    load()
    partitions = [ottla.TopicPartition(topic, number) for number in range(2)]
    with ottla.Admin(broker.bootstrap_servers) as admin:
        at = admin.list_offsets(dict.fromkeys(partitions, 2_000))
        ids = {topic: str(admin.describe_topics([topic])[topic].topic_id)}
    to = {where: result.offset for where, result in at.items() if result.offset >= 0}

    back = home.snapshot().rewind("load", to, ids)

    assert read_values(home.place) == numbers(0, 20)
    assert sum(before - after for before, after in back.values()) == 10
    assert sum(each.row_count for each in load()) == 10
    assert read_values(home.place) == numbers(0, 30)


def test_topic_that_was_made_anew_is_not_mixed_with_the_old_one(broker, topic, home, load):
    """Its offsets mean other records, also once it has more of them than the old one had."""
    publish(broker, topic, numbers(0, 20))
    load()
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        admin.create_topics([ottla.NewTopic(topic, 2)])

    for count in (0, 50):
        publish(broker, topic, numbers(20, 20 + count))
        with pytest.raises(DataLossError, match=r"was deleted and created again.*--accept-new-top"):
            load()

    assert read_values(home.place) == numbers(0, 20)
    load(accept_new_topic=True)
    assert read_values(home.place) == numbers(0, 70)
    publish(broker, topic, numbers(70, 80))
    assert [each.row_count for each in load()] == [10]


def test_times_outside_all_years_are_null(broker, topic, home, load):
    """Those of records and those in values, on any level; the rows are there, and are counted."""
    fields = "time timestamp, d date, at struct<t: timestamp>, ts array<timestamp>"
    far, near = "+12026-01-01", "9999-12-31"
    publish(broker, topic, [b"{}"], timestamp_ms=1_700_000_000_000_000)
    for day in (far, near):
        moment = f"{day}T10:00:00Z"
        value = {"time": moment, "d": day, "at": {"t": moment}, "ts": [moment]}
        publish(broker, topic, [json.dumps(value).encode()], timestamp_ms=0)

    (loaded,) = load(layout=Layout(fields, "day", "timestamp"))

    assert (loaded.row_count, loaded.lost_times) == (3, 1)
    rows = open_delta(home.place).to_pyarrow_table().to_pylist()
    by_value = {row["value"]: row for row in rows}
    assert by_value.pop(b"{}")["timestamp"] is None
    nulls = [row["d"] is None and row["time"] is None for row in by_value.values()]
    assert nulls == [far.encode() in value for value in by_value]
    for value, row in by_value.items():
        expected = None if far.encode() in value else datetime(9999, 12, 31, 10, tzinfo=UTC)
        assert (row["at"]["t"], row["ts"], row["timestamp"].year) == (expected, [expected], 1970)


@pytest.mark.wide
def test_fields_that_grow_go_on(spark, broker, topic, home, load):
    """A table is widened for what a load has, and a load with narrower fields fits itself in."""
    value = b'{"n": 1, "tags": {"a": 2}, "o": {"x": 3}, "os": [{"x": 4}]}'
    narrow = "n int, tags map<string, int>, o struct<x: int>, os array<struct<x: int>>"
    wide = "n bigint, tags map<string, bigint>, o struct<x: double, y: string>, "
    wide += "os array<struct<x: bigint, y: string>>"
    for fields in narrow, wide, narrow:
        publish(broker, topic, [value])
        assert [each.row_count for each in load(layout=Layout(fields))] == [1]

    def told(row):
        return row["n"], dict(row["tags"]), row["o"], row["os"]

    expected = (1, {"a": 2}, {"x": 3.0, "y": None}, [{"x": 4, "y": None}])
    table = open_delta(home.place)
    assert [told(row) for row in table.to_pyarrow_table().to_pylist()] == [expected] * 3
    rows = [row.asDict(recursive=True) for row in read_table(spark, home.place.uri).collect()]
    assert [told(row) for row in rows] == [expected] * 3
    with pytest.raises(WarehouseError, match="its column n is bigint, and cannot take string"):
        load(layout=Layout("n string"))


@pytest.mark.parametrize("kind", [DeltaHome, ParquetHome])
def test_topic_is_loaded_into_a_table_under_one_name(broker, topic, load, kind, tmp_path):
    """Another name is refused where records would be there twice, and goes on behind them."""
    home = kind(Place.of(tmp_path / "own"))
    publish(broker, topic, [b"{}"] * 6)
    (first,) = load(home=home)
    with pytest.raises(WarehouseError, match=r"a load named load has put .* into it up to offset"):
        load(home=home, name="other")
    ends = {where.partition: end for where, end in first.load.ends.items()}
    starts = json.dumps({topic: {str(partition): end for partition, end in ends.items()}})
    publish(broker, topic, [b"{}"] * 4)
    assert [each.row_count for each in load(home=home, name="other", startingOffsets=starts)] == [4]
    publish(broker, topic, [b"{}"] * 2)
    assert [each.row_count for each in load(home=home, name="other")] == [2]
    with pytest.raises(WarehouseError, match="a load named other has put"):
        load(home=home)


@pytest.mark.wide
def test_keys_that_grow_go_on(spark, home):
    """A merge widens the table and what is known of the keys that were taken out."""
    columns = "deleted boolean, timestamp timestamp, partition int, offset long"
    moment = datetime(2026, 3, 2, tzinfo=UTC)
    spark.sparkContext.setLocalProperty(QUERY_ID, "merges")
    batches = [
        ("id int, n int", [(1, 1, False, moment, 0, 0), (2, 1, True, moment, 1, 5)]),
        ("id long, n long", [(1, 2**40, False, moment, 0, 1), (2**40, 1, False, moment, 0, 2)]),
        ("id int, n int", [(2, 3, False, moment, 1, 4), (1, 4, True, moment, 0, 3)]),
    ]
    for number, (fields, rows) in enumerate(batches):
        batch = spark.createDataFrame(rows, f"{fields}, {columns}")
        MergeSink(home.place, ("id",), RECORD_ORDER, "deleted")(batch, number)

    rows = open_delta(home.place).to_pyarrow_table().to_pylist()
    assert [(row["id"], row["n"]) for row in rows] == [(2**40, 1)]


def test_batches_whose_orders_are_null_or_no_number_keep_their_rows(spark, home):
    """Of a batch the newest row of each key counts; one without an order is the oldest."""
    spark.sparkContext.setLocalProperty(QUERY_ID, "orders")
    sink = MergeSink(home.place, ("id",), "version", "gone")
    nan = float("nan")
    batches = [
        [("a", 1, None, None), (None, 2, 1.0, False), ("b", 3, nan, None), ("b", 4, None, None)],
        [("a", 5, nan, True), (None, 6, 2.0, None), ("b", 7, 0.5, False), ("c", 8, nan, None)],
        [("a", 9, 1.0, False), ("a", 10, nan, False), (None, 11, 1.5, True)],
    ]
    for number, rows in enumerate(batches):
        batch = spark.createDataFrame(rows, "id string, n int, version double, gone boolean")
        sink(batch, number)

    rows = open_delta(home.place).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {None: 6, "a": 9, "b": 7, "c": 8}


@pytest.mark.wide
def test_columns_that_come_later_are_taken_by_the_same_sink(spark, home, tmp_path):
    """Further and wider ones, in both sinks; a batch without them leaves them null, or as is."""
    spark.sparkContext.setLocalProperty(QUERY_ID, "columns")
    merges = MergeSink(home.place, ("id",), "version", "gone")
    appends = AppendSink(Place.of(tmp_path / "appended"))
    batches = [
        ("id int", (1,)),
        ("id long, more string", (2**40, "x")),
        ("id int, less int", (1, 5)),
        ("id int", (1,)),
    ]
    for number, (fields, row) in enumerate(batches):
        appends(spark.createDataFrame([row], fields), number)
        whole = spark.createDataFrame(
            [(*row, number, False)], f"{fields}, version int, gone boolean"
        )
        merges(whole, number)

    rows = open_delta(appends.place).to_pyarrow_table().to_pylist()
    found = sorted((row["id"], row["more"] or "", row["less"] or 0) for row in rows)
    assert found == [(1, "", 0), (1, "", 0), (1, "", 5), (2**40, "x", 0)]
    rows = open_delta(home.place).to_pyarrow_table().to_pylist()
    found = sorted((row["id"], row["more"] or "", row["less"], row["version"]) for row in rows)
    assert found == [(1, "", 5, 3), (2**40, "x", None, 1)]


def test_topic_that_is_not_there_is_told_before_spark_starts(broker, tmp_path):
    """In one line, and no table is made."""
    out, err = io.StringIO(), io.StringIO()
    words = ["--topic", "no-such-topic", "--table", str(tmp_path / "table")]

    status = main(
        ["warehouse", "load", "--bootstrap-server", broker.bootstrap_servers, *words],
        Terminal(out=out, err=err),
    )

    assert (status, out.getvalue()) == (1, "")
    assert err.getvalue() == (
        "ottla warehouse: subscribe=no-such-topic: there is no topic no-such-topic\n"
    )
    assert not (tmp_path / "table").exists()


@pytest.mark.wide
def test_plain_parquet_has_the_same_rows(spark, broker, topic, load, tmp_path):
    """In folders that Spark and others read without knowing of loads."""
    home = ParquetHome(Place.of(tmp_path / "plain"))
    publish(broker, topic, [b'{"n": %d}' % number for number in range(30)])
    load(home=home, layout=Layout("n long", "hour"), max_records=20)
    publish(broker, topic, [b'{"n": %d}' % number for number in range(30, 40)])
    load(home=home, layout=Layout("n long", "hour"))

    rows = spark.read.parquet(home.place.uri)

    assert sorted(row.n for row in rows.select("n").collect()) == list(range(40))
    assert {"day", "hour"} <= set(rows.columns)


def test_layout_that_cannot_be_is_told(spark):
    """A column that is there twice, and a time that is none."""
    with pytest.raises(WarehouseError, match="topic would be there twice"):
        Layout("topic string").schema(spark)
    with pytest.raises(WarehouseError, match="time column at: must be a timestamp or a date"):
        Layout("at string", "day", "at").schema(spark)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        *((f"`a{letter}b` int", "has .* in it") for letter in " ,;{}()\n\t=."),
        ("s struct<`a b`: int>", "'a b' has ' ' in it"),
        ("s array<map<string, struct<`x=y`: int>>>", "'x=y' has '=' in it"),
        ("i interval", "the type interval"),
        ("i interval day to second", "the type interval day to second"),
        ("v void", "the type void"),
        ("v struct<n: void>", "the type void"),
        ("v variant", "the type variant"),
        ("a int, A string", "a would be there twice"),
        ("s struct<a: int, A: int>", "a would be there twice"),
        ("no ddl at all", "are no list of columns"),
        ("int", "are no list of columns"),
    ],
)
def test_fields_that_no_table_can_have_are_refused(spark, fields, reason):
    """By a sentence, before anything is written."""
    with pytest.raises(WarehouseError, match=reason):
        Layout(fields).schema(spark)


def test_stream_appends_each_batch_once(spark, broker, topic, tmp_path):
    """A batch that Spark runs again, as after a crash behind the commit, is left out."""
    place, checkpoint = Place.of(tmp_path / "table"), tmp_path / "checkpoint"
    source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}

    def run():
        reader = spark.readStream.format("ottla").options(**source, maxOffsetsPerTrigger=20)
        stream = reader.option("startingOffsets", "earliest").load().writeStream
        stream = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = PatientQuery(stream.foreachBatch(AppendSink(place, ("partition",))))
        while not query.wait(WAIT_S):
            pass

    publish(broker, topic, numbers(0, 50))
    run()
    batches = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(batches[-1])).unlink()
    publish(broker, topic, numbers(50, 60))
    run()

    assert read_values(place) == numbers(0, 60)
    assert sorted(
        int(each["facts"]["ottla.batch"]) for each in history(place, 20) if each["facts"]
    ) == [*batches, batches[-1] + 1]
    assert open_delta(place).metadata().partition_columns == ["partition"]
