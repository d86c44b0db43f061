"""Rows that become records: the buffers of Arrow columns, and their encoder in plain Python.

An encoder distributes the rows of one topic over its partitions, by number, by key, or as they
come, and returns the records section of a batch whenever one is full. It reads Arrow's buffers and
writes Kafka's bytes: the compiled encoder never makes an object of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.record.columns import MAX_COLUMN_BYTES
from ottla.record.compression import CompressionType
from ottla.record.murmur import TO_POSITIVE, murmur2
from ottla.record.plain_encoding import encode_headers
from ottla.record.record import HEADER_OVERHEAD as HEADER_OVERHEAD  # the compiled one takes it here
from ottla.record.record import encode_varint
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer


BY_KEY = -1
# The most that a record takes beside its key, its value and its headers, whose keys and values take
# up to five bytes more each.
RECORD_OVERHEAD = 26
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


class BinaryRows(NamedTuple):
    """Byte strings: validity bits (None: no nulls), int32 offsets and bytes, as Arrow has them.

    Row 0 is entry `start` of the validity and of the offsets.
    """

    validity: Buffer | None
    offsets: Buffer
    data: Buffer
    start: int = 0


class HeaderRows(NamedTuple):
    """A list of keys and values for each row; a list that is null is one without headers."""

    validity: Buffer | None
    offsets: Buffer
    start: int
    keys: BinaryRows
    values: BinaryRows


class Rows(NamedTuple):
    """`row_count` rows to encode. `partitions`: an int32 each, BY_KEY where the key decides."""

    row_count: int
    values: BinaryRows
    keys: BinaryRows | None = None
    partitions: Buffer | None = None
    headers: HeaderRows | None = None


class EncodedRecords(NamedTuple):
    """The records section of a batch of one partition, and its header's fields.

    With a `codec` the section is as it is sent; without one it is not compressed yet.
    """

    partition: int
    record_count: int
    payload: Buffer
    base_timestamp_ms: int
    max_timestamp_ms: int
    codec: CompressionType | None = None


class OpenBatch:
    """The batch of one partition that is being filled."""

    __slots__ = ("base_timestamp_ms", "max_timestamp_ms", "partition", "records", "size")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.records: list[bytes] = []
        self.size = 0
        self.base_timestamp_ms = 0
        self.max_timestamp_ms = 0

    def take(self) -> EncodedRecords:
        """Return its records, and empty it."""
        records, self.records, self.size = self.records, [], 0
        return EncodedRecords(
            self.partition,
            len(records),
            b"".join(records),
            self.base_timestamp_ms,
            self.max_timestamp_ms,
        )


class RowEncoder:
    """The plain encoder of the rows of one topic; the one in `native_rows` makes the same bytes.

    A batch is returned before it would grow beyond `batch_size`. Rows without key and partition
    go where `next_partition` says, until a batch's worth has gone there (KIP-480).
    """

    def __init__(
        self, partition_count: int, batch_size: int, next_partition: Callable[[], int]
    ) -> None:
        self._open_batches = [OpenBatch(partition) for partition in range(partition_count)]
        self._batch_size = batch_size
        self._next_partition = next_partition
        self._sticky = -1
        self._sticky_bytes = 0

    def append(self, rows: Rows, timestamp_ms: int) -> list[EncodedRecords]:
        """Add rows, all of one timestamp; returns the batches that are full."""
        full: list[EncodedRecords] = []
        values = _items(rows.values, rows.row_count)
        keys = [None] * rows.row_count if rows.keys is None else _items(rows.keys, rows.row_count)
        headers = _headers(rows)
        chosen = None if rows.partitions is None else memoryview(rows.partitions).cast("B")
        partitions = None if chosen is None else chosen.cast("i")
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            for name, content in headers[row]:
                size += HEADER_OVERHEAD + len(name) + len(content or b"")
            given = BY_KEY if partitions is None else partitions[row]
            batch = self._open_batches[self._partition(given, key, size)]
            if batch.records and batch.size + size > self._batch_size:
                full.append(batch.take())
            _put(batch, key, value, headers[row], timestamp_ms)
        return full

    def finish(self) -> list[EncodedRecords]:
        """Return the batches that are not full."""
        return [batch.take() for batch in self._open_batches if batch.records]

    def _partition(self, given: int, key: bytes | None, size: int) -> int:
        if given >= 0:
            if given >= len(self._open_batches):
                raise ValueError(f"partition {given} of {len(self._open_batches)}")
            return given
        if key is not None:
            return (murmur2(key) & TO_POSITIVE) % len(self._open_batches)
        if self._sticky < 0 or self._sticky_bytes + size > self._batch_size:
            self._sticky = self._next_partition()
            self._sticky_bytes = 0
        self._sticky_bytes += size
        return self._sticky


def _put(
    batch: OpenBatch,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
    timestamp_ms: int,
) -> None:
    if not batch.records:
        batch.base_timestamp_ms = batch.max_timestamp_ms = timestamp_ms
    batch.max_timestamp_ms = max(batch.max_timestamp_ms, timestamp_ms)
    body = b"\x00%b%b%b%b%b" % (
        encode_varint(timestamp_ms - batch.base_timestamp_ms),
        encode_varint(len(batch.records)),
        _sized(key),
        _sized(value),
        encode_headers((name.decode(), content) for name, content in headers)
        if headers
        else _NO_HEADERS,
    )
    record = encode_varint(len(body)) + body
    batch.records.append(record)
    batch.size += len(record)


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else encode_varint(len(data)) + data


def _items(column: BinaryRows, count: int) -> list[bytes | None]:
    offsets = memoryview(column.offsets).cast("B").cast("i")
    data = memoryview(column.data).cast("B")
    items: list[bytes | None] = []
    for index in range(column.start, column.start + count):
        start, end = offsets[index], offsets[index + 1]
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"entry {index} from {start} to {end} of {len(data)} bytes")
        items.append(bytes(data[start:end]) if _is_valid(column.validity, index) else None)
    return items


def _headers(rows: Rows) -> list[list[tuple[bytes, bytes | None]]]:
    column = rows.headers
    if column is None:
        return [[]] * rows.row_count
    offsets = memoryview(column.offsets).cast("B").cast("i")
    keys = _items(column.keys, offsets[column.start + rows.row_count])
    values = _items(column.values, offsets[column.start + rows.row_count])
    lists: list[list[tuple[bytes, bytes | None]]] = []
    for index in range(column.start, column.start + rows.row_count):
        pairs = []
        if _is_valid(column.validity, index):
            for each in range(offsets[index], offsets[index + 1]):
                key = keys[each]
                if key is None:
                    raise ValueError("a header without a key")
                pairs.append((key, values[each]))
        lists.append(pairs)
    return lists


def _is_valid(validity: Buffer | None, index: int) -> bool:
    if validity is None:
        return True
    return bool(memoryview(validity).cast("B")[index >> 3] >> (index & 7) & 1)


def rows_of(
    values: pa.Array,
    keys: pa.Array | None = None,
    partitions: pa.Array | None = None,
    headers: pa.Array | None = None,
) -> Rows:
    """Rows of columns of the same length.

    Keys and values are strings or binaries, partitions integers (null: the key decides), headers
    lists of structs of a string and a binary. The result holds on to the columns' memory.
    """
    return Rows(
        len(values),
        _binary(values),
        None if keys is None or keys.null_count == len(keys) else _binary(keys),
        None if partitions is None else _numbers(partitions),
        None if headers is None or headers.null_count == len(headers) else _arrow_headers(headers),
    )


def partition_outside(partitions: pa.Array, count: int) -> int | None:
    """A number in the column that no partition of `count` has, the largest one first."""
    import pyarrow.compute as pc

    limits = pc.min_max(partitions).as_py()
    found = (limits["max"], limits["min"])
    return next((each for each in found if each is not None and not 0 <= each < count), None)


def _numbers(array: Any) -> Buffer | None:
    """The partitions as plain int32s; None if the key decides in every row."""
    import pyarrow as pa

    if array.null_count == len(array):
        return None
    filled = array.cast(pa.int32()).fill_null(BY_KEY)
    data: Buffer = memoryview(filled.buffers()[1])[4 * filled.offset :]
    return data


def _binary(array: Any) -> BinaryRows:
    import pyarrow as pa

    if array.type in (pa.large_string(), pa.large_binary()):
        data = array.buffers()[2]
        if data is not None and data.size > MAX_COLUMN_BYTES:
            # A slice keeps the offsets of the whole column, which the cast takes to be too large.
            array = pa.concat_arrays([array, array[:0]])
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    return BinaryRows(
        validity if array.null_count else None,
        # An array without rows may have no buffers at all.
        bytes(4) if offsets is None or not len(array) else offsets,
        b"" if data is None else data,
        array.offset if len(array) else 0,
    )


def _arrow_headers(array: Any) -> HeaderRows:
    import pyarrow as pa

    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    pairs = array.values
    # A struct that is null has a null key for the encoder to refuse.
    keys = pairs.field(0) if not pairs.null_count else pairs.flatten()[0]
    validity = array.buffers()[0] if array.null_count else None
    return HeaderRows(
        validity, array.buffers()[1], array.offset, _binary(keys), _binary(pairs.field(1))
    )
