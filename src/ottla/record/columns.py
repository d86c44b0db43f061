"""Records as columns: the buffers that Arrow arrays are made of, and their builder in plain Python.

A builder takes one wire batch after the other, which usually hold some 150 records each, and
returns all of them at once: readers of columns want thousands of rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from ottla.record.plain_decoding import decode_records
from ottla.record.record import BatchHeader, Record
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Offsets into the data of a column are int32.
MAX_COLUMN_BYTES = 2**31 - 1
# Microseconds reach less far than milliseconds: later timestamps are held at the limit.
MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


class Columns(NamedTuple):
    """`row_count` records: offsets and timestamps (in us) as int64, timestamp types as int32."""

    row_count: int
    offsets: Buffer
    timestamps_us: Buffer
    timestamp_types: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumn | None


class BinaryColumn(NamedTuple):
    """Byte strings: Arrow's validity bits (None: no nulls), int32 offsets, and the bytes."""

    null_count: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer


class HeaderColumn(NamedTuple):
    """A list of key and value per row, null for a record without headers as in Spark's source."""

    null_count: int
    validity: Buffer | None
    offsets: Buffer
    header_count: int
    keys: BinaryColumn
    values: BinaryColumn


class ColumnBuilder:
    """The plain builder of columns; the compiled one in `native_columns` makes the same buffers."""

    def __init__(self, with_headers: bool = True) -> None:
        self.with_headers = with_headers
        self._clear()

    def _clear(self) -> None:
        self.row_count = 0
        self.size_in_bytes = 0
        self._records: list[Record] = []
        self._timestamp_types = array("i")

    def append(
        self, batch: BatchHeader, payload: Buffer, start_offset: int, end_offset: int
    ) -> None:
        """Add the records of a batch from `start_offset` up to, and without, `end_offset`."""
        records = [
            record
            for record in decode_records(batch, payload)
            if start_offset <= record.offset < end_offset
        ]
        self._records += records
        self._timestamp_types.extend([int(batch.is_log_append_time)] * len(records))
        self.row_count += len(records)
        self.size_in_bytes += len(memoryview(payload))

    def finish(self) -> Columns:
        """Return all rows since the last call, and empty the builder."""
        records, types = self._records, self._timestamp_types
        self._clear()
        limit = MAX_TIMESTAMP_MS
        return Columns(
            len(records),
            array("q", [record.offset for record in records]).tobytes(),
            array(
                "q", [max(-limit, min(limit, record.timestamp_ms)) * 1000 for record in records]
            ).tobytes(),
            types.tobytes(),
            binary_column([record.key for record in records]),
            binary_column([record.value for record in records]),
            _header_column(records) if self.with_headers else None,
        )


def binary_column(items: Sequence[bytes | None]) -> BinaryColumn:
    """The column of these byte strings."""
    present = [item for item in items if item is not None]
    sizes = (0 if item is None else len(item) for item in items)
    return BinaryColumn(
        len(items) - len(present),
        _validity(items),
        _offsets(sizes),
        b"".join(present),
    )


def _header_column(records: list[Record]) -> HeaderColumn:
    headers = [header for record in records for header in record.headers]
    rows = [record.headers or None for record in records]
    return HeaderColumn(
        rows.count(None),
        _validity(rows),
        _offsets(len(record.headers) for record in records),
        len(headers),
        binary_column([key.encode() for key, _ in headers]),
        binary_column([value for _, value in headers]),
    )


def _offsets(sizes: Iterable[int]) -> bytes:
    return array("i", accumulate(sizes, initial=0)).tobytes()


def _validity(
    items: Sequence[bytes | None] | list[tuple[tuple[str, bytes | None], ...] | None],
) -> bytes | None:
    if None not in items:
        return None
    bits = "".join(["0" if item is None else "1" for item in reversed(items)])
    return int(bits, 2).to_bytes((len(items) + 7) // 8, "little")
