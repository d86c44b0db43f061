"""Record batches to Arrow, with the columns of Spark's Kafka source.

A wire batch usually holds some 150 records. An Arrow batch that small costs several times more
than its rows, so many wire batches become one Arrow batch of about `max_rows`. pyarrow is imported
when the first Arrow batch is made.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from ottla.record import kernel
from ottla.record.columns import MAX_COLUMN_BYTES, BinaryColumn, Columns, HeaderColumn
from ottla.record.conversion import up_convert
from ottla.record.memory_records import batches
from ottla.record.record_batch import MAGIC, RecordBatch

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

DEFAULT_MAX_ROWS = 10_000
# Large values fill an Arrow batch before it has all its rows.
MAX_BATCH_BYTES = 16 * 1024 * 1024
END_OF_LOG = 2**63 - 1
HEADERS: Final = "headers"
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    HEADERS,
)
"""As Spark's Kafka source has them."""


@cache
def arrow_schema(with_headers: bool = True) -> pa.Schema:
    """The columns of Spark's Kafka source, as the types that Spark maps them to."""
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if with_headers:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)


def decode_columns(
    chunks: Iterable[Buffer],
    topic: str,
    partition: int,
    *,
    start_offset: int = 0,
    end_offset: int = END_OF_LOG,
    with_headers: bool = True,
    max_rows: int = DEFAULT_MAX_ROWS,
    batch_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records from `start_offset` up to, and without, `end_offset`, as Arrow batches.

    Each chunk is one wire batch or several; the first one may begin before `start_offset`. Control
    batches are left out, and every batch is verified. An Arrow batch ends once it has `max_rows` or
    `batch_bytes`.
    """
    builder = kernel.ColumnBuilder(with_headers)
    for batch in _batches_between(chunks, start_offset, end_offset):
        batch.verify()
        payload = batch.payload()
        if builder.size_in_bytes + len(payload) > MAX_COLUMN_BYTES:
            yield from to_arrow(builder.finish(), topic, partition, max_rows)
        builder.append(batch, payload, start_offset, end_offset)
        if builder.row_count >= max_rows or builder.size_in_bytes >= batch_bytes:
            yield from to_arrow(builder.finish(), topic, partition, max_rows)
    if builder.row_count:
        yield from to_arrow(builder.finish(), topic, partition, max_rows)


def _batches_between(
    chunks: Iterable[Buffer], start_offset: int, end_offset: int
) -> Iterator[RecordBatch]:
    for chunk in chunks:
        for batch in batches(chunk):
            if batch.base_offset >= end_offset:
                return
            if batch.last_offset >= start_offset and not batch.is_control:
                yield batch if batch.magic >= MAGIC else up_convert([batch])


def to_arrow(
    columns: Columns, topic: str, partition: int, max_rows: int = DEFAULT_MAX_ROWS
) -> Iterator[pa.RecordBatch]:
    """Arrow batches around the buffers of `columns`; nothing is copied.

    They have at most twice `max_rows`: a single wire batch may hold far more records.
    """
    import pyarrow as pa

    schema = arrow_schema(columns.headers is not None)
    count = columns.row_count
    before = [binary_array(columns.keys, count), binary_array(columns.values, count)]
    behind = [
        _fixed(schema.field("offset").type, count, columns.offsets),
        _fixed(schema.field("timestamp").type, count, columns.timestamps_us),
        _fixed(schema.field("timestampType").type, count, columns.timestamp_types),
    ]
    if columns.headers is not None:
        behind.append(_headers(schema.field(HEADERS).type, columns.headers, count))
    start, left = 0, count
    while left:
        count = left if left <= 2 * max_rows else max_rows
        place = _place(topic, partition, min(2 * max_rows, 1 << (count - 1).bit_length()))
        arrays = [
            *(column.slice(start, count) for column in before),
            *(column.slice(0, count) for column in place),
            *(column.slice(start, count) for column in behind),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        start, left = start + count, left - count


@lru_cache(maxsize=16)
def _place(topic: str, partition: int, count: int) -> tuple[Any, Any]:
    """The columns of topic and partition. (`pa.repeat` imports pandas, which takes a second.)"""
    import pyarrow as pa

    name = topic.encode()
    ends = array("i", range(0, (count + 1) * len(name), len(name)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(name * count)]
    topics = pa.Array.from_buffers(pa.string(), count, buffers, null_count=0)
    return topics, _fixed(pa.int32(), count, array("i", [partition]) * count)


def _fixed(type_: pa.DataType, count: int, data: Buffer) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(data)], null_count=0)


def binary_array(column: BinaryColumn, count: int, type_: pa.DataType | None = None) -> Any:
    """The Arrow array of a column; its `type_` is binary if it is not given.

    (`pa.array` of a list imports pandas, which takes a second.)
    """
    import pyarrow as pa

    return pa.Array.from_buffers(
        pa.binary() if type_ is None else type_,
        count,
        [_validity(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
        null_count=column.null_count,
    )


def _headers(type_: Any, column: HeaderColumn, count: int) -> Any:
    import pyarrow as pa

    pairs = pa.StructArray.from_arrays(
        [
            binary_array(column.keys, column.header_count, pa.string()),
            binary_array(column.values, column.header_count),
        ],
        fields=list(type_.value_type),
    )
    return pa.Array.from_buffers(
        type_,
        count,
        [_validity(column.validity), pa.py_buffer(column.offsets)],
        null_count=column.null_count,
        children=[pairs],
    )


def _validity(bits: Buffer | None) -> Any:
    import pyarrow as pa

    return None if bits is None else pa.py_buffer(bits)
