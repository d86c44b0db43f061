"""Messages as they were before Kafka 0.11: entries of a message set, magic 0 and magic 1.

     0  offset        8     17  attributes    1     then  key length    4, -1 for null
     8  size          4     18  timestamp     8           key
    12  CRC-32        4         (magic 1 only)            value length  4, -1 for null
    16  magic         1                                   value

The size counts from byte 12, the CRC covers everything from byte 16. Bits 0-2 of the attributes
are the codec, bit 3 of magic 1 says that the broker has set the timestamp.

Compression wraps: the value of a message with a codec is a compressed message set of the same
magic, and its offset is that of the last message inside. Inside, magic 0 has the offsets
themselves and magic 1 has them counted from the first one (KIP-31).

Kafka 0.7 used the numbers 0 and 1 for other layouts: see `legacy_positional`.

A `legacy_batch.LegacyBatch` shows one of them as a batch.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from ottla.record.compression import CompressionType
from ottla.record.record import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    CorruptRecordError,
)
from ottla.structs import NO_TIMESTAMP, NamedTuple

if TYPE_CHECKING:
    pass


MAGIC_0: Final = 0
MAGIC_1: Final = 1
ENTRY: Final = Struct(">qiIbb")  # offset, size, CRC, magic, attributes
TIMESTAMP: Final = Struct(">q")
LENGTH: Final = Struct(">i")
CRC_BYTES: Final = 4
CRC_START: Final = LOG_OVERHEAD + CRC_BYTES
# A message without key and value, by its magic.
MIN_SIZES: Final = (14, 22)
NEWEST_CODEC: Final = CompressionType.LZ4


class MessageSetEntry(NamedTuple):
    """One entry of a message set, its CRC checked; the offset is as it is stored."""

    offset: int
    size_in_bytes: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == MAGIC_1 and bool(self.attributes & LOG_APPEND_TIME_FLAG)


def parse_message(data: bytes | memoryview, position: int) -> MessageSetEntry:
    """The entry at a position; CorruptRecordError unless it is complete and valid."""
    left = len(data) - position
    if left < ENTRY.size:
        raise CorruptRecordError(f"{left} bytes are too few for a message")
    offset, size, crc, magic, attributes = ENTRY.unpack_from(data, position)
    if magic not in (MAGIC_0, MAGIC_1):
        raise _corrupt_entry(offset, f"magic {magic} is neither {MAGIC_0} nor {MAGIC_1}")
    if not MIN_SIZES[magic] <= size <= left - LOG_OVERHEAD:
        raise _corrupt_entry(offset, f"size {size} in {left} bytes")
    end = position + LOG_OVERHEAD + size
    actual = crc32(data[position + CRC_START : end])
    if actual != crc:
        raise _corrupt_entry(offset, f"CRC-32 is {actual:#010x} and should be {crc:#010x}")
    timestamp_ms = NO_TIMESTAMP
    start = position + ENTRY.size
    if magic == MAGIC_1:
        (timestamp_ms,) = TIMESTAMP.unpack_from(data, start)
        start += TIMESTAMP.size
    key, start = _field(data, start, end - LENGTH.size, offset)
    value, start = _field(data, start, end, offset)
    if start != end:
        raise _corrupt_entry(offset, f"{end - start} bytes follow its value")
    return MessageSetEntry(offset, end - position, magic, attributes, timestamp_ms, key, value)


def _field(data: bytes | memoryview, start: int, end: int, offset: int) -> tuple[bytes | None, int]:
    """Key or value, and where it ends."""
    (length,) = LENGTH.unpack_from(data, start)
    start += LENGTH.size
    if length == -1:
        return None, start
    if not 0 <= length <= end - start:
        raise _corrupt_entry(offset, f"{length} bytes of key or value in the last {end - start}")
    return bytes(data[start : start + length]), start + length


def _corrupt_entry(offset: int, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the message at offset {offset}: {what}")
