"""A Delta table as the home of loads: what commits, what conflicts, what can be taken back."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from power_loss import PowerLoss
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from table_rows import COLUMNS, P0, P1, load_of, wider, write

from ottla.warehouse.delta import DeltaHome, history, open_delta, sql
from ottla.warehouse.delta_maintenance import compact, vacuum
from ottla.warehouse.table_location import Place, WarehouseError


@pytest.fixture
def home(tmp_path):
    """A table that has nothing but columns."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    home.prepare(COLUMNS, ())
    return home


def offsets(home):
    """What is in the table, by partition."""
    rows = sql(home.place.uri, 'SELECT "partition", "offset" FROM records').to_pylist()
    found = {0: [], 1: []}
    for row in rows:
        found[row["partition"]].append(row["offset"])
    return {partition: sorted(numbers) for partition, numbers in found.items()}


def do(home, load):
    return home.snapshot().commit(load, write(home, load))


def test_commit_has_files_and_offsets_together(home):
    """The next load finds where this one ended, in the table alone."""
    assert do(home, load_of(1, {P0: 0, P1: 5}, {P0: 3, P1: 7})) == 1

    found = DeltaHome(home.place).snapshot()
    assert found.offsets("load", [P0, P1]) == {P0: 3, P1: 7}
    assert (found.number("load"), found.number("other")) == (1, 0)
    assert found.offsets("other", [P0]) == {}
    assert offsets(home) == {0: [0, 1, 2], 1: [5, 6]}


def test_load_that_has_committed_survives_a_loss_of_power(tmp_path, monkeypatch):
    """Its files are on the disk before the commit, and that is when the load returns."""
    (tmp_path / "table").mkdir()
    disk = PowerLoss(tmp_path / "table", monkeypatch)
    home = DeltaHome(Place.of(tmp_path / "table"))
    home.prepare(COLUMNS, ())
    do(home, load_of(1, {P0: 0, P1: 0}, {P0: 3, P1: 0}))
    home.prepare(wider("more"), ())
    do(home, load_of(2, {P0: 3}, {P0: 5}))
    write(home, load_of(3, {P0: 5}, {P0: 9}))
    disk.strike()

    assert home.snapshot().offsets("load", [P0]) == {P0: 5}
    assert offsets(home) == {0: [0, 1, 2, 3, 4], 1: []}


@pytest.mark.parametrize(
    "kind",
    [BinaryType(), ArrayType(StringType()), MapType(StringType(), LongType()), COLUMNS],
    ids=lambda kind: kind.typeName(),
)
def test_table_is_not_partitioned_by_what_no_text_can_be(tmp_path, kind):
    """Bytes would come back as the text that Python shows of them."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    schema = StructType([StructField("n", LongType()), StructField("part", kind)])

    with pytest.raises(WarehouseError, match="cannot be partitioned by part, a "):
        home.prepare(schema, ("part",))

    assert not (tmp_path / "table").exists()


def test_topic_of_another_id_is_known_as_another(home):
    """Ids are kept beside the offsets, for each name; where none was kept nothing is claimed."""
    load = load_of(1, {P0: 0}, {P0: 3})
    do(home, load)
    assert not home.snapshot().is_other_topic("load", "t", "one")

    do(home, replace(load_of(2, {P0: 3}, {P0: 4}), topic_ids={"t": "one"}))
    snapshot = home.snapshot()
    assert not snapshot.is_other_topic("load", "t", "one")
    assert snapshot.is_other_topic("load", "t", "two")
    assert not snapshot.is_other_topic("load", "u", "two")
    assert not snapshot.is_other_topic("other", "t", "two")

    do(home, replace(load_of(3, {P0: 0}, {P0: 2}), topic_ids={"t": "two"}))
    assert not home.snapshot().is_other_topic("load", "t", "two")
    assert home.snapshot().offsets("load", [P0]) == {P0: 2}


def test_files_without_a_commit_are_not_there(home):
    """Whatever dies before the commit has left nothing that counts; vacuum removes its files."""
    left = write(home, load_of(1, {P0: 0}, {P0: 3}))

    assert offsets(home) == {0: [], 1: []}
    assert vacuum(home.place, 168, delete=True) == []
    assert [path.rpartition("/")[2] for path in vacuum(home.place, 0, delete=True)] == [
        left[0].path
    ]


def test_of_two_loads_of_a_name_one_commits(home):
    """Both have read the same offsets; the second commit is refused, whatever it loaded."""
    load = load_of(1, {P0: 0}, {P0: 3})
    first, second = home.snapshot(), home.snapshot()
    first.commit(load, write(home, load))

    with pytest.raises(WarehouseError, match="another load of load has committed meanwhile"):
        second.commit(load, write(home, load))

    assert offsets(home) == {0: [0, 1, 2], 1: []}


def test_loads_of_different_names_do_not_stop_each_other(home):
    """Loads of different names do not stop each other, nor does compaction."""
    other = load_of(1, {P1: 0}, {P1: 2}, name="other")
    do(home, load_of(1, {P0: 0}, {P0: 1}))
    do(home, load_of(2, {P0: 1}, {P0: 2}))
    snapshot = home.snapshot()
    do(home, load_of(3, {P0: 2}, {P0: 3}))
    done = compact(home.place)

    snapshot.commit(other, write(home, other))

    assert (done.files_before, done.files_after) == (3, 1)
    assert offsets(home) == {0: [0, 1, 2], 1: [0, 1]}


def test_what_ends_a_commit_is_named(home):
    """A load of the same name, its rewind, or columns that another load has added or widened."""
    do(home, load_of(1, {P0: 0}, {P0: 3}))
    wide = wider("more")
    longer = StructType([StructField("partition", LongType())])
    for between, reason in (
        (lambda: do(home, load_of(2, {P0: 3}, {P0: 4})), "another load of load has committed"),
        (lambda: home.snapshot().rewind("load", {P0: 2}, {}), "another load of load has committed"),
        (lambda: home.prepare(wide, ()), "its columns were changed meanwhile"),
        (lambda: home.prepare(longer, ()), "its columns were changed meanwhile"),
    ):
        snapshot = home.snapshot()
        load = load_of(snapshot.number("load") + 1, {P0: 4}, {P0: 6})
        files = write(home, load)
        between()
        before = offsets(home)
        with pytest.raises(WarehouseError, match=reason):
            snapshot.commit(load, files)
        assert offsets(home) == before


ONE = {"t": "one"}


def ends_of_others(home, name, topic="t", topic_id="one"):
    """Of two partitions, for a load of this name."""
    places = [where._replace(topic=topic) for where in (P0, P1)]
    return home.snapshot().ends_of_others(name, places, {topic: topic_id})


def test_what_loads_of_other_names_have_is_known(home):
    """Where the furthest of them ended, of the same topic; what was taken back is not there."""
    assert ends_of_others(home, "new") == {}
    do(home, load_of(1, {P0: 0, P1: 0}, {P0: 5, P1: 3}, topic_ids=ONE))
    do(home, load_of(1, {P0: 0}, {P0: 2}, "small", topic_ids=ONE))
    assert ends_of_others(home, "new") == {P0: ("load", 5), P1: ("load", 3)}
    assert ends_of_others(home, "load") == {}
    assert ends_of_others(home, "small") == {P0: ("load", 5), P1: ("load", 3)}
    assert ends_of_others(home, "new", topic_id="two") == {}
    assert ends_of_others(home, "new", topic="u") == {}
    home.snapshot().rewind("load", {P0: 1, P1: 9}, ONE)
    assert ends_of_others(home, "new")[P0][1] == 1
    assert ends_of_others(home, "small")[P0] == ("load", 1)


@pytest.mark.parametrize("is_expired", [False, True])
def test_loads_of_other_names_are_known_however_long_ago(home, monkeypatch, is_expired):
    """Behind any number of commits, and when these are gone: only the name is missing then."""
    monkeypatch.setattr("ottla.warehouse.delta.COMMITS_LOOKED_AT", 2)
    do(home, load_of(1, {P0: 0}, {P0: 5}, topic_ids=ONE))
    for number in range(3):
        do(home, load_of(number + 1, {P1: number}, {P1: number + 1}, "other", topic_ids=ONE))
    if is_expired:
        open_delta(home.place).create_checkpoint()
        for path in table_log(home).glob("*.json"):
            path.unlink()

    assert ends_of_others(home, "new") == {P0: ("", 5), P1: ("" if is_expired else "other", 3)}
    assert ends_of_others(home, "other") == {P0: ("", 5)}


def test_of_loads_that_did_not_keep_how_far_a_partition_is(home, monkeypatch):
    """Those of an earlier version are known by the descriptions of the newest commits."""
    with monkeypatch.context() as patch:
        patch.setattr("ottla.warehouse.delta._rows_app_id", lambda where, ids: f"-/{where}")
        do(home, load_of(1, {P0: 0}, {P0: 5}, topic_ids=ONE))
    assert ends_of_others(home, "new") == {P0: ("load", 5)}


def test_of_two_loads_of_a_partition_one_commits(home):
    """Of any names: both have seen that nobody was further, and have read the same records."""
    load = load_of(1, {P0: 0}, {P0: 3}, topic_ids=ONE)
    other = load_of(1, {P0: 0}, {P0: 3}, "other", topic_ids=ONE)
    first, second = home.snapshot(), home.snapshot()
    first.commit(load, write(home, load))

    with pytest.raises(WarehouseError, match="a load of another name has committed meanwhile"):
        second.commit(other, write(home, other))

    assert offsets(home) == {0: [0, 1, 2], 1: []}


def test_offsets_outlive_the_log_of_the_table(home):
    """They are in its checkpoints: the commits themselves are deleted in time."""
    for number in range(3):
        do(home, load_of(number + 1, {P0: number}, {P0: number + 1}))
    table = open_delta(home.place)
    table.create_checkpoint()
    for path in table_log(home).glob("*.json"):
        path.unlink()

    assert home.snapshot().offsets("load", [P0]) == {P0: 3}
    assert home.snapshot().number("load") == 3


def table_log(home):
    from pathlib import Path

    return Path(home.place.uri) / "_delta_log"


def test_load_without_records_keeps_where_it_begins(home):
    """A load that is to begin at the end of a log has to remember which end that was."""
    assert do(home, load_of(1, {P0: 500}, {P0: 500})) == 1

    assert home.snapshot().offsets("load", [P0]) == {P0: 500}


def test_rewind_takes_back_rows_and_offsets_in_one_commit(home):
    """Of partitions that are beyond the offset; records that are loaded again are there once."""
    do(home, load_of(1, {P0: 0, P1: 0}, {P0: 5, P1: 5}))

    assert home.snapshot().rewind("load", {P0: 2, P1: 9}, {}) == {P0: (5, 2)}

    assert offsets(home) == {0: [0, 1], 1: [0, 1, 2, 3, 4]}
    assert home.snapshot().offsets("load", [P0, P1]) == {P0: 2, P1: 5}
    do(home, load_of(3, {P0: 2}, {P0: 5}))
    assert offsets(home) == {0: [0, 1, 2, 3, 4], 1: [0, 1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("to", "ids", "earliest", "reason"),
    [
        ({P0: 2}, {"t": "a"}, {P0: 2}, None),
        ({P0: 2}, {}, {P0: 0}, None),
        ({P0: 2}, {"t": "b"}, {P0: 0}, "a topic t that was deleted since"),
        ({P0: 2}, {"t": "a"}, {P0: 3}, "t-0 begins at offset 3 by now"),
        ({P0: 9}, {"t": "b"}, {P0: 12}, None),
    ],
)
def test_rewind_that_loses_rows_is_refused(home, to, ids, earliest, reason):
    """Rows of a former topic, or of records that retention has deleted, cannot be loaded again."""
    do(home, load_of(1, {P0: 0}, {P0: 5}, topic_ids={"t": "a"}))
    expected = nullcontext() if reason is None else pytest.raises(WarehouseError, match=reason)

    with expected:
        home.snapshot().check_rewind("load", to, ids, earliest)


def test_rewind_is_refused_once_a_new_topic_was_accepted(home):
    """Rows of both topics have the same offsets."""
    do(home, load_of(1, {P0: 0}, {P0: 5}, topic_ids={"t": "a"}))
    do(home, load_of(2, {P0: 5}, {P0: 6}, topic_ids={"t": "a"}))
    home.snapshot().check_rewind("load", {P0: 0}, {"t": "a"}, {P0: 0})
    do(home, load_of(3, {P0: 0}, {P0: 2}, topic_ids={"t": "b"}))

    with pytest.raises(WarehouseError, match="a topic t that was deleted since"):
        home.snapshot().check_rewind("load", {P0: 0}, {"t": "b"}, {P0: 0})


def test_rewind_and_load_at_once_do_not_mix(home):
    """A load that was planned before a rewind is refused."""
    do(home, load_of(1, {P0: 0}, {P0: 5}))
    planned, load = home.snapshot(), load_of(2, {P0: 5}, {P0: 8})
    home.snapshot().rewind("load", {P0: 0}, {})

    with pytest.raises(WarehouseError, match="meanwhile"):
        planned.commit(load, write(home, load))

    assert offsets(home) == {0: [], 1: []}


def test_rewind_does_not_miss_what_was_loaded_meanwhile(home):
    """It would set the offset back, and leave the rows."""
    do(home, load_of(1, {P0: 0}, {P0: 5}))
    planned = home.snapshot()
    do(home, load_of(2, {P0: 5}, {P0: 8}))

    with pytest.raises(WarehouseError, match="nothing was taken back"):
        planned.rewind("load", {P0: 0}, {})

    assert offsets(home) == {0: list(range(8)), 1: []}
    assert home.snapshot().offsets("load", [P0]) == {P0: 8}


def test_rewind_of_what_was_never_loaded_changes_nothing(home):
    """No commit is made."""
    assert home.snapshot().rewind("load", {P0: 0}, {}) == {}
    assert DeltaTable(home.place.uri).version() == 0


def test_columns_are_added_and_never_changed(home):
    """Rows that were there before have nulls in a new column; one of another type is refused."""
    do(home, load_of(1, {P0: 0}, {P0: 1}))
    home.prepare(wider("path"), ())
    home.prepare(COLUMNS, ())
    do(home, load_of(2, {P0: 1}, {P0: 2}))

    rows = sql(home.place.uri, 'SELECT "offset", path FROM records ORDER BY "offset"').to_pylist()
    assert rows == [{"offset": 0, "path": None}, {"offset": 1, "path": None}]
    with pytest.raises(WarehouseError, match="its column path is string, and cannot take bigint"):
        home.prepare(StructType([StructField("path", LongType())]), ())


def holding(home, kind, value):
    """A row with this value in a column of the type."""
    home.prepare(StructType([StructField("n", kind), StructField("d", StringType())]), ("d",))
    table = open_delta(home.place)
    rows = [{"n": value, "d": "a"}, {"n": None, "d": "b"}]
    columns = pa.schema(table.schema().to_arrow())
    write_deltalake(table, pa.Table.from_pylist(rows, columns), mode="append")


@pytest.mark.parametrize(
    ("narrow", "value", "wide", "same"),
    [
        (ByteType(), 127, IntegerType(), 127),
        (IntegerType(), -(2**31), LongType(), -(2**31)),
        (IntegerType(), 2**31 - 1, DoubleType(), 2.0**31 - 1),
        (FloatType(), 0.5, DoubleType(), 0.5),
        (LongType(), 2**63 - 1, DecimalType(22, 2), Decimal("9223372036854775807.00")),
        (DecimalType(4, 2), Decimal("99.99"), DecimalType(7, 4), Decimal("99.9900")),
        (DateType(), date(1, 1, 1), TimestampNTZType(), datetime(1, 1, 1)),
        (ArrayType(IntegerType()), [1, None], ArrayType(LongType()), [1, None]),
        (
            MapType(StringType(), ByteType()),
            [("a", 1)],
            MapType(StringType(), LongType()),
            [("a", 1)],
        ),
        (
            StructType([StructField("x", IntegerType())]),
            {"x": 1},
            StructType([StructField("y", StringType()), StructField("x", LongType())]),
            {"x": 1, "y": None},
        ),
    ],
)
def test_column_is_widened_and_keeps_its_values(tmp_path, narrow, value, wide, same):
    """All rows are written again in one commit; older versions and offsets stay."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    holding(home, narrow, value)
    home.snapshot().append([], {"query": 7}, {})
    home.prepare(StructType([StructField("n", wide)]), ("d",))

    table = open_delta(home.place)
    assert table.to_pyarrow_table(columns=["n", "d"]).sort_by("d").to_pylist() == [
        {"n": same, "d": "a"},
        {"n": None, "d": "b"},
    ]
    assert home.snapshot().number("query") == 7
    assert table.metadata().partition_columns == ["d"]
    widened = json.loads(history(home.place, 1)[0]["facts"]["ottla.widened"])
    assert list(widened) == ["n"]
    version = table.version()
    for kind in narrow, wide:
        home.prepare(StructType([StructField("n", kind)]), ("d",))
    assert open_delta(home.place).version() == version, "it has room for both"
    before = open_delta(home.place, version - 1).to_pyarrow_table(columns=["n"])
    assert value in before["n"].to_pylist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LongType(), DoubleType()),
        (IntegerType(), StringType()),
        (StringType(), BinaryType()),
        (DecimalType(38, 0), DecimalType(38, 1)),
        (DecimalType(5, 2), DoubleType()),
        (DateType(), TimestampType()),
        (BooleanType(), IntegerType()),
        (ArrayType(LongType()), ArrayType(FloatType())),
        (StructType([StructField("x", LongType())]), StructType([StructField("x", StringType())])),
        (LongType(), ArrayType(LongType())),
    ],
)
def test_column_that_no_type_has_room_for_is_refused(tmp_path, one, other):
    """A value that would be rounded or cut is none that a load may change."""
    for first, second in (one, other), (other, one):
        home = DeltaHome(Place.of(tmp_path / str(first == one)))
        home.prepare(StructType([StructField("n", first)]), ())
        with pytest.raises(WarehouseError, match=r"its column n is .*, and cannot take"):
            home.prepare(StructType([StructField("n", second)]), ())
        assert open_delta(home.place).version() == 0


def rewind(home):
    """Take back what the load has added since its first record."""
    home.snapshot().rewind("load", {P0: 1}, {})


def append(home):
    """The next load of the same name."""
    do(home, load_of(3, {P0: 4}, {P0: 6}))


@pytest.mark.parametrize(
    ("other", "rows"),
    [(rewind, [0]), (append, [*range(6)]), (lambda home: compact(home.place), [*range(4)])],
    ids=["rewind", "load", "compaction"],
)
def test_column_is_not_widened_beside_another_commit(home, monkeypatch, other, rows):
    """Deleted rows would be back, compacted ones there twice, and appended ones too narrow."""
    do(home, load_of(1, {P0: 0}, {P0: 2}))
    do(home, load_of(2, {P0: 2}, {P0: 4}))
    table = open_delta(home.place)
    other(home)
    monkeypatch.setattr("ottla.warehouse.delta.open_delta", lambda place: table)

    with pytest.raises(WarehouseError, match="changed while its columns partition were made wider"):
        home.prepare(StructType([StructField("partition", LongType())]), ())
    monkeypatch.undo()
    assert offsets(home)[0] == rows
    home.prepare(StructType([StructField("partition", LongType())]), ())
    assert offsets(home)[0] == rows


def test_compaction_beside_a_widening_is_refused(home, monkeypatch):
    """It would bring back the narrower rows."""
    for number in range(3):
        do(home, load_of(number + 1, {P0: number}, {P0: number + 1}))
    table = open_delta(home.place)
    home.prepare(StructType([StructField("partition", LongType())]), ())
    monkeypatch.setattr("ottla.warehouse.delta_maintenance.open_delta", lambda place: table)

    with pytest.raises(WarehouseError, match="changed while it was compacted"):
        compact(home.place)
    monkeypatch.undo()
    assert offsets(home)[0] == [0, 1, 2]


def test_widening_leaves_the_rest_of_the_schema(tmp_path):
    """Comments of columns, and that others have no nulls."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    fields = [
        Field("n", "integer", metadata={"comment": "c"}),
        Field("k", "string", nullable=False),
    ]
    table = DeltaTable.create(home.place.uri, Schema(fields))
    rows = pa.table({"n": pa.array([1], pa.int32()), "k": ["a"]})
    write_deltalake(table, rows.cast(pa.schema(table.schema().to_arrow())), mode="append")
    home.prepare(StructType([StructField("n", LongType())]), ())

    n, k = open_delta(home.place).schema().fields
    assert (str(n.type.type), n.metadata, k.nullable) == ("long", {"comment": "c"}, False)


@pytest.mark.parametrize(
    "columns",
    [
        StructType([StructField("PATH", StringType())]),
        StructType([StructField("m", LongType()), StructField("M", LongType())]),
        StructType([StructField("o", StructType([StructField("X", LongType())]))]),
    ],
    ids=["another column", "both", "within an object"],
)
def test_names_that_differ_in_capitals_only_are_refused(tmp_path, columns):
    """Readers of tables do not tell them apart."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    inner = StructType([StructField("x", LongType())])
    home.prepare(StructType([StructField("path", StringType()), StructField("o", inner)]), ())
    with pytest.raises(WarehouseError, match=r"table .*table: .*(capitals|cannot take)"):
        home.prepare(columns, ())
    assert open_delta(home.place).version() == 0


@pytest.mark.parametrize("kind", ["append only", "bytes", "full"])
def test_table_that_cannot_be_written_again_stays_as_it_is(tmp_path, monkeypatch, kind):
    """It is said which table, which column, and why."""
    home = DeltaHome(Place.of(tmp_path / "table"))
    rows = pa.table({"n": pa.array([1], pa.int32()), "p": pa.array([b"a"])})
    settings = {"delta.appendOnly": "true"} if kind == "append only" else None
    by = ["p"] if kind == "bytes" else None
    write_deltalake(home.place.uri, rows, configuration=settings, partition_by=by)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    if kind == "full":
        monkeypatch.setattr("deltalake.write_deltalake", fail)
    reason = {"append only": "appendOnly", "bytes": "by bytes", "full": "No space left"}[kind]
    with pytest.raises(WarehouseError, match=rf"table .*table: .*columns n .*{reason}"):
        home.prepare(StructType([StructField("n", LongType())]), tuple(by or ()))
    assert open_delta(home.place).version() == 0


def test_partitioning_stays(home):
    """It is said how the table is partitioned."""
    with pytest.raises(WarehouseError, match="by nothing, and cannot be by topic"):
        home.prepare(COLUMNS, ("topic",))


def test_history_tells_what_was_loaded(home):
    """The newest first, with the offsets and rows of loads."""
    do(home, load_of(1, {P0: 0}, {P0: 3}))

    newest, oldest = history(home.place, 10)

    assert newest["facts"] == {
        "ottla.load": "load",
        "ottla.number": "1",
        "ottla.offsets.from": '{"t":{"0":0}}',
        "ottla.offsets.to": '{"t":{"0":3}}',
        "ottla.files": "1",
        "ottla.rows": "3",
        "ottla.topics": "{}",
    }
    assert (oldest["version"], oldest["facts"]) == (0, {})


@pytest.mark.parametrize("version", [-1, 2, 2**63])
def test_version_that_there_is_not_is_told(home, version):
    """With the newest that there is."""
    do(home, load_of(1, {P0: 0}, {P0: 3}))

    assert open_delta(home.place, 1).version() == 1
    with pytest.raises(WarehouseError, match=rf"has no version {version} \(its newest is 1\)"):
        open_delta(home.place, version)


def test_place_without_a_table_is_told(tmp_path):
    """A place without a table is reported, and nothing is made there."""
    with pytest.raises(WarehouseError, match="there is no Delta table"):
        open_delta(Place.of(tmp_path / "nothing"))

    assert not (tmp_path / "nothing").exists()
