"""Rows merged by the place of their records, whatever was done to the topic's partitions."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from table_rows import START, KeyedTopic

from ottla.spark.source import RECORD_ORDER
from ottla.warehouse.delta import DeltaHome, history, make_delta, open_delta
from ottla.warehouse.sinks import MergeSink, place_of_gone, with_types
from ottla.warehouse.table_location import Place, WarehouseError

ROW = StructType(
    [
        StructField("id", StringType()),
        StructField("n", LongType()),
        StructField("deleted", BooleanType()),
        StructField("timestamp", TimestampType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
    ]
)
ARROW = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("deleted", pa.bool_()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


def newest(rows):
    """The newest of each key in a batch: by the offset in a partition, and else by the time."""
    in_partition = {}
    for row in sorted(rows, key=lambda row: row[5]):
        before = in_partition.get((row[0], row[4]))
        time = row[3] if before is None else max(row[3], before[3])
        in_partition[row[0], row[4]] = (*row[:3], time, *row[4:])
    found = {}
    for row in sorted(in_partition.values(), key=lambda row: (row[3], row[4])):
        found[row[0]] = row
    return list(found.values())


def arrow(rows):
    columns = zip(*rows, strict=True) if rows else [[] for _ in ARROW]
    return pa.Table.from_arrays(
        [pa.array(column, each.type) for column, each in zip(columns, ARROW, strict=True)],
        schema=ARROW,
    )


@pytest.fixture
def sink(tmp_path):
    place = Place.of(tmp_path / "table")
    columns = StructType([each for each in ROW.fields if each.name != "deleted"])
    DeltaHome(place).prepare(columns, ())
    return MergeSink(place, ("id",), RECORD_ORDER, "deleted")


def merge(sink, rows, number):
    sink.merge(open_delta(sink.place), arrow(newest(rows)), {"query": number})


def content(sink):
    rows = DeltaTable(sink.place.uri).to_pyarrow_table().to_pylist()
    return {row["id"]: row["n"] for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_table_is_the_newest_of_each_key_over_changing_partitions(sink, seed):
    """Changes and deletions of keys that move, read at any pace, and batches that are run again."""
    chance = random.Random(seed)
    topic = KeyedTopic(chance, keys=6)
    for number in range(1, 7):
        for _ in range(chance.randrange(20)):
            topic.send()
        if chance.random() < 0.5:
            topic.add_partitions()
        rows = topic.batch()
        for _ in range(chance.choice((1, 1, 2))):
            merge(sink, rows, number)
    merge(sink, topic.batch(is_all=True), 7)

    assert content(sink) == topic.truth
    assert {each["facts"].get("ottla.order") for each in history(sink.place, 20)} == {
        "offset within one partition, else timestamp",
        None,
    }


def test_deletion_that_comes_before_an_older_row_holds(sink):
    """The new partition is read first, and then what the old one had before the key moved."""
    at = [START + timedelta(seconds=n) for n in range(3)]
    merge(sink, [("a", None, True, at[1], 1, 0)], 1)
    merge(sink, [("a", 1, False, at[0], 0, 7)], 2)
    assert content(sink) == {}

    merge(sink, [("a", 2, False, at[2], 1, 1)], 3)
    assert content(sink) == {"a": 2}


def test_offset_counts_in_a_partition_whatever_times_say(sink):
    """Producers whose clocks go back change nothing in the order of a log."""
    for number, (n, back) in enumerate([(1, 0), (2, -50), (3, 10), (4, -900)]):
        merge(sink, [("a", n, False, START + timedelta(days=back), 0, number)], number + 1)
        assert content(sink) == {"a": n}
    merge(sink, [("a", 9, False, START + timedelta(days=5), 1, 0)], 9)
    assert content(sink) == {"a": 4}
    merge(sink, [("a", 10, False, START + timedelta(days=11), 1, 1)], 10)
    assert content(sink) == {"a": 10}


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_zone_of_the_session_changes_nothing(sink, zone):
    """Spark's moments come in the zone of its session, and are the same moments."""
    at = [START + timedelta(seconds=n) for n in range(3)]
    batches = ([("a", None, True, at[1], 1, 0)], [("a", 1, False, at[0], 0, 7)])
    for number, rows in enumerate((*batches, [("a", 2, False, at[2], 1, 1)]), 1):
        table = arrow(rows)
        local = table["timestamp"].cast(pa.timestamp("us", zone))
        table = table.set_column(3, "timestamp", local)
        sink.merge(open_delta(sink.place), table, {"query": number})
        assert content(sink) == ({"a": 2} if number == 3 else {})


def test_deletions_of_long_ago_are_forgotten(sink):
    """The companion of a table does not grow for all time."""
    merge(sink, [("a", None, True, START, 0, 0)], 1)
    merge(sink, [("b", None, True, START + timedelta(days=30), 0, 1)], 2)

    gone = DeltaTable(place_of_gone(sink.place).uri).to_pyarrow_table().to_pylist()
    assert [row["id"] for row in gone] == ["b"]


@pytest.mark.parametrize("ahead", [timedelta(days=30), timedelta(days=70 * 365)])
def test_deletion_that_is_ahead_of_its_time_makes_no_other_one_old(sink, ahead):
    """The clock of one producer was wrong; what was deleted before stays deleted."""
    now = datetime.now(UTC)
    merge(sink, [("a", None, True, now - timedelta(hours=1), 1, 0)], 1)
    merge(sink, [("b", None, True, now + ahead, 1, 1)], 2)
    merge(sink, [("a", 1, False, now - timedelta(hours=2), 0, 7)], 3)

    assert content(sink) == {}


def test_rows_of_before_places_were_kept_are_older(tmp_path):
    """A table of an earlier release has offsets without partitions; new changes count there."""
    place = Place.of(tmp_path / "table")
    old = StructType([each for each in ROW.fields if each.name in ("id", "n", "offset")])
    DeltaHome(place).prepare(old, ())
    sink = MergeSink(place, ("id",), "offset", "deleted")
    rows = pa.table({"id": ["a"], "n": [1], "offset": [900], "deleted": [False]})
    sink.merge(open_delta(place), rows, {"query": 1})
    assert content(sink) == {"a": 1}

    columns = StructType([each for each in ROW.fields if each.name != "deleted"])
    DeltaHome(place).prepare(columns, ())
    merge(MergeSink(place, ("id",), RECORD_ORDER, "deleted"), [("a", 2, False, START, 3, 0)], 2)

    assert content(sink) == {"a": 2}


KINDS = {"long": pa.int64(), "double": pa.float64(), "text": pa.string()}


def order_of(version):
    """How versions compare: null and NaN are older than all others."""
    has_none = version is None or version != version
    return (False,) if has_none else (True, version)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_nulls_in_keys_orders_and_deletions_are_values(tmp_path, kind, seed):
    """A null key is a key, a null or NaN is the oldest version, and a null deletes nothing.

    What is older than a deletion of its key stays out.
    """
    chance = random.Random(f"{kind} {seed}")
    place = Place.of(tmp_path / "table")
    columns = [("id", pa.string()), ("part", pa.int64()), ("version", KINDS[kind])]
    schema = pa.schema([*columns, ("n", pa.int64())])
    make_delta(place, schema)
    sink = MergeSink(place, ("id", "part"), "version", "deleted")
    versions = {
        "long": [None, -1, 0, 1, 2, 3],
        "double": [None, float("nan"), float("-inf"), 0.5, 1.5, float("inf")],
        "text": [None, "", "1", "2"],
    }[kind]
    expected, gone = {}, {}
    for number in range(8):
        rows = {}
        for _ in range(chance.randrange(1, 4)):
            key = (chance.choice([None, "a", "b"]), chance.choice([None, 1]))
            deleted = chance.choice([None, None, False, False, True])
            rows[key] = (chance.choice(versions), chance.randrange(99), deleted)
        for key, (version, n, deleted) in rows.items():
            if deleted and (key not in gone or order_of(version) > order_of(gone[key])):
                gone[key] = version
            before = expected.get(key)
            is_older = key in gone and order_of(version) < order_of(gone[key])
            if before is None and is_older:
                continue
            if before is None or order_of(version) > order_of(before[0]):
                expected.pop(key, None)
                if not deleted:
                    expected[key] = (version, n)
        given = [(*key, *row) for key, row in rows.items()]
        batch = pa.Table.from_arrays(
            [pa.array(column) for column in zip(*given, strict=True)],
            names=["id", "part", "version", "n", "deleted"],
        ).cast(pa.schema([*schema, ("deleted", pa.bool_())]))
        sink.merge(open_delta(place), batch, {"query": number})
        rows = open_delta(place).to_pyarrow_table().to_pylist()
        found = {(row["id"], row["part"]): (row["version"], row["n"]) for row in rows}
        assert len(found) == len(rows)
        assert repr(sorted(found.items(), key=repr)) == repr(sorted(expected.items(), key=repr))


def test_deletion_of_a_null_key_that_comes_before_an_older_row_holds(sink):
    """Null keys are among those that are remembered."""
    at = [START + timedelta(seconds=n) for n in range(3)]
    merge(sink, [(None, None, True, at[1], 1, 0), ("b", 1, False, at[0], 1, 1)], 1)
    merge(sink, [(None, 1, False, at[0], 0, 7), ("b", 2, False, at[2], 1, 2)], 2)
    assert content(sink) == {"b": 2}

    merge(sink, [(None, 2, False, at[2], 1, 3)], 3)
    assert content(sink) == {"b": 2, None: 2}


@pytest.mark.parametrize("seed", range(4))
def test_changes_of_a_topic_that_was_made_again_count(sink, seed):
    """Its offsets begin again, and its times are later; nothing waits until offsets have grown.

    A batch that comes once more still changes nothing.
    """
    chance = random.Random(seed)
    expected, number, second = {}, 0, 0
    for _ in range(3):
        offset = 0
        for _ in range(chance.randrange(1, 5)):
            rows = []
            for _ in range(chance.randrange(1, 6)):
                second += 1
                # A time may be earlier than those before it, but not than those of a former topic.
                time = START + timedelta(seconds=second - chance.randrange(3))
                rows.append((chance.choice("abc"), second, chance.random() < 0.3, time, 0, offset))
                offset += 1
            for row in rows:
                expected[row[0]] = None if row[2] else row[1]
            number += 1
            merge(sink, rows, number)
            number += 1
            merge(sink, rows, number)
            assert content(sink) == {id: n for id, n in expected.items() if n is not None}
        second += 10


NESTED = {
    "object": (pa.struct([("a", pa.int32())]), [{"a": 1}, {"a": None}, {"a": 2}]),
    "list": (pa.list_(pa.int32()), [[1], [], [1, None]]),
}


@pytest.mark.parametrize("kind", NESTED)
def test_keys_of_several_values_are_remembered_when_deleted(tmp_path, kind):
    """A batch with a deletion was refused, as Arrow cannot compare them, and came for ever."""
    of_key, keys = NESTED[kind]
    columns = [("id", of_key), *[(each.name, each.type) for each in ARROW if each.name != "id"]]
    schema = pa.schema(columns)
    place = Place.of(tmp_path / "table")
    make_delta(place, pa.schema([each for each in schema if each.name != "deleted"]))
    sink = MergeSink(place, ("id",), RECORD_ORDER, "deleted")

    def merge(*rows):
        arrays = zip(*rows, strict=True)
        table = [pa.array(each, of.type) for each, of in zip(arrays, schema, strict=True)]
        sink.merge(open_delta(place), pa.Table.from_arrays(table, schema=schema), {"query": 1})
        return {row["n"] for row in open_delta(place).to_pyarrow_table().to_pylist()}

    at = [START + timedelta(seconds=n) for n in range(9)]
    assert merge(*((key, n, False, at[n], 0, n) for n, key in enumerate(keys))) == {0, 1, 2}
    assert merge((keys[0], None, True, at[5], 1, 0), (keys[1], 9, False, at[5], 1, 1)) == {9, 2}
    assert merge((keys[0], 7, False, at[4], 0, 8)) == {9, 2}


def test_both_zeros_are_one_key(tmp_path):
    """Spark takes one for the other where it groups a batch."""
    place = Place.of(tmp_path / "table")
    make_delta(place, pa.schema([("id", pa.float64()), ("version", pa.int64())]))
    sink = MergeSink(place, ("id",), "version", "deleted")
    for version, key in enumerate((0.0, -0.0, 0.0)):
        rows = pa.table({"id": [key], "version": [version], "deleted": [False]})
        sink.merge(open_delta(place), rows, {"query": version})
    rows = open_delta(place).to_pyarrow_table().to_pylist()
    assert rows == [{"id": 0.0, "version": 2}]


def test_columns_without_a_type_wait_for_one():
    """The batch that has values brings the type: a table could not widen any other to it."""
    found = SimpleNamespace(
        schema=StructType([StructField("id", LongType()), StructField("v", NullType())]),
        drop=lambda *names: names,
    )
    assert with_types(found) == ("v",)


@pytest.mark.parametrize("kind", [StringType(), IntegerType()])
def test_deletions_are_told_by_a_boolean(tmp_path, kind):
    """Text and numbers would be compared by nobody's rule."""
    sink = MergeSink(Place.of(tmp_path / "table"), ("id",), "version", "deleted")
    rows = SimpleNamespace(schema=StructType([StructField("deleted", kind)]), drop=lambda: rows)
    with pytest.raises(WarehouseError, match="deleted=deleted: must be a boolean column, and is"):
        sink(rows, 0)


@pytest.mark.parametrize("name", ["a b", "a=b", "a.b", "a,b"])
def test_sinks_make_no_columns_that_delta_forbids(tmp_path, name):
    """A table that has one already goes on."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    with pytest.raises(WarehouseError, match="names of columns may"):
        home.prepare(StructType([StructField(name, LongType())]), ())
    make_delta(home.place, pa.schema([(name, pa.int64())]))
    home.prepare(StructType([StructField(name, LongType())]), ())


@pytest.mark.parametrize("kind", KINDS)
def test_deleted_row_does_not_come_back_with_an_older_version(tmp_path, kind):
    """Of whatever type versions are; one that is newer than the deletion brings it back."""
    versions = {"long": [3, 4, 5, 6], "double": [0.5, 1.5, 2.5, 3.5], "text": ["a", "b", "c", "d"]}
    first, second, third, last = versions[kind]
    place = Place.of(tmp_path / "table")
    schema = pa.schema([("id", pa.string()), ("version", KINDS[kind])])
    make_delta(place, schema)
    sink = MergeSink(place, ("id",), "version", "deleted")

    def merged(version, deleted=False):
        rows = pa.table({"id": ["a"], "version": [version], "deleted": [deleted]})
        rows = rows.cast(pa.schema([*schema, ("deleted", pa.bool_())]))
        sink.merge(open_delta(place), rows, {"query": 1})
        return [row["version"] for row in open_delta(place).to_pyarrow_table().to_pylist()]

    assert merged(first) == [first]
    assert merged(third, deleted=True) == []
    assert merged(second) == []
    assert merged(None) == []
    assert merged(last) == [last]
