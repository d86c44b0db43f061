"""Topics as files: each record stands in exactly one, whatever is killed when."""

from __future__ import annotations

import io
import json
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from random import Random
from types import SimpleNamespace

import pyarrow.parquet
import pytest

from ottla.connect.connector import TryAgainError
from ottla.connect.connectors.objects import FilesSink
from ottla.connect.data import (
    DATE,
    INT64,
    STRING,
    TIMESTAMP,
    SinkRecord,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)
from ottla.connect.tolerance import ToleranceExceededError
from ottla.errors import ConfigError
from ottla.structs import TopicPartition

PLACE = TopicPartition("orders", 3)
FIRST = "orders/partition=3/orders+3+00000000000000000000+00000000000000000001"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "lake"


class World:
    """What a sink asks of its worker: the topic that there is now, and where letters go."""

    name = "lake"

    def __init__(self, rewind, letters=None, topic_id="", log=range(1000)):
        self.rewind = rewind
        self.letters = letters
        self.id = topic_id
        self.log = log

    def topic_id(self, topic):
        return self.id

    def log_range(self, partition):
        return self.log

    def report(self, record, error):
        if self.letters is None:
            raise ToleranceExceededError(f"{record.offset}: {error}")
        self.letters.append((record.offset, str(error)))
        future = Future()
        future.set_result(None)
        return future


def started(folder, letters=None, topic_id="", log=range(1000), **settings):
    """A sink as a worker starts it, and where it asks to read on."""
    given = {"url": f"file://{folder}", "format": "jsonl", "records.per.file": "2"} | settings
    rewound = {}
    context = World(rewound.update, letters, topic_id, log)
    sink = FilesSink(FilesSink.Settings.parse(given), context)
    sink.start()
    sink.open([PLACE])
    return sink, rewound


def record(offset, value=None, **more):
    value = {"id": offset} if value is None else value
    return SinkRecord(topic="orders", partition=3, offset=offset, value=value, **more)


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("[!.]*.*"))
    }


def test_files_are_named_after_their_records(folder):
    """First and last offset; what is in no file yet is not committed."""
    sink, rewound = started(folder)
    sink.put([record(0), record(1), record(2)])

    assert files(folder) == {f"{FIRST}.jsonl": b'{"id":0}\n{"id":1}\n'}
    assert sink.pre_commit({PLACE: 3}) == {PLACE: 2}
    assert not rewound


@pytest.mark.parametrize("length", [180, 249])
def test_topic_whose_name_a_disk_cannot_hold_ends_the_task(folder, length):
    """It was tried again without an end: a file's name has offsets beside those 249 letters."""
    sink, _ = started(folder, **{"records.per.file": "1"})
    given = record(0).replace(topic="t" * length, original_topic="t" * length)
    if length < 190:
        sink.put([given])
        assert len(files(folder)) == 1
        return
    with pytest.raises(ConfigError, match="must take names as long as"):
        sink.put([given])


def test_restart_goes_on_behind_the_last_file(folder):
    """Whatever the group has committed."""
    sink, _ = started(folder)
    sink.put([record(0), record(1), record(2)])
    again, rewound = started(folder)

    assert rewound == {PLACE: 2}
    again.put([record(2), record(3)])
    assert [json.loads(line)["id"] for data in files(folder).values() for line in data.split()] == (
        [0, 1, 2, 3]
    )


def test_records_that_come_again_are_known(folder):
    """After a TryAgainError the worker brings the same records."""
    sink, _ = started(folder, **{"records.per.file": "3"})
    sink.put([record(0), record(1)])
    sink.put([record(0), record(1), record(2), record(3)])
    sink.put([record(3), record(4), record(5)])

    assert [data.count(b"\n") for data in files(folder).values()] == [3, 3]


def test_an_outage_is_no_bad_record(folder, monkeypatch):
    """The worker tries again, and nothing is lost or doubled."""
    sink, _ = started(folder)
    store = sink._store
    monkeypatch.setattr(sink, "_store", lambda *arguments: 1 / 0)
    with pytest.raises(TryAgainError, match="cannot be written"):
        sink.put([record(0), record(1), record(2)])
    monkeypatch.setattr(sink, "_store", store)
    sink.put([record(0), record(1), record(2)])
    sink.put([record(3)])

    assert len(files(folder)) == 2
    assert sink.pre_commit({PLACE: 4}) == {PLACE: 4}


def test_files_end_with_an_interval_of_timestamps(folder):
    """Of the records' own, so that a repetition ends at the same place."""
    sink, _ = started(folder, **{"records.per.file": "100", "record.interval.ms": "1000"})
    sink.put(
        [record(0, timestamp_ms=10), record(1, timestamp_ms=999), record(2, timestamp_ms=1000)]
    )

    assert list(files(folder)) == [f"{FIRST}.jsonl"]


def test_partitions_that_are_taken_away_are_forgotten(folder):
    """The next owner reads their records again."""
    sink, _ = started(folder)
    sink.put([record(0)])
    sink.close([PLACE])
    sink.open([PLACE])
    sink.put([record(0), record(1)])

    assert list(files(folder)) == [f"{FIRST}.jsonl"]


def test_two_files_with_one_record_are_refused(folder):
    """Someone else writes there: which of the two counts is for a person to say."""
    sink, _ = started(folder)
    sink.put([record(0), record(1)])
    path = folder / f"{FIRST}.jsonl"
    path.with_name(path.name.replace("+" + "0" * 20, "+" + "0" * 19 + "1")).write_bytes(b"")

    with pytest.raises(ConfigError, match="must not hold the same records"):
        started(folder)


def test_offsets_are_in_the_names(folder):
    """They are not changed over REST."""
    with pytest.raises(ConfigError, match="delete files from an offset on"):
        FilesSink.alter_offsets(FilesSink.Settings(url="memory://"), {PLACE: 0})


@pytest.mark.parametrize("seed", range(20))
def test_files_equal_the_topic_after_kills(folder, seed):
    """20 seeds: kills, outages, other settings after a restart, gaps in the offsets."""
    random = Random(seed)
    offsets = sorted(random.sample(range(600), 400))
    while True:
        sink, rewound = started(folder, **{"records.per.file": str(random.randint(1, 40))})
        store = sink._store

        def flaky(*arguments, store=store):
            if random.random() < 0.2:
                raise OSError("storage is down")
            store(*arguments)

        sink._store = flaky
        log = [record(offset) for offset in offsets if offset >= rewound.get(PLACE, 0)]
        at, lives = 0, random.randint(0, 200)
        while at < min(lives, len(log)):
            batch = log[at : at + random.randint(1, 50)]
            try:
                sink.put(batch)
                at += len(batch)
            except TryAgainError:
                pass
        written = [
            json.loads(line)["id"]
            for _, data in sorted(files(folder).items())
            for line in data.split()
        ]
        assert written == offsets[: len(written)]
        if len(written) > 380:
            break


SCHEMA = struct_of(
    "Order",
    id=INT64,
    name=STRING.as_optional(),
    price=decimal_of(2),
    day=DATE,
    at=TIMESTAMP,
    tags=array_of(STRING),
    extra=map_of(STRING, INT64),
    inner=struct_of(a=INT64).as_optional(),
)


def read(folder):
    found = [pyarrow.parquet.read_table(io.BytesIO(data)) for data in files(folder).values()]
    return found[0] if len(found) == 1 else found


def test_parquet_has_the_columns_of_the_schema(folder):
    """Logical types become those of Arrow; a tombstone is a row of nulls."""
    value = {
        "id": 1,
        "name": None,
        "price": Decimal("9.50"),
        "day": date(2020, 2, 3),
        "at": datetime(2020, 2, 3, 4, tzinfo=UTC),
        "tags": ["a"],
        "extra": {"k": 1},
        "inner": {"a": 5},
    }
    sink, _ = started(folder, format="parquet")
    sink.put(
        [record(0, value, value_schema=SCHEMA), record(1, value_schema=SCHEMA).replace(value=None)]
    )

    table = read(folder)
    assert table.to_pylist() == [value | {"extra": [("k", 1)]}, dict.fromkeys(value)]
    assert [str(field.type).split(" ('")[0] for field in table.schema] == [
        "int64",
        "string",
        "decimal128(38, 2)",
        "date32[day]",
        "timestamp[ms, tz=UTC]",
        "list<element: string>",
        "map<string, int64",
        "struct<a: int64>",
    ]


def test_parquet_without_a_schema(folder):
    """Columns are what the records of a file have; other values stand in one column."""
    sink, _ = started(folder, format="parquet", **{"with.metadata": "true"})
    sink.put([record(0, {"a": 1}, key="k", timestamp_ms=5), record(1, {"b": "x"}, key="l")])

    assert read(folder).to_pylist() == [
        {"__topic": "orders", "__partition": 3, "__offset": 0, "__timestamp": 5, "__key": "k"}
        | {"a": 1, "b": None},
        {"__topic": "orders", "__partition": 3, "__offset": 1, "__timestamp": None, "__key": "l"}
        | {"a": None, "b": "x"},
    ]
    with pytest.raises(ToleranceExceededError, match=r"3: .*Field a has incompatible types"):
        sink.put([record(2, {"a": 1}), record(3, {"a": "x"})])


def test_another_schema_is_another_file(folder):
    """A file has one schema."""
    sink, _ = started(folder, format="parquet", **{"records.per.file": "5"})
    sink.put([record(0, 1, value_schema=INT64), record(1, 2, value_schema=INT64)])
    sink.put([record(2, "x", value_schema=STRING)])

    assert read(folder).to_pylist() == [{"value": 1}, {"value": 2}]


def test_json_lines_with_metadata(folder):
    """Around the value, whose own names they do not touch."""
    sink, _ = started(folder, **{"with.metadata": "true"})
    sink.put([record(0, {"a": 1}, key={"k": 1}, timestamp_ms=5), record(1).replace(value=None)])

    first, second = next(iter(files(folder).values())).splitlines()
    assert first == (
        b'{"__topic":"orders","__partition":3,"__offset":0,"__timestamp":5,'
        b'"__key":"{\\"k\\":1}","value":{"a":1}}'
    )
    assert second.endswith(b'"value":null}')


def test_object_stores_get_whole_objects():
    """Any file system of fsspec's, by its URL."""
    import fsspec  # the connector imports it when it starts

    sink, _ = started("", url="memory://lake")
    sink.put([record(0), record(1)])

    memory = fsspec.filesystem("memory")
    assert memory.cat_file(f"/lake/{FIRST}.jsonl") == b'{"id":0}\n{"id":1}\n'
    _, rewound = started("", url="memory://lake")
    assert rewound == {PLACE: 2}
    memory.rm("/lake", recursive=True)


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


POISON = {
    "lone surrogate": {"a": "cut \ud83d"},
    "name with a lone surrogate": {"cut \ud83d": 1},
    "20 digits": {"a": 12345678901234567890},
    "deep": {"a": nested(900)},
    "very deep": {"a": nested(100_000)},
    "set": {"a": {1}},
    "decimal without a schema": {"a": Decimal("NaN")},
    "name that is a number": {1: 2},
    "names of two kinds": {"a": 1, 2: 3},
    "own class": object(),
    "text in a column of numbers": {"a": "x"},
    "object in a column of numbers": {"a": {"b": 1}},
    "empty object": {"a": 1, "m": {}},
    "empty objects": {"a": 1, "m": [{}, {"b": {}}]},
    "nothing": {},
    "tombstone": None,
    "no object": 5,
    "text": "x",
    "list": [1, "x"],
    "NaN": {"a": float("nan")},
    "bytes": {"b": b"\xff"},
    "nulls": {"a": None},
    "fraction": {"a": 0.5},
}


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_each_record_is_in_a_file_or_in_the_dead_letters(tmp_path, monkeypatch, format):
    """Once, for every poison value at every place of its file; where none is tolerated the task
    fails with an offset, and nothing of that file is there.
    """
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    for number, (value, at) in enumerate(product(POISON.values(), (0, 2))):
        log = [record(offset, {"a": offset}) for offset in range(6)]
        log[at] = log[at].replace(value=value)
        letters, folder = [], tmp_path / f"{number}"
        more = {"records.per.file": "3", "with.metadata": str(number % 2 == 0)}
        settings = {"format": format} | more
        sink, _ = started(folder, letters, **settings)
        sink.put(log)

        counts = [rows_of(data, format) for data in files(folder).values()]
        assert (sum(counts) + len(letters), sink.pre_commit({PLACE: 6})) == (6, {PLACE: 6})
        strict, _ = started(folder / "strict", **settings)
        expected = pytest.raises(ToleranceExceededError, match=r"ERROR: [012]: ")
        with expected if letters else nullcontext():
            strict.put(log)
        assert len(files(folder / "strict")) == (0 if letters else 2)


def rows_of(data, format):
    if format == "jsonl":
        return data.count(b"\n")
    return pyarrow.parquet.read_table(io.BytesIO(data)).num_rows


def test_only_the_poison_goes_to_the_dead_letters(folder):
    """All others of the file are in it, in their order."""
    letters = []
    sink, _ = started(folder, letters, format="parquet", **{"records.per.file": "6"})
    values = [1, "x", 1 << 70, 2.5, "cut \ud83d", None]
    sink.put([record(offset, {"a": value, "n": offset}) for offset, value in enumerate(values)])

    assert read(folder).to_pylist() == [
        {"a": 1.0, "n": 0},
        {"a": 2.5, "n": 3},
        {"a": None, "n": 5},
    ]
    assert [offset for offset, _ in letters] == [1, 2, 4]


def test_number_that_a_column_of_fractions_cannot_hold_is_reported(folder):
    """2**60 + 1 would silently become another number."""
    letters = []
    sink, _ = started(folder, letters, format="parquet")
    sink.put([record(0, {"a": (1 << 60) + 1}), record(1, {"a": 0.5})])

    assert read(folder).to_pylist() == [{"a": 0.5}]
    assert [offset for offset, _ in letters] == [0]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_file_without_any_record_is_a_mark(folder, format):
    """So that a restart neither reads nor reports them again; readers pass over its name."""
    letters = []
    sink, _ = started(folder, letters, format=format)
    sink.put([record(0, {"a": "\ud83d"}), record(1, {"a": "\ud83d"}), record(2), record(3)])

    marks = [path.name for path in folder.rglob(".*")]
    assert marks == [f".{FIRST.rpartition('/')[2]}.refused"]
    _, rewound = started(folder, letters, format=format)
    assert rewound == {PLACE: 4}
    assert [offset for offset, _ in letters] == [0, 1]


def test_letters_are_not_sent_again_when_a_file_is(folder, monkeypatch):
    """After an outage of the storage the file is made once more."""
    letters = []
    sink, _ = started(folder, letters)
    monkeypatch.setattr(sink, "_store", lambda *arguments: 1 / 0)
    bad = [record(0, {"a": "\ud83d"}), record(1)]
    for _ in range(2):
        with pytest.raises(TryAgainError):
            sink.put(bad if not letters else [*bad, record(2)])
    monkeypatch.undo()
    sink.put([*bad, record(2), record(3)])

    assert [offset for offset, _ in letters] == [0]
    assert list(files(folder).values()) == [b'{"id":1}\n', b'{"id":2}\n{"id":3}\n']


def test_columns_do_not_depend_on_where_files_end(tmp_path):
    """Tombstones are null in each column, other values have a column, empty objects are null."""
    values = [{"a": 1}, None, {"a": 2, "m": {}}, {"a": 3, "m": {"k": 1}}, 7, {}]
    for size in (1, 2, 3, 6):
        folder = tmp_path / str(size)
        sink, _ = started(folder, format="parquet", **{"records.per.file": str(size)})
        sink.put([record(n).replace(value=value) for n, value in enumerate(values)])
        tables = [pyarrow.parquet.read_table(io.BytesIO(d)) for d in files(folder).values()]
        whole = pyarrow.concat_tables(tables, promote_options="permissive")
        assert whole.column("a").to_pylist() == [1, None, 2, 3, None, None]
        assert whole.column("value").to_pylist() == [None, None, None, None, 7, None]


def test_tombstone_is_of_the_schema_of_its_file(folder):
    """It ends no file, and has the columns of the others, also where it is the first."""
    sink, _ = started(folder, format="parquet", **{"records.per.file": "4"})
    schema = struct_of("Row", a=INT64)
    rows = [record(n, {"a": n}, value_schema=schema) for n in range(4)]
    rows[0] = rows[2] = record(0).replace(value=None)
    sink.put([each.replace(offset=n) for n, each in enumerate(rows)])

    assert read(folder).to_pylist() == [{"a": None}, {"a": 1}, {"a": None}, {"a": 3}]


FIRST_ID, SECOND_ID, THIRD_ID = "id-of-one", "id-of_two", "id-of-3"


def test_topic_that_was_made_again_has_files_of_its_own(folder):
    """Its offsets begin again: read from its beginning, beside the files of the former."""
    for number, topic_id in enumerate((FIRST_ID, SECOND_ID, THIRD_ID)):
        sink, rewound = started(folder, topic_id=topic_id, log=range(4))
        assert rewound == ({PLACE: 0} if number else {})
        sink.put([record(offset, {"topic": number}) for offset in range(4)])
        _, rewound = started(folder, topic_id=topic_id)
        assert rewound == {PLACE: 4}

    start = FIRST.partition("+")[0]
    assert list(files(folder)) == [
        f"{start}+3{mark}+{first:020}+{first + 1:020}.jsonl"
        for mark in ("", ".2", ".3")
        for first in (0, 2)
    ]
    assert [
        json.loads(line)["topic"] for data in files(folder).values() for line in data.split()
    ] == ([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    _, rewound = started(folder, topic_id=FIRST_ID)
    assert rewound == {PLACE: 4}


@pytest.mark.parametrize(("end", "is_adopted"), [(2, True), (100, True), (1, False), (0, False)])
def test_files_without_a_mark_are_of_the_topic_if_they_can_be(folder, end, is_adopted):
    """They were made before there were marks; a log that ends before them is another topic's."""
    sink, _ = started(folder)
    sink.put([record(0), record(1)])
    _, rewound = started(folder, topic_id=FIRST_ID, log=range(end))
    assert rewound == {PLACE: 2 if is_adopted else 0}

    _, rewound = started(folder, topic_id=SECOND_ID, log=range(100))
    assert rewound == {PLACE: 0 if is_adopted else 2}


def test_topic_whose_id_is_not_known_goes_on(folder):
    """Brokers before Kafka 2.8 have no ids."""
    sink, _ = started(folder, topic_id=FIRST_ID)
    sink.put([record(0), record(1)])
    _, rewound = started(folder)

    assert rewound == {PLACE: 2}


def test_records_of_a_deleted_topic_are_in_a_short_file(folder):
    """Nobody reads them again."""
    sink, _ = started(folder, topic_id=FIRST_ID)
    sink.put([record(0), record(1), record(2)])
    sink.context.id = ""
    sink.close([PLACE])

    assert [data.count(b"\n") for data in files(folder).values()] == [2, 1]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"url": ""}, "url=: must not be empty"),
        ({"format": "csv"}, "format=csv: must be one of parquet, jsonl"),
        ({"storage.options": "x"}, r"storage\.options=x: must be a JSON object"),
        ({"records.per.file": "0"}, "must be at least 1"),
    ],
)
def test_settings_are_checked(settings, text):
    """The error names key, value and rule."""
    with pytest.raises(ConfigError, match=text):
        FilesSink.Settings.parse({"url": "memory://"} | settings)


def test_a_missing_package_is_named(monkeypatch):
    """With the extra that brings it."""
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(ConfigError, match=r"FilesSink: needs the package .*'ottla\[connect-files"):
        FilesSink(FilesSink.Settings(url="memory://"), SimpleNamespace()).start()
