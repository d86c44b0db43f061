"""Topics as Arrow tables, and back."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

pa = pytest.importorskip("pyarrow")

import ottla  # noqa: E402
from ottla import Consumer, KafkaError, OffsetSpec, Producer, TopicPartition  # noqa: E402
from ottla.errors import ErrorCode  # noqa: E402
from ottla.testing import InProcessBroker  # noqa: E402

LIMIT_S = 60
HEADERS = [("agent", b"curl"), ("none", None)]


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
        ({"partitions": [1], "start": 4}, ["v9"]),
        ({"partitions": [], "start": 4}, []),
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
        ({"columns": ["valeu"]}, "column 'valeu': the columns are key, value"),
    ],
)
def test_wrong_argument_is_named(broker, wrong, said):
    """With its value and the rule."""
    with pytest.raises(ValueError, match=said):
        ottla.read_arrow(broker.bootstrap_servers, "pages", **wrong)


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


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": pa.array(["a"])}, "the column value is missing; there are key"),
        ({"value": pa.array([1])}, "column value: its type int64"),
        ({"value": pa.array(["a"]), "key": pa.array([1.5])}, "column key: its type double"),
        ({"value": pa.array(["a"]), "partition": pa.array(["x"])}, "column partition"),
        ({"value": pa.array(["a"]), "headers": pa.array(["x"])}, "column headers"),
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
    table, said = pa.table({"value": [b"x" * 2_000_000]}), "2000000 bytes"
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(KafkaError, match=said):
        producer.send_arrow("pages", table)


@pytest.mark.parametrize("partition", [-1, 2])
def test_partition_that_is_not_there_is_refused(broker, partition):
    """By its number; a null leaves the choice."""
    table = pa.table({"value": ["a"], "partition": pa.array([partition], pa.int32())})
    said = f"column partition: {partition} of 2"
    with Producer(broker.bootstrap_servers) as producer, pytest.raises(ValueError, match=said):
        producer.send_arrow("pages", table)


def test_pandas_is_not_imported(broker):
    """It would take a second of the first table."""
    program = (
        "import sys, ottla\n"
        f"assert ottla.read_arrow({broker.bootstrap_servers!r}, 'pages').num_rows == 10\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
