"""Wire batches to Arrow: the rows, their types, and how many come at a time."""

import datetime
import subprocess
import sys

import pyarrow as pa
import pytest
from handmade import TWO_RECORDS, sealed
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.record import columnar, columns
from ottla.record.batch_builder import (
    build_batch,
    build_batch_of_values,
    build_end_transaction_marker,
)
from ottla.record.columnar import arrow_schema, decode_columns
from ottla.record.compression import CompressionType
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.conversion import build_message_set
from ottla.record.record import CorruptRecordError, Record
from ottla.record.record_batch import RecordBatch, assign_offset, set_log_append_time

UTC = datetime.UTC


@pytest.fixture(autouse=True)
def builder_of_the_kernel(monkeypatch, column_builder):
    """Every test runs with both builders."""
    monkeypatch.setattr(columnar.kernel, "ColumnBuilder", column_builder)


def at(base_offset: int, data: bytes) -> bytes:
    stamped = bytearray(data)
    assign_offset(stamped, 0, base_offset, 0)
    return bytes(stamped)


def wire_batches(count: int, size: int, codec: CompressionType = CompressionType.NONE) -> list:
    return [
        at(index * size, build_batch_of_values([b"v%d" % index] * size, 1000, codec))
        for index in range(count)
    ]


def offsets(arrow_batches) -> list[int]:
    return [offset for batch in arrow_batches for offset in batch["offset"].to_pylist()]


def test_columns_are_those_of_the_kafka_source():
    """Names, types and values of all eight columns."""
    [batch] = decode_columns([TWO_RECORDS], "events", 3)
    batch.validate(full=True)

    assert batch.schema == arrow_schema()
    assert batch.to_pylist() == [
        {
            "key": None,
            "value": b"hello",
            "topic": "events",
            "partition": 3,
            "offset": 100,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "timestampType": 0,
            "headers": None,
        },
        {
            "key": b"k",
            "value": None,
            "topic": "events",
            "partition": 3,
            "offset": 101,
            "timestamp": datetime.datetime(2023, 11, 14, 22, 13, 19, 995_000, tzinfo=UTC),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}, {"key": "n", "value": None}],
        },
    ]


def test_types_are_those_that_spark_asks_for():
    """Spark compares the schema of what it gets with its own."""
    header = StructType().add("key", StringType()).add("value", BinaryType())
    spark = (
        StructType()
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("topic", StringType())
        .add("partition", IntegerType())
        .add("offset", LongType())
        .add("timestamp", TimestampType())
        .add("timestampType", IntegerType())
        .add("headers", ArrayType(header))
    )

    assert to_arrow_schema(spark, timezone="UTC").equals(arrow_schema())


def test_headers_can_be_left_out():
    """There are seven columns without the headers."""
    [batch] = decode_columns([TWO_RECORDS], "events", 3, with_headers=False)

    assert batch.schema.names == arrow_schema().names[:-1]
    assert batch.num_rows == 2


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_many_wire_batches_become_few(codec):
    """150 records at a time are gathered until there are enough rows."""
    found = list(decode_columns(wire_batches(100, 150, codec), "t", 0, max_rows=5000))

    assert [batch.num_rows for batch in found] == [5100, 5100, 4800]
    assert offsets(found) == list(range(15_000))
    for batch in found:
        batch.validate(full=True)
    assert found[0]["value"][150].as_py() == b"v1"


def test_one_large_wire_batch_becomes_several():
    """No Arrow batch has more than twice the rows that were asked for."""
    found = list(decode_columns(wire_batches(1, 25_000), "t", 0, max_rows=10_000))

    assert [batch.num_rows for batch in found] == [10_000, 15_000]
    assert offsets(found) == list(range(25_000))


def test_large_values_become_smaller_batches():
    """Bytes count as well as rows."""
    data = [at(index, build_batch_of_values([bytes(5 << 20)], 0)) for index in range(8)]

    assert [batch.num_rows for batch in decode_columns(data, "t", 0)] == [4, 4]


def test_a_chunk_may_hold_several_batches():
    """A fetch response does, and may end with one that is cut off."""
    chunk = b"".join(wire_batches(3, 10))

    assert offsets(decode_columns([memoryview(chunk)[:-1]], "t", 0)) == list(range(20))


@pytest.mark.parametrize(("start", "end"), [(0, 40), (15, 25), (19, 20), (20, 20), (35, 99)])
def test_only_the_range_is_returned(start, end):
    """The first batch may begin before it, the last one end behind it."""
    found = decode_columns(wire_batches(4, 10), "t", 0, start_offset=start, end_offset=end)

    assert offsets(found) == list(range(start, min(end, 40)))


def test_control_batches_are_left_out():
    """Their offsets are gaps between the rows."""
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlRecordType.COMMIT, 0), 0, 1, 0
    )
    found = decode_columns(
        [*wire_batches(1, 2), at(2, marker), at(3, wire_batches(1, 1)[0])], "t", 0
    )

    assert offsets(found) == [0, 1, 3]


def test_timestamp_type_is_kept_per_row():
    """Batches of both kinds may stand in one Arrow batch."""
    late = bytearray(at(2, build_batch_of_values([b"x", b"y"], 1000)))
    set_log_append_time(late, 0, 2000)
    [batch] = decode_columns([*wire_batches(1, 2), late], "t", 0)

    assert batch["timestampType"].to_pylist() == [0, 0, 1, 1]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [1_000_000] * 2 + [2_000_000] * 2


def test_timestamps_beyond_microseconds_are_held_at_the_limit():
    """A hostile clock cannot stop a pipeline, nor make the past out of the future."""
    data = build_batch([(2**63 - 1, None, b"", ()), (0, None, b"", ())])
    lower = at(2, build_batch([(-(2**63), None, b"", ())]))
    [batch] = decode_columns([data, lower], "t", 0)

    limit = columns.MAX_TIMESTAMP_MS * 1000
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [limit, 0, -limit]


def test_header_keys_are_text_whatever_the_bytes():
    """Arrow's strings must be UTF-8; a key that is not, and grows by being replaced, is no harm."""
    bad = bytes.fromhex("7c 00 00 00 01 01 04 64") + b"\xff" * 50 + bytes.fromhex("01 02 62 02 78")
    good = build_batch([(0, None, b"", (("schlüssel", b"1"),))])
    [batch] = decode_columns([sealed(bad, 1), at(1, good)], "t", 0)
    batch.validate(full=True)

    assert [[header["key"] for header in row] for row in batch["headers"].to_pylist()] == [
        ["\ufffd" * 50, "b"],
        ["schlüssel"],
    ]


def test_name_of_the_topic_is_repeated_for_a_slice_at_most():
    """A wire batch of many small records and a long name would take hundreds of megabytes."""
    topic, most = "t" * 249, 100
    found = list(decode_columns(wire_batches(1, 25_000), topic, 3, max_rows=most))
    assert sum(batch.num_rows for batch in found) == 25_000
    for batch in found:
        *_, names = batch.column("topic").buffers()
        assert names.size <= 2 * most * len(topic)
        assert set(batch.column("topic").to_pylist()) == {topic}
        assert set(batch.column("partition").to_pylist()) == {3}


@pytest.mark.parametrize("count", [1, 2, 3, 150])
def test_few_rows_take_little_memory_beside_their_own(count):
    """A table of one record of each of a thousand partitions held the names of 20 million rows."""
    records = [(n + 1, None, b"v", ()) for n in range(count)]
    (batch,) = decode_columns([build_batch(records)], "pages", 0)

    assert batch.num_rows == count
    assert batch.get_total_buffer_size() < 100 * count + 100


def test_a_builder_is_empty_again_after_finish(column_builder):
    """What one Arrow batch held does not show in the next."""
    builder = column_builder()
    both = [build_batch([(0, b"k", None, (("h", b""),))]), build_batch([(0, None, b"v", ())])]
    found = []
    for data in both:
        batch = RecordBatch(data)
        builder.append(batch, batch.payload(), 0, 100)
        assert (builder.row_count, builder.size_in_bytes) == (1, len(batch.payload()))
        (batch,) = columnar.to_arrow(builder.finish(), "t", 0)
        found.append(batch.to_pylist()[0])
        assert (builder.row_count, builder.size_in_bytes) == (0, 0)

    assert [(row["key"], row["value"], row["headers"]) for row in found] == [
        (b"k", None, [{"key": "h", "value": b""}]),
        (None, b"v", None),
    ]


def test_every_batch_is_verified():
    """A flipped bit does not reach a pipeline."""
    data = bytearray(TWO_RECORDS)
    data[70] ^= 1

    with pytest.raises(CorruptRecordError, match="CRC-32C"):
        list(decode_columns([data], "t", 0))


def test_pyarrow_is_imported_when_it_is_needed():
    """The broker reads records without it."""
    code = "import sys, ottla.record.columnar; print('pyarrow' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_become_rows(magic, codec):
    """A log may begin with them; magic 0 has no timestamps."""
    records = [Record(5 + n, 1000 + n, None, b"%d" % n, ()) for n in range(4)]
    old = build_message_set(records, magic, codec)
    (table,) = decode_columns([old + at(9, build_batch([(2000, None, b"4", ())]))], "t", 0)

    assert table.column("offset").to_pylist() == [5, 6, 7, 8, 9]
    assert table.column("value").to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    times = [round(1000 * time.timestamp()) for time in table.column("timestamp").to_pylist()]
    assert times[4] == 2000
    assert times[:4] == ([1000, 1001, 1002, 1003] if magic else [-1] * 4)
