"""Records as rows and back."""

from __future__ import annotations

import json
import random
from datetime import UTC, timedelta

import pytest
from sampled import RECORD, plain_rows
from table_rows import KeyedTopic

from ottla.pipelines import change_capture, event_sourcing, web_traffic
from ottla.pipelines.pipeline import Input, Output
from ottla.pipelines.records import (
    FAR_TIME,
    observed,
    records_of,
    result_of,
    rows_of,
    table_of,
    total,
    unusable,
)
from ottla.pipelines.site_traffic import START
from ottla.streams.records import Source
from ottla.streams.serdes import Serdes
from ottla.warehouse.layout import Layout

pytestmark = pytest.mark.spark

SOURCE = Input("t", "name string, n int")


def records(spark, *pairs):
    """Records of one partition, each a key and a value."""
    rows = [(key, value, "t", 0, offset, START) for offset, (key, value) in enumerate(pairs)]
    return spark.createDataFrame(rows, RECORD).coalesce(1)


def test_values_that_are_no_objects_are_no_rows(spark):
    """Null, empty, cut off, of another type, or no text at all: they are left out."""
    values = [b'{"name": "a", "n": 1}', None, b"", b'{"name": "b', b'{"n": "x"}', b"\xff", b"[1]"]

    rows = rows_of(records(spark, *((b"k", value) for value in values)), SOURCE)

    assert plain_rows(rows) == [{"name": "a", "n": 1, "_partition": 0, "_offset": 0}]


def test_times_that_nobody_can_hold_do_not_parse(spark):
    """Reports and plots are Python's, which ends with the year 9999; the border itself is read."""
    source = Input("t", "n int, time timestamp, day date")
    values = [
        b'{"n": 1, "time": "9999-12-31T23:59:59Z", "day": "0001-01-01"}',
        b'{"n": 2, "time": "+12026-01-01T10:00:00Z"}',
        b'{"n": 3, "day": "+12026-01-01"}',
        b'{"n": 4}',
    ]
    frame = records(spark, *((b"%d" % n, value) for n, value in enumerate(values)))

    assert [row["n"] for row in plain_rows(rows_of(frame, source))] == [1, 4]
    assert sorted(row.key for row in unusable(frame, source).collect()) == [b"1", b"2"]


def test_records_without_a_needed_column_are_left_out_by_that_reason(spark):
    """A window, a join or a name of an event would pass over them, and nobody would know."""
    source = Input("t", "name string, time timestamp", needed=("name", "time"))
    values = [
        b'{"name": "a", "time": "2026-03-02T08:00:00Z"}',
        b'{"name": "b"}',
        b'{"name": null, "time": "2026-03-02T08:00:00Z"}',
        b'{"name": "c", "time": "yesterday"}',
        b'{"name": "d", "time": "+12026-01-01T10:00:00Z"}',
        b"{}",
    ]
    frame = records(spark, *((b"%d" % n, value) for n, value in enumerate(values)))
    counted = observed(frame, source)
    counted.collect()
    row = counted._jdf.queryExecution().observedMetrics().apply("t")
    counts = {name: row.getLong(n) for n, name in enumerate(row.schema().fieldNames())}

    assert {name: count for name, count in counts.items() if count} == {
        "rows": 6,
        "malformed": 5,
        "name is missing": 2,
        "time is missing": 1,
        "time is no timestamp": 1,
        FAR_TIME: 1,
    }
    assert [row["name"] for row in plain_rows(rows_of(frame, source))] == ["a"]
    assert sorted(row.key for row in unusable(frame, source).collect()) == [
        b"%d" % n for n in range(1, 6)
    ]


@pytest.mark.parametrize(
    ("numbers", "sum_of_them"),
    [
        ([2**63 - 1, 1, -1], 2**63 - 1),
        ([2**63 - 1, 2**63 - 1, 5], 2**63 - 1),
        ([-(2**63), -1, -1], -(2**63)),
        ([None, 3, -4], -1),
        ([None], None),
    ],
)
def test_total_of_whole_numbers_has_a_greatest_and_a_least(spark, numbers, sum_of_them):
    """Two numbers of one record each would end a pipeline for good."""
    frame = spark.createDataFrame([(each,) for each in numbers], "n bigint")

    assert frame.agg(total("n")).first()[0] == sum_of_them


LARGE = [
    (change_capture.by_city, "city string, balance bigint", ["Oslo", 2**63 - 1]),
    (
        event_sourcing.state,
        "account string, version int, kind string, amount bigint, time timestamp",
        ["a", 1, "withdrawn", -(2**63), START],
    ),
    (
        web_traffic.traffic_per_minute,
        "problem string, time timestamp, client string, bytes bigint",
        [None, START, "192.0.2.1", 2**63 - 1],
    ),
]


@pytest.mark.parametrize(("result", "columns", "row"), LARGE, ids=["balances", "amounts", "bytes"])
def test_no_number_of_a_record_ends_a_pipeline(spark, result, columns, row):
    """Spark's own sum, and the opposite of the least number, would at each start."""
    (found,) = result(spark.createDataFrame([row, row], columns)).collect()

    assert 2**63 - 1 in tuple(found)


@pytest.mark.parametrize(("seconds", "moments"), [(0, 1), (2, 2), (2.5, 3)])
def test_event_counts_once_at_each_moment_of_a_short_history(spark, seconds, moments):
    """Of fewer seconds than moments; the last moment has all events."""
    text = "account string, version int, kind string, amount bigint, time timestamp"
    newest = START + timedelta(seconds=seconds)
    rows = [("a", 1, "opened", 5, START), ("b", 1, "opened", 2, newest)]

    found = event_sourcing.balance_over_time(spark.createDataFrame(rows, text), 10).toArrow()

    *before, last = found.select(["moment", "accounts", "balance"]).to_pylist()
    assert last == {"moment": newest.astimezone(UTC), "accounts": 2, "balance": 7}
    assert all((row["accounts"], row["balance"]) == (1, 5) for row in before)
    assert found.num_rows == moments


def test_unusable_rows_of_a_table_are_the_newest_of_their_keys(spark):
    """What was replaced since, or removed, is missed by nobody."""
    pairs = [(b"a", b"?"), (b"a", b'{"n": 1}'), (b"b", b"?"), (b"b", None), (b"c", b'{"n": "x"}')]

    assert [row.key for row in unusable(records(spark, *pairs), SOURCE).collect()] == [b"c"]


def test_table_has_the_newest_value_of_each_key(spark):
    """A key whose newest record has no value is gone."""
    pairs = [(b"a", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"a", b'{"n": 3}'), (b"b", None)]

    rows = plain_rows(table_of(records(spark, *pairs), SOURCE))

    assert [(row["n"], row["_offset"]) for row in rows] == [(3, 2)]


@pytest.mark.parametrize("seed", range(2))
def test_newest_record_of_each_key_over_changing_partitions(spark, seed):
    """By the offset in a partition, and by the time where a key has moved to another."""
    topic = KeyedTopic(random.Random(seed), keys=40)
    for _ in range(6):
        for _ in range(100):
            topic.send()
        topic.add_partitions()
    rows = [
        (row[0].encode(), None if row[2] else b'{"n": %d}' % row[1], "t", row[4], row[5], row[3])
        for row in topic.batch(is_all=True)
    ]

    found = table_of(spark.createDataFrame(rows, RECORD), SOURCE).collect()
    streamed = Source("t", Serdes.string(), Serdes.string()).newest(
        spark.createDataFrame(rows, RECORD)
    )
    values = {row.key: row.value for row in streamed.frame.collect()}

    assert sorted(row.n for row in found) == sorted(topic.truth.values())
    assert {key: json.loads(v)["n"] for key, v in values.items() if v} == topic.truth


def test_rows_come_back_as_they_were(spark):
    """Nulls, moments, bytes and lists; of rows with one name the last."""
    output = Output("t", key=("name",), identity=("name",))
    rows = spark.sql(
        "select * from values ('a', timestamp'2026-03-02 08:00:00.125', x'00ff', array('x'), 0),"
        " ('b', null, null, null, 1) as (name, time, raw, tags, n)"
    )
    written = [(bytes(row.key), bytes(row.value)) for row in records_of(rows, output).collect()]
    older = (b"a", json.dumps({"name": "a", "n": -1}).encode())

    back = result_of(records(spark, older, *written), output, rows.schema)

    assert [key for key, _ in written] == [b"a", b"b"]
    assert sorted(back.collect()) == sorted(rows.collect())


MANY = Input("t", "a int, b string, c timestamp, d date, e struct<x: timestamp>, f array<int>")


@pytest.mark.parametrize(
    "read",
    [
        lambda frame: rows_of(frame, MANY),
        lambda frame: table_of(frame, MANY),
        lambda frame: unusable(frame, MANY),
        lambda frame: result_of(frame, Output("t"), rows_of(frame, MANY).schema),
        lambda frame: Layout(MANY.schema, "day", "c").rows(frame),
    ],
    ids=["rows", "table", "unusable", "result", "warehouse"],
)
def test_value_is_parsed_once_whatever_is_read_of_it(spark, read):
    """Spark makes a parser for each field where it may, and each reads the whole value."""
    frame = read(records(spark, (b"k", b'{"a": 1}')))
    plan = frame._jdf.queryExecution().optimizedPlan().toString()

    assert plan.count("from_json") == 1, plan


def test_problem_of_a_record_is_looked_for_in_what_was_parsed_once(spark):
    """To count the reasons a value is parsed once more, if it has a problem."""
    frame = observed(records(spark, (b"k", b'{"a": 1}')), MANY)
    plan = frame._jdf.queryExecution().optimizedPlan().toString()

    (parsed,) = [line for line in plan.splitlines() if "Generate inline" in line]
    assert parsed.count("from_json") == 1, plan
    (counted,) = [line for line in plan.splitlines() if "CollectMetrics" in line]
    assert "from_json" not in counted
