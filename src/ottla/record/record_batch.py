"""Record batches (magic 2) as they lie in a buffer: the header is read, the rest is left alone.

     0  base offset       8    21  attributes          2    43  producer id      8
     8  batch length      4    23  last offset delta   4    51  producer epoch   2
    12  leader epoch      4    27  base timestamp      8    53  base sequence    4
    16  magic             1    35  max timestamp       8    57  record count     4
    17  CRC-32C           4                                 61  records

The batch length counts from byte 12, the CRC covers everything from byte 21: a leader stamps base
offset and leader epoch in place without touching the CRC. If a codec is set, the records section,
and nothing else, is compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Final

from ottla.record import kernel
from ottla.record.compression import (
    MAX_DECOMPRESSED_BYTES,
    CompressionType,
    decompress,
    decompress_in_pieces,
)
from ottla.record.kernel import crc32c
from ottla.record.record import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
    Record,
    RecordHeaders,
    decode_varint,
    decode_varlong,
)
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "BATCH_OVERHEAD",
    "NO_TIMESTAMP",
    "CorruptRecordError",
    "Record",
    "RecordBatch",
    "RecordHeaders",
    "assign_offset",
    "set_log_append_time",
    "set_max_timestamp",
]

BATCH_OVERHEAD: Final = 61
MAGIC: Final = 2
MAGIC_POSITION: Final = 16

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_LENGTH: Final = struct.Struct(">i")
BATCH_LENGTH_POSITION: Final = 8
ATTRIBUTES: Final = struct.Struct(">h")
CRC: Final = struct.Struct(">I")
CRC_POSITION: Final = 17
CRC_START: Final = 21
_MAX_TIMESTAMP_POSITION = 35
MIN_BATCH_LENGTH: Final = BATCH_OVERHEAD - LOG_OVERHEAD
_MAX_HEAD_BYTES = 21  # of a record: length, attributes, and the deltas of timestamp and offset
RECORDS_IN_A_SLICE: Final = 1000
_LIGHT_BYTES: Final = 256 * 1024  # of records, whose headers take 16 MB at most

_CODECS = tuple(CompressionType)
_LEADER_EPOCH = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class RecordBatch(BatchHeader):
    """One batch in a buffer at a position. It holds the header's fields, and no copy of the bytes.

    Only the presence of the header is checked; `verify` checks all that a peer may get wrong.
    """

    __slots__ = ("buffer", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        view = self.buffer = as_view(buffer)
        self.position = position
        if len(view) - position < BATCH_OVERHEAD:
            raise CorruptRecordError(
                f"{max(0, len(view) - position)} bytes are too few for the header of a batch"
            )
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(view, position)

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets {self.base_offset}-{self.last_offset}, "
            f"{self.record_count} records, {self.size_in_bytes} bytes>"
        )

    @property
    def compression(self) -> CompressionType:
        codec = self.attributes & COMPRESSION_MASK
        if codec >= len(_CODECS):
            raise self._corrupt(f"unknown codec {codec} in its attributes")
        return _CODECS[codec]

    @property
    def view(self) -> memoryview:
        """The bytes of the whole batch."""
        return self.buffer[self.position : self.position + self.size_in_bytes]

    def verify(self) -> None:
        """Raise CorruptRecordError unless length, magic, CRC and counts hold; no record is read."""
        self.verify_bytes()
        # A batch that was compacted may hold fewer records than offsets, down to none.
        if not 0 <= self.record_count <= self.last_offset_delta + 1:
            raise self._corrupt(
                f"{self.record_count} records do not fit last offset delta {self.last_offset_delta}"
            )

    def verify_bytes(self) -> None:
        """Raise CorruptRecordError unless length, magic and CRC hold."""
        if self.magic != MAGIC:
            raise self._corrupt(f"magic {self.magic} is not {MAGIC}")
        if self.batch_length < MIN_BATCH_LENGTH:
            raise self._corrupt(f"batch length {self.batch_length} is below {MIN_BATCH_LENGTH}")
        end = self.position + self.batch_length + LOG_OVERHEAD
        if end > len(self.buffer):
            left = len(self.buffer) - self.position
            raise self._corrupt(f"of its {self.size_in_bytes} bytes only {left} are there")
        crc = crc32c(self.buffer[self.position + CRC_START : end])
        if crc != self.crc:
            raise self._corrupt(f"CRC-32C is {crc:#010x} and should be {self.crc:#010x}")

    def _section(self) -> memoryview:
        return self.buffer[self.position + BATCH_OVERHEAD : self.position + self.size_in_bytes]

    def payload(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
        """The records section, decompressed to at most `max_bytes`."""
        section = self._section()
        codec = self.compression
        if codec is CompressionType.NONE or not section:
            return section
        try:
            return decompress(codec, section, max_bytes)
        except CorruptRecordError as error:
            raise type(error)(f"the batch at offset {self.base_offset}: {error.message}") from None

    def records(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Every record, control markers included; raises before the first or not at all."""
        return iter(kernel.decode_records(self, self.payload(max_bytes)))

    def record_slices(self) -> Iterator[list[Record]]:
        """Every record, some at a time: they are decompressed piece by piece and not kept.

        They are for formats that have no headers. Those of large records are left out: a header of
        two bytes takes sixty times its size, and a record may have millions of them.
        """
        head, left, data = copy(self), self.record_count, bytearray()
        for piece in decompress_in_pieces(self.compression, self._section()):
            data += piece
            while left:
                head.record_count, size = _whole_records(data, min(left, RECORDS_IN_A_SLICE))
                if not size:
                    break
                section = bytes(memoryview(data)[:size])
                if size <= _LIGHT_BYTES:
                    yield kernel.decode_records(head, section)
                else:
                    yield _without_headers(head, section)
                left -= head.record_count
                del data[:size]
        if left or data:
            raise self._corrupt(f"it has not {self.record_count} records")

    def times(self) -> Iterator[tuple[int, int] | None]:
        """Timestamp and offset of each record, in order; None now and then, for a pause.

        The records are decompressed piece by piece and not kept.
        """
        pieces = decompress_in_pieces(self.compression, self._section())
        data, position = b"", 0
        for index in range(self.record_count):
            while position + _MAX_HEAD_BYTES > len(data):
                piece = next(pieces, None)
                if piece is None:
                    break
                yield None
                data, position = data[position:] + piece, max(0, position - len(data))
            if index and not index % RECORDS_IN_A_SLICE:
                yield None
            try:
                length, body = decode_varint(data, position)
                timestamp_delta, at = decode_varlong(data, body + 1)
                offset_delta, _ = decode_varint(data, at)
            except IndexError:
                raise self._corrupt(f"it has not {self.record_count} records") from None
            if length < 0:
                raise self._corrupt(f"the length {length} of a record")
            position = body + length
            if not self.is_log_append_time:
                yield self.base_timestamp + timestamp_delta, self.base_offset + offset_delta
            else:
                yield self.max_timestamp, self.base_offset + offset_delta

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"the batch at offset {self.base_offset}: {what}")


def _whole_records(data: bytearray, most: int) -> tuple[int, int]:
    """How many of the first `most` records are there to their ends, and their bytes."""
    count = end = 0
    while count < most:
        try:
            length, body = decode_varint(data, end)
        except IndexError:
            break
        if length < 0:
            raise CorruptRecordError(f"the length {length} of a record")
        if body + length > len(data):
            break
        count, end = count + 1, body + length
    return count, end


def _without_headers(batch: BatchHeader, section: bytes) -> list[Record]:
    """The records of a section, as `_whole_records` has found them."""
    records, start = [], 0
    try:
        while start < len(section):
            length, body = decode_varint(section, start)
            timestamp_delta, at = decode_varlong(section, body + 1)
            offset_delta, at = decode_varint(section, at)
            key, at = _field_at(section, at)
            value, _ = _field_at(section, at)
            timestamp_ms = batch.base_timestamp + timestamp_delta
            if batch.is_log_append_time:
                timestamp_ms = batch.max_timestamp
            records.append(Record(batch.base_offset + offset_delta, timestamp_ms, key, value, ()))
            start = body + length
    except IndexError:
        raise batch.corrupt_record(len(records), "the bytes end in the middle of it") from None
    return records


def _field_at(section: bytes, position: int) -> tuple[bytes | None, int]:
    size, start = decode_varint(section, position)
    return (None, start) if size < 0 else (section[start : start + size], start + size)


def as_view(buffer: Buffer) -> memoryview:
    """`buffer` as a memoryview of plain bytes."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def assign_offset(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Stamp the leader's offset and epoch into a batch; both fields lie outside the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def set_log_append_time(buffer: Buffer, position: int, timestamp_ms: int) -> None:
    """Give all records of a batch the broker's timestamp, and the batch its new CRC."""
    view = as_view(buffer)
    batch = RecordBatch(view, position)
    ATTRIBUTES.pack_into(view, position + CRC_START, batch.attributes | LOG_APPEND_TIME_FLAG)
    set_max_timestamp(view, position, timestamp_ms)


def set_max_timestamp(buffer: Buffer, position: int, timestamp_ms: int) -> None:
    """Write the largest timestamp into the header of a batch, and its new CRC."""
    view = as_view(buffer)
    batch = RecordBatch(view, position)
    _INT64.pack_into(view, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    crc = crc32c(view[position + CRC_START : position + batch.size_in_bytes])
    CRC.pack_into(view, position + CRC_POSITION, crc)
