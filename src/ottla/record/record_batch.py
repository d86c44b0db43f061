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
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from ottla.record import kernel
from ottla.record.compression import MAX_DECOMPRESSED_BYTES, CompressionType, decompress
from ottla.record.record import NO_TIMESTAMP, CorruptRecordError, Record, RecordHeaders

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "BATCH_OVERHEAD",
    "LOG_OVERHEAD",
    "NO_TIMESTAMP",
    "CorruptRecordError",
    "Record",
    "RecordBatch",
    "RecordHeaders",
    "assign_offset",
    "batch_at",
    "batches",
    "set_log_append_time",
    "set_max_timestamp",
]

BATCH_OVERHEAD: Final = 61
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
NO_SEQUENCE: Final = -1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BATCH_LENGTH: Final = struct.Struct(">i")
BATCH_LENGTH_POSITION: Final = 8
ATTRIBUTES: Final = struct.Struct(">h")
CRC: Final = struct.Struct(">I")
CRC_POSITION: Final = 17
CRC_START: Final = 21
_MAX_TIMESTAMP_POSITION = 35
_MIN_BATCH_LENGTH = BATCH_OVERHEAD - LOG_OVERHEAD
_MIN_MESSAGE_LENGTH = 14
_MAX_SEQUENCE = 2**31 - 1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_CODECS = tuple(CompressionType)
_LEADER_EPOCH = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_AND_LENGTH = struct.Struct(">qi")


class RecordBatch:
    """One batch in a buffer at a position. It holds the header's fields, and no copy of the bytes.

    Only the presence of the header is checked; `verify` checks what a peer may get wrong.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
    )
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = as_view(buffer)
        self.position = position
        if len(self.buffer) - position < BATCH_OVERHEAD:
            raise CorruptRecordError(
                f"{max(0, len(self.buffer) - position)} bytes are too few for the header of a batch"
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
        ) = HEADER.unpack_from(self.buffer, position)

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets {self.base_offset}-{self.last_offset}, "
            f"{self.record_count} records, {self.size_in_bytes} bytes>"
        )

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def compression(self) -> CompressionType:
        codec = self.attributes & COMPRESSION_MASK
        if codec >= len(_CODECS):
            raise self._corrupt(f"unknown codec {codec} in its attributes")
        return _CODECS[codec]

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamps are the broker's and not the producer's."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether its record is a marker of the protocol and not a producer's record."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop this batch's tombstones (KIP-534), if it has set that."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE

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
        if self.batch_length < _MIN_BATCH_LENGTH:
            raise self._corrupt(f"batch length {self.batch_length} is below {_MIN_BATCH_LENGTH}")
        if self.position + self.size_in_bytes > len(self.buffer):
            left = len(self.buffer) - self.position
            raise self._corrupt(f"of its {self.size_in_bytes} bytes only {left} are there")
        crc = crc32c(self.buffer[self.position + CRC_START : self.position + self.size_in_bytes])
        if crc != self.crc:
            raise self._corrupt(f"CRC-32C is {crc:#010x} and should be {self.crc:#010x}")

    def payload(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
        """The records section, decompressed to at most `max_bytes`."""
        start, end = self.position + BATCH_OVERHEAD, self.position + self.size_in_bytes
        section = self.buffer[start:end]
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

    def keys(
        self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
    ) -> Iterator[tuple[int, bytes | None, bool]]:
        """Offset and key of every record, and whether it has a value (or is a tombstone)."""
        return iter(kernel.decode_keys(self, self.payload(max_bytes)))

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"the batch at offset {self.base_offset}: {what}")


def as_view(buffer: Buffer) -> memoryview:
    """`buffer` as a memoryview of plain bytes."""
    view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def batches(buffer: Buffer, position: int = 0) -> Iterator[RecordBatch]:
    """The batches of a fetch response or a file, up to one that is cut off by the buffer's end.

    Each message of an older format comes as a batch of its own, a `LegacyBatch`. Raises
    CorruptRecordError at a length that cannot be one, since nothing can be found behind it.
    """
    view = as_view(buffer)
    end = len(view)
    while position + LOG_OVERHEAD <= end:
        base_offset, batch_length = _OFFSET_AND_LENGTH.unpack_from(view, position)
        if batch_length < _MIN_BATCH_LENGTH and not _is_short_message(view, position, batch_length):
            raise CorruptRecordError(
                f"the batch at offset {base_offset}: batch length {batch_length} is below "
                f"{_MIN_BATCH_LENGTH}"
            )
        if position + LOG_OVERHEAD + batch_length > end:
            return
        if view[position + MAGIC_POSITION] < MAGIC:
            yield _legacy_batch(view, position)
        else:
            yield RecordBatch(view, position)
        position += LOG_OVERHEAD + batch_length


def batch_at(buffer: Buffer, position: int = 0) -> RecordBatch:
    """The batch at a position, in any format; one in an older format must be complete."""
    view = as_view(buffer)
    if position + MAGIC_POSITION < len(view) and view[position + MAGIC_POSITION] < MAGIC:
        return _legacy_batch(view, position)
    return RecordBatch(view, position)


def _legacy_batch(view: memoryview, position: int) -> RecordBatch:
    from ottla.record.legacy import LegacyBatch  # rare, and it imports this module

    return LegacyBatch(view, position)


def _is_short_message(view: memoryview, position: int, length: int) -> bool:
    """Whether a length too small for a batch may be that of a message of an older format."""
    if length < _MIN_MESSAGE_LENGTH:
        return False
    magic_position = position + MAGIC_POSITION
    return magic_position >= len(view) or view[magic_position] < MAGIC


def assign_offset(buffer: Buffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Stamp what the leader decides into a batch; both fields lie outside the CRC."""
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
