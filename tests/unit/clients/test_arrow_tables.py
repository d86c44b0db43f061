"""Topics as Arrow tables, and back."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import NamedTuple

import pytest

pa = pytest.importorskip("pyarrow")

import ottla  # noqa: E402
from ottla import (  # noqa: E402
    Admin,
    Consumer,
    KafkaError,
    OffsetSpec,
    Producer,
    TopicPartition,
    aio,
)
from ottla.clients.arrow_tables import table_of  # noqa: E402
from ottla.clients.consumer.completed_fetch import FetchedBatches  # noqa: E402
from ottla.clients.consumer.position_validator import TopicRecreatedError  # noqa: E402
from ottla.errors import ConfigError, ErrorCode  # noqa: E402
from ottla.record.batch_builder import build_batch, build_batch_of_section  # noqa: E402
from ottla.record.compression import CompressionType  # noqa: E402
from ottla.record.record_batch import RecordBatch  # noqa: E402
from ottla.testing import InProcessBroker  # noqa: E402

LIMIT_S = 60
HEADERS = [("agent", b"curl"), ("none", None)]


class Number(NamedTuple):
    """A whole number of another library, as numpy's are."""

    number: int

    def __index__(self) -> int:
        return self.number


class NoZone(tzinfo):
    """A zone that does not know how far it is from UTC."""

    def utcoffset(self, when):
        return None


@pytest.fixture(scope="module")
def broker():
    """A broker with a topic of two partitions: five records each, ten ms apart."""
    with InProcessBroker() as broker:
        broker.create_topic("pages", partitions=2)
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(10):
                producer.send(
                    "pages",
                    None if number == 4 else f"v{number}",
                    key=f"k{number}",
                    partition=number % 2,
                    timestamp_ms=1000 + 10 * number,
                    headers=HEADERS if number == 0 else (),
                )
        yield broker


@pytest.fixture
def topic(broker, request):
    """A topic of one partition."""
    name = re.sub(r"\W", "-", request.node.name)
    broker.create_topic(name, partitions=1)
    return name


def values(table):
    return [None if each is None else each.decode() for each in table["value"].to_pylist()]


def test_table_has_all_that_a_record_has(broker):
    """One partition after the other, in the order of offsets."""
    table = ottla.read_arrow(broker.bootstrap_servers, "pages")

    assert values(table) == ["v0", "v2", None, "v6", "v8", "v1", "v3", "v5", "v7", "v9"]
    first = table.slice(0, 1).to_pylist()[0]
    assert first == {
        "key": b"k0",
        "value": b"v0",
        "topic": "pages",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime.fromtimestamp(1, UTC),
        "timestampType": 0,
        "headers": [{"key": key, "value": value} for key, value in HEADERS],
    }
    assert table["partition"].to_pylist() == [0] * 5 + [1] * 5
    assert set(table["topic"].to_pylist()) == {"pages"}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ({"start": "latest"}, []),
        ({"end": "earliest"}, []),
        ({"start": 3}, ["v6", "v8", "v7", "v9"]),
        ({"end": 1}, ["v0", "v1"]),
        ({"start": 4, "end": 2}, []),
        ({"start": 4, "end": 1_000_000}, ["v8", "v9"]),
        ({"start": 1_000_000}, []),
        ({"start": {0: 4, 1: 3}}, ["v8", "v7", "v9"]),
        ({"start": OffsetSpec.EARLIEST, "end": {0: 1, 1: 0}}, ["v0"]),
        ({"start": datetime.fromtimestamp(1.065, UTC)}, ["v8", "v7", "v9"]),
        ({"end": datetime.fromtimestamp(1.015, UTC)}, ["v0", "v1"]),
        ({"start": datetime.fromtimestamp(5000, UTC)}, []),
        ({"start": datetime.fromtimestamp(1.0801, UTC)}, ["v9"]),
        ({"end": datetime.fromtimestamp(1.0001, UTC)}, ["v0"]),
        ({"start": datetime.fromtimestamp(-0.001, UTC), "end": 1}, ["v0", "v1"]),
        ({"start": datetime.fromtimestamp(-0.002, UTC), "end": 1}, ["v0", "v1"]),
        ({"start": datetime(1, 1, 1, tzinfo=UTC), "end": 1}, ["v0", "v1"]),
        ({"end": datetime.fromtimestamp(-0.001, UTC)}, []),
        ({"partitions": [1], "start": 4}, ["v9"]),
        ({"partitions": [], "start": 4}, []),
        ({"start": Number(4), "end": {0: Number(5), 1: 0}}, ["v8"]),
        ({"partitions": [1, 1, 0], "start": 4}, ["v8", "v9"]),
    ],
)
def test_range_is_given_by_places(broker, place, expected):
    """Names, offsets, offsets by partition, times; nothing behind the end is waited for."""
    table = ottla.read_arrow(broker.bootstrap_servers, "pages", columns=["value"], **place)
    assert table.schema.names == ["value"]
    assert values(table) == expected


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"start": "begin"}, "start='begin': must be 'earliest', 'latest'"),
        ({"end": None}, "end=None"),
        ({"start": -1}, "start=-1: an offset is"),
        ({"start": True}, "start=True"),
        ({"end": {0: 1}}, "end: it has no offset for partition 1"),
        ({"end": {0: "x", 1: 1}}, "end='x'"),
        ({"start": datetime(2026, 1, 1)}, "a time needs a zone"),
        ({"partitions": [2]}, "partition 2 of topic pages, which has 2"),
        ({"partitions": 0}, "partitions=0: must be the numbers of partitions"),
        ({"partitions": ["0"]}, r"partitions=\['0'\]: must be the numbers"),
        ({"columns": ["valeu"]}, "column 'valeu': the columns are key, value"),
        ({"columns": "value"}, "columns='value': must be the names of columns, as a list"),
        ({"columns": 5}, "columns=5: must be the names of columns"),
        ({"start": [1]}, r"start=\[1\]: must be 'earliest', 'latest'"),
        ({"end": Number(-1)}, "end=Number.*: an offset is a whole number from 0 on"),
        ({"end": 1.0}, "end=1.0: must be 'earliest', 'latest'"),
        ({"start": datetime(2026, 1, 1, tzinfo=NoZone())}, "a time needs a zone"),
    ],
)
def test_wrong_argument_is_named(broker, wrong, said):
    """With its value and the rule."""
    with pytest.raises(ValueError, match=said):
        ottla.read_arrow(broker.bootstrap_servers, "pages", **wrong)


@pytest.mark.parametrize("topic", [None, 5, b"pages", ["pages"], "", "a b"])
def test_topic_without_a_name_is_named(topic):
    """Before any broker is asked."""
    with pytest.raises(KafkaError, match="cannot be a topic's name") as raised:
        ottla.read_arrow("127.0.0.1:1", topic)
    assert repr(topic) in str(raised.value)


def test_topic_that_is_not_there_is_an_error(broker):
    """It is not made."""
    with pytest.raises(KafkaError) as raised:
        ottla.read_arrow(broker.bootstrap_servers, "absent")
    assert raised.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with ottla.Admin(broker.bootstrap_servers) as admin:
        assert "absent" not in admin.list_topics()


def test_offset_that_is_gone_is_an_error_unless_the_log_says_where_it_begins(broker):
    """Nothing is left out in silence."""
    broker.create_topic("cut", partitions=1)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_values("cut", ["a", "b", "c"]).result(LIMIT_S)
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("cut", 0): 2})
    assert values(ottla.read_arrow(broker.bootstrap_servers, "cut")) == ["c"]
    with pytest.raises(KafkaError) as raised:
        ottla.read_arrow(broker.bootstrap_servers, "cut", start=1)
    assert raised.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_committed_records_alone(broker):
    """Up to the first open transaction, without what was aborted."""
    broker.create_topic("spent", partitions=1)
    with Producer(broker.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        for value, ends in (("a", "abort"), ("b", "commit"), ("c", "")):
            producer.begin_transaction()
            producer.send("spent", value)
            producer.flush()
            if ends:
                getattr(producer, f"{ends}_transaction")()
        committed = ottla.read_arrow(
            broker.bootstrap_servers, "spent", isolation_level="read_committed"
        )
        assert values(committed) == ["b"]
        assert values(ottla.read_arrow(broker.bootstrap_servers, "spent")) == ["a", "b", "c"]
        producer.abort_transaction()


def test_scan_is_a_stream_that_may_be_left(broker):
    """Its batches have the schema of the table; its connections end with it."""
    scan = ottla.scan_arrow(broker.bootstrap_servers, "pages", columns=["offset", "key"])
    assert scan.schema.names == ["offset", "key"]
    assert scan.read_next_batch().num_rows == 5
    scan.close()


@pytest.mark.parametrize("read_before", [0, 1])
def test_scan_is_of_one_topic(broker, topic, read_before):
    """Its offsets mean other records in one that was made again while it is read."""
    servers = broker.bootstrap_servers
    with ottla.Admin(servers) as admin, Producer(servers) as producer:
        admin.create_partitions({topic: 2})
        for partition in (0, 1):
            producer.send(topic, b"old", partition=partition)
        producer.flush()
        scan = ottla.scan_arrow(servers, topic, columns=["value"])
        found = [scan.read_next_batch() for _ in range(read_before)]
        admin.delete_topics([topic])
        broker.create_topic(topic, partitions=2)
    with Producer(servers) as producer:
        for partition in (0, 1):
            producer.send(topic, b"new", partition=partition)

    with pytest.raises(TopicRecreatedError, match="was deleted and created again"):
        found += [*scan]

    assert [values(each) for each in found] == [["old"]] * read_before


def test_consumer_polls_tables(broker):
    """Positions and commits are those of `poll`; records of an iteration come again whole."""
    settings = {"group_id": "tables", "topics": ["pages"], "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap_servers, **settings, max_poll_records=1) as consumer:
        first = next(iter(consumer))
        seen = [(first.partition, first.offset)]
        while len(seen) < 10:
            table = consumer.poll_arrow(1000)
            seen += zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        consumer.commit()
        assert consumer.poll_arrow().num_rows == 0
        assert (
            consumer.poll_arrow().schema
            == ottla.read_arrow(broker.bootstrap_servers, "pages").schema
        )
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(5)]
    assert set(broker.committed("tables").values()) == {5}


def test_table_is_sent_as_it_was_read(broker):
    """Keys, values, nulls, headers and partitions are the same."""
    before = ottla.read_arrow(broker.bootstrap_servers, "pages")
    broker.create_topic("copies", partitions=2)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_arrow("copies", before).result(LIMIT_S)
        after = ottla.read_arrow(broker.bootstrap_servers, "copies")
        same = ["key", "value", "partition", "offset", "headers"]
        assert after.select(same).equals(before.select(same))
        stream = ottla.scan_arrow(broker.bootstrap_servers, "pages")
        assert sum(w.record_count for w in producer.send_arrow("copies", stream).result(60)) == 10
        batch = before.to_batches()[0].slice(1, 2)
        assert producer.send_arrow("copies", batch, timestamp_ms=7).result(60)[0].record_count == 2
        assert producer.send_arrow("copies", before.slice(0, 0)).result(60) == []


def headers_with_key(key):
    """A row with a header whose key is said to be text, and was never looked at."""
    ends = pa.py_buffer(b"\0\0\0\0" + len(key).to_bytes(4, "little"))
    keys = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(key)])
    pairs = pa.StructArray.from_arrays([keys, pa.array([b""])], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": pa.array(["a"])}, "the column value is missing; there are key"),
        ({"value": pa.array([1])}, "column value: its type int64"),
        ({"value": pa.array(["a"]), "key": pa.array([1.5])}, "column key: its type double"),
        ({"value": pa.array(["a"]), "partition": pa.array(["x"])}, "column partition"),
        ({"value": pa.array(["a"]), "headers": pa.array(["x"])}, "column headers"),
        (
            {"value": pa.array(["a"]), "headers": pa.array([[{"name": "n", "value": "v"}]])},
            "column headers: .* is no list of key and value",
        ),
        (
            {"value": pa.array(["a"]), "headers": pa.array([[{"key": "n", "value": 1}]])},
            "column headers: .* has more than text and bytes",
        ),
        (
            {"value": pa.array(["a"]), "headers": pa.array([[{"key": b"\xff", "value": b""}]])},
            "column headers: a key is no text",
        ),
        (
            {"value": pa.array(["a"]), "headers": headers_with_key(b"\xff")},
            "column headers: a key is no text",
        ),
        ({"value": pa.array(["a"]), "headers": pa.array([[None]])}, "a header has no key"),
    ],
)
def test_column_that_cannot_be_sent_is_named(broker, columns, said):
    """Before anything is sent."""
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(ValueError, match=said):
        producer.send_arrow("pages", pa.table(columns))


@pytest.mark.parametrize(
    "value_type",
    [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()],
    ids=str,
)
def test_text_and_bytes_of_any_size_are_sent(broker, value_type):
    """Also from the middle of a column, and encoded in a dictionary."""
    broker.create_topic(f"of-{value_type}", partitions=1)
    column = pa.array(["left out", "a", None, "b"], pa.string()).cast(value_type)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_arrow(f"of-{value_type}", pa.table({"value": column}).slice(1)).result(60)
    found = broker.records(f"of-{value_type}")
    assert [each.value for each in found] == [b"a", None, b"b"]


def test_dictionary_is_sent_as_its_values(broker):
    """As Polars and Parquet files have columns with few values."""
    broker.create_topic("dictionary", partitions=1)
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_arrow("dictionary", pa.table({"value": column})).result(60)
    assert [each.value for each in broker.records("dictionary")] == [b"a", b"b", b"a"]


def test_row_that_is_too_large_is_refused(broker):
    """By the limit of the producer."""
    table, said = pa.table({"value": [b"x" * 2_000_000]}), "2000082 bytes"
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(KafkaError, match=said):
        producer.send_arrow("pages", table)


@pytest.mark.parametrize("partition", [-1, 2])
def test_partition_that_is_not_there_is_refused(broker, partition):
    """By its number; a null leaves the choice."""
    table = pa.table({"value": ["a"], "partition": pa.array([partition], pa.int32())})
    said = f"column partition: {partition} of 2"
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(ValueError, match=said):
        producer.send_arrow("pages", table)


@pytest.mark.parametrize("kind", [pa.Table, pa.RecordBatch, pa.RecordBatchReader])
def test_partition_that_was_added_meanwhile_is_known(broker, topic, kind):
    """As by `send`: brokers are asked again before a number is refused."""
    table = pa.table({"value": ["a", "b"], "partition": pa.array([3, None], pa.int32())})
    with Producer(broker.bootstrap_servers) as producer, Admin(broker.bootstrap_servers) as admin:
        assert len(producer.partitions_for(topic)) < 4
        admin.create_partitions({topic: 4})
        (batch,) = table.to_batches()
        data = {pa.Table: table, pa.RecordBatch: batch, pa.RecordBatchReader: table.to_reader()}
        written = producer.send_arrow(topic, data[kind]).result(LIMIT_S)
    assert 3 in {each.partition for each in written}


def test_partition_that_was_added_meanwhile_is_known_in_a_loop(broker, topic):
    """The same for the producer of `ottla.aio`."""
    table = pa.table({"value": ["a"], "partition": pa.array([3], pa.int32())})

    async def written() -> list[int]:
        async with aio.Producer(broker.bootstrap_servers) as producer:
            await producer.partitions_for(topic)
            async with aio.Admin(broker.bootstrap_servers) as admin:
                await admin.create_partitions({topic: 4})
            return [each.partition for each in await (await producer.send_arrow(topic, table))]

    assert asyncio.run(written()) == [3]


def test_name_that_two_columns_have_is_refused(broker):
    """Neither of them is chosen in silence."""
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    said = "column value: there are 2 of this name"
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(ValueError, match=said):
        producer.send_arrow("pages", table)


PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
SWAPPED = pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])
VIEWS = pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])
NAMES = pa.struct([("key", pa.dictionary(pa.int32(), pa.string())), ("value", pa.string())])


@pytest.mark.parametrize("portion_bytes", [1, 60, 1 << 20])
@pytest.mark.parametrize(
    "list_type",
    [pa.list_(PAIR), pa.large_list(SWAPPED), pa.list_(VIEWS), pa.large_list(NAMES)],
    ids=["plain", "large and swapped", "views", "dictionary"],
)
def test_headers_of_any_type_are_sent(broker, topic, monkeypatch, list_type, portion_bytes):
    """By the names of their fields, also from the middle of a column and in small portions."""
    monkeypatch.setattr("ottla.clients.arrow_tables.MAX_PORTION_BYTES", portion_bytes)
    lists = [[("x", b"0")], [("a", b"1"), ("a", None), ("b", b"")], None, [], [("c", b"2")]]
    given = [
        None if some is None else [{"key": key, "value": value} for key, value in some]
        for some in lists
    ]
    table = pa.table({"value": list("vwxyz"), "headers": pa.array(given, list_type)}).slice(1)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_arrow(topic, table).result(LIMIT_S)
    found = broker.records(topic)
    assert [(each.value, list(each.headers)) for each in found] == [
        (value.encode(), some or []) for value, some in zip("wxyz", lists[1:], strict=True)
    ]


@pytest.mark.parametrize(
    ("column", "nulls"),
    [
        ("value", pa.nulls(2)),
        ("key", pa.nulls(2)),
        ("partition", pa.nulls(2)),
        ("headers", pa.nulls(2)),
        ("headers", pa.array([[], None])),
        ("headers", pa.array([[{"key": "k", "value": None}], []])),
    ],
)
def test_columns_of_nulls_need_no_type(broker, topic, column, nulls):
    """As pandas and Parquet make them where no row has anything."""
    table = pa.table({"value": ["a", "b"], "key": ["k", "l"]} | {column: nulls})
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_arrow(topic, table).result(LIMIT_S)
    found = broker.records(topic)
    assert [each.value for each in found] == ([None] * 2 if column == "value" else [b"a", b"b"])
    assert [each.key for each in found] == ([None] * 2 if column == "key" else [b"k", b"l"])


class HandsOver:
    """Data of another library, by the PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table({"value": ["a"]}).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("data", [HandsOver(), pa.table({"value": ["a"]}).to_batches()])
def test_data_of_other_libraries_are_sent(broker, data):
    """And several batches."""
    with Producer(broker.bootstrap_servers) as producer:
        (written,) = producer.send_arrow("others", data).result(LIMIT_S)
    assert written.record_count == 1


@pytest.mark.parametrize("data", [7, "text", [{"value": "a"}]])
def test_data_that_are_not_of_arrow_are_refused(broker, data):
    """With their type."""
    said = "Arrow data are needed"
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(TypeError, match=said):
        producer.send_arrow("pages", data)


@pytest.mark.parametrize("size", [1_048_576 - 82 - 3, 1_048_576 - 82 - 2])
def test_size_of_a_row_is_that_of_a_record(broker, topic, size):
    """What `send` refuses is refused, before any row of the batch is sent."""
    table = pa.table({"value": ["a", "b" * size], "key": ["key", "key"]})
    largest = 1_048_576 - 82 - 3
    with Producer(broker.bootstrap_servers) as producer:
        for send in (
            lambda: producer.send(topic, "b" * size, key="key"),
            lambda: producer.send_values(topic, ["a", "b" * size], keys=["key", "key"]),
            lambda: producer.send_arrow(topic, table),
        ):
            if size <= largest:
                send().result(LIMIT_S)
            else:
                with pytest.raises(KafkaError, match=r"1048577 bytes .* max\.request\.size"):
                    send()
    found = len(broker.records(topic))
    assert found == (5 if size <= largest else 0)


@pytest.mark.parametrize("column", ["key", "headers"])
def test_each_column_counts_for_the_size(broker, column):
    """The value alone may be small."""
    large = {"key": "x" * 2_000_000, "headers": [{"key": "k", "value": b"x" * 2_000_000}]}[column]
    table = pa.table({"value": ["a", "b"], column: pa.array([None, large])})
    with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaError, match=r"larger than max\.request\.size"):
            producer.send_arrow("pages", table)
        producer.flush()
    assert ottla.read_arrow(broker.bootstrap_servers, "pages").num_rows == 10


@pytest.mark.parametrize(
    "settings", [{"isolation_level": "x"}, {"fetch_max_wait": 1}, {"fetch_max_wait_ms": "x"}]
)
def test_wrong_setting_is_refused_at_once(broker, settings):
    """Not by the first batch that is read."""
    with pytest.raises(ConfigError):
        ottla.scan_arrow(broker.bootstrap_servers, "pages", **settings)


def test_without_pyarrow_it_says_what_to_install(broker, monkeypatch):
    """And no record is lost by the attempt."""
    settings = {"group_id": "without", "topics": ["pages"], "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap_servers, **settings) as consumer, monkeypatch.context() as now:
        now.setitem(sys.modules, "pyarrow", None)
        with Producer(broker.bootstrap_servers) as producer:
            for attempt in (
                lambda: ottla.read_arrow(broker.bootstrap_servers, "pages"),
                lambda: producer.send_arrow("pages", None),
                lambda: consumer.poll_arrow(10_000),
            ):
                with pytest.raises(ImportError, match=r"pip install 'ottla\[arrow\]'"):
                    attempt()
        assert len(list(islice(consumer.records(60_000), 10))) == 10


def batch_of(offset, values, codec=CompressionType.NONE):
    records = [(1, None, value, ()) for value in values]
    built = bytearray(build_batch(records, CompressionType.NONE))
    batch = RecordBatch(built)
    if codec is not CompressionType.NONE:  # which the bytes do not have
        payload = bytes(batch.payload())
        batch = RecordBatch(build_batch_of_section(payload, (1, 1), len(values), codec))
    return RecordBatch(with_base_offset(batch, offset))


def with_base_offset(batch, offset):
    return offset.to_bytes(8, "big") + bytes(batch.view)[8:]


def fetched(partition, *pieces):
    where, position = TopicPartition("t", partition), pieces[0].base_offset
    return FetchedBatches(where, position, list(pieces))


def test_batch_that_cannot_be_decoded_is_read_again_with_all_behind_it():
    """Those before it are in the table; with none before it the error is raised."""
    broken = batch_of(2, [b"c"], CompressionType.GZIP)
    arrived = [
        fetched(0, batch_of(0, [b"x"])),
        fetched(1, batch_of(0, [b"a", b"b"]), broken, batch_of(3, [b"d"])),
        fetched(1, batch_of(4, [b"e"])),
        fetched(2, batch_of(7, [b"f"])),
    ]
    given_back: dict[int, int] = {}

    def give_back(where, offset):
        given_back[where.partition] = offset

    assert values(table_of(arrived, give_back)[0]) == ["x", "a", "b"]
    assert given_back == {1: 2, 2: 7}

    given_back.clear()
    with pytest.raises(KafkaError):
        table_of([fetched(1, broken), *arrived[2:]], give_back)
    assert given_back == {1: 2, 2: 7}


def pieces_of(left):
    return [(*each.topic_partition, each.position, len(each.batches)) for each in left]


@pytest.mark.parametrize(
    "codec", [CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD]
)
@pytest.mark.parametrize(
    ("limit", "read", "left"),
    [
        (0, "a", [("t", 0, 1, 2), ("t", 1, 0, 2)]),
        (1_500_000, "ab", [("t", 0, 2, 1), ("t", 1, 0, 2)]),
        (3_500_000, "abcd", [("t", 1, 1, 1)]),
        (9_000_000, "abcde", []),
    ],
)
def test_table_is_bounded_by_the_bytes_without_their_codecs(codec, limit, read, left):
    """What is behind them is left as it was fetched; nothing is given back to be fetched again."""
    arrived = [
        fetched(0, *(large_batch(n, letter, codec) for n, letter in enumerate("abc"))),
        fetched(1, *(large_batch(n, letter, codec) for n, letter in enumerate("de"))),
    ]
    given_back = []
    table, rest = table_of(arrived, lambda *place: given_back.append(place), limit)

    assert [value[0] for value in values(table)] == list(read)
    assert pieces_of(rest) == left
    assert given_back == []


def large_batch(offset, letter, codec):
    record = (1, None, letter.encode() * 1_000_000, ())
    batch = RecordBatch(bytearray(build_batch([record], codec)))
    return RecordBatch(with_base_offset(batch, offset))


@pytest.mark.parametrize("limit", [1000, 2_500_000, 100_000_000])
def test_poll_of_tables_is_bounded_and_loses_nothing(broker, limit):
    """A few kB that have arrived may be GBs: the polls after this one have the others, in order."""
    topic = f"bounded-{limit}"
    broker.create_topic(topic, partitions=2)
    settings = {"auto_offset_reset": "earliest", "fetch_max_bytes": limit}
    with Producer(broker.bootstrap_servers, compression_type="zstd", linger_ms=0) as producer:
        for number in range(12):
            value = b"%02d" % number + bytes(900_000)
            producer.send(topic, value, partition=number % 2).result(LIMIT_S)
    seen, most = [], 0
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        while len(seen) < 12:
            table = consumer.poll_arrow(1000)
            most = max(most, table.nbytes)
            seen += zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)
        assert consumer.poll_arrow().num_rows == 0
        assert {consumer.position(each) for each in consumer.assignment()} == {6}
    for partition in (0, 1):
        found = [int(value[:2]) for its, value in seen if its == partition]
        assert found == [*range(partition, 12, 2)]
    assert most < limit + 2_000_000


def test_polls_of_tables_fetch_no_more_than_they_return(broker):
    """Each took all that had arrived, put most of it back, and had as much fetched again."""
    broker.create_topic("ahead", partitions=1)
    size, noise = 25_000, random.Random(1)
    with Producer(broker.bootstrap_servers, compression_type="zstd", linger_ms=0) as producer:
        for _ in range(200):
            value = noise.randbytes(size // 5) + bytes(size - size // 5)
            producer.send("ahead", value).result(LIMIT_S)
    settings = {"fetch_max_bytes": 2 * size, "max_partition_fetch_bytes": 2 * size}
    count = 0
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([TopicPartition("ahead", 0)])
        consumer.seek_to_beginning()
        while count < 200:
            count += consumer.poll_arrow(1000).num_rows
            found = consumer.metrics()["consumer-fetch-manager-metrics"]
            assert found["records-consumed-total"] == count
            assert found["bytes-consumed-total"] < count * size / 4 + 10 * size


def test_interrupted_poll_loses_nothing(broker, monkeypatch):
    """The records come with the next one."""
    settings = {"group_id": "again", "topics": ["pages"], "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        with monkeypatch.context() as now:
            now.setattr("ottla.clients.arrow_tables.decode_columns", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                consumer.poll_arrow(60_000)
        seen = 0
        while seen < 10:
            seen += consumer.poll_arrow(1000).num_rows
    assert seen == 10


def test_pandas_is_not_imported(broker):
    """It would take a second of the first table."""
    program = (
        "import sys, ottla\n"
        f"assert ottla.read_arrow({broker.bootstrap_servers!r}, 'pages').num_rows == 10\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
