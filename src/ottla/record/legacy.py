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

Wing: attaches to `conversion`, for message sets of before 0.11; the core works without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from ottla.record.compression import MAX_DECOMPRESSED_BYTES, CompressionType, decompress
from ottla.record.record import NO_TIMESTAMP, CorruptRecordError, Record
from ottla.record.record_batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_SEQUENCE,
    RecordBatch,
    as_view,
)
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from typing_extensions import Buffer


# LZ4 frames as messages of magic 0 carry them: with a wrong checksum in the frame's header.
#
# The first writer computed it over the frame's magic number as well. Readers of that time accept
# nothing else, so it is still written so for them; magic 1 and batches have the right one (KIP-57).
# Neither has the field for the size of the content.


_FLAGS_POSITION: Final = 4
_CONTENT_SIZE_FLAG: Final = 0x08
_DICTIONARY_FLAG: Final = 0x01
_DESCRIPTOR_BYTES: Final = 2  # flags and block size

_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_MASK: Final = 0xFFFFFFFF
_STRIPE_BYTES: Final = 16


def compress_lz4(data: Buffer, *, wrong_checksum: bool) -> bytes:
    """One frame of independent blocks."""
    import lz4.frame

    frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    if not wrong_checksum:
        return frame
    return _with_checksum(frame, _checksum_position(frame), 0)


def mend_lz4(data: Buffer) -> bytes:
    """The frame with the right checksum in its header; unchanged if it is too short."""
    frame = bytes(data)
    if len(frame) <= _FLAGS_POSITION:
        return frame
    position = _checksum_position(frame)
    return frame if position >= len(frame) else _with_checksum(frame, position, _FLAGS_POSITION)


def _checksum_position(frame: bytes) -> int:
    flags = frame[_FLAGS_POSITION]
    size = _DESCRIPTOR_BYTES
    size += 8 if flags & _CONTENT_SIZE_FLAG else 0
    size += 4 if flags & _DICTIONARY_FLAG else 0
    return _FLAGS_POSITION + size


def _with_checksum(frame: bytes, position: int, start: int) -> bytes:
    checksum = xxh32_short(frame[start:position]) >> 8 & 0xFF
    return b"".join((frame[:position], checksum.to_bytes(1, "big"), frame[position + 1 :]))


def xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0, for the few bytes of a frame's header."""
    one, two, three, four, five = _PRIMES
    position = 0
    if len(data) >= _STRIPE_BYTES:
        lanes = [one + two & _MASK, two, 0, -one & _MASK]
        while position + _STRIPE_BYTES <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[position : position + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * two & _MASK, 13) * one & _MASK
                position += 4
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        mixed = sum(_rotate(lane, turn) for lane, turn in turns) & _MASK
    else:
        mixed = five
    mixed = mixed + len(data) & _MASK
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        mixed = _rotate(mixed + word * three & _MASK, 17) * four & _MASK
        position += 4
    for byte in data[position:]:
        mixed = _rotate(mixed + byte * five & _MASK, 11) * one & _MASK
    mixed = (mixed ^ mixed >> 15) * two & _MASK
    mixed = (mixed ^ mixed >> 13) * three & _MASK
    return mixed ^ mixed >> 16


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


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
# Only this broker's own old segments hold compressed sets. Recovery must not take one for damaged
# and cut it off because it is large.
MAX_EXTENT_BYTES: Final = 1 << 30


class Message(NamedTuple):
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


class LegacyBatch(RecordBatch):
    """One entry of a message set in a buffer, seen as a batch: of one record, or of those inside.

    All of its bytes are in the buffer. Base offset and count of a compressed set are known only
    from the messages inside: they are worked out when first used, which decompresses them.
    """

    __slots__ = ("_first_and_count", "_last_offset")
    _first_and_count: tuple[int, int] | None
    _last_offset: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = as_view(buffer)
        self.position = position
        left = len(self.buffer) - position
        if left < ENTRY.size:
            raise CorruptRecordError(f"{max(0, left)} bytes are too few for a message")
        (
            self._last_offset,
            self.batch_length,
            self.crc,
            self.magic,
            attributes,
        ) = ENTRY.unpack_from(self.buffer, position)
        self._first_and_count = None
        self._check_size(left)
        has_timestamp = self.magic == MAGIC_1
        flags = COMPRESSION_MASK | (LOG_APPEND_TIME_FLAG if has_timestamp else 0)
        self.attributes = attributes & flags
        self.max_timestamp = self.base_timestamp = NO_TIMESTAMP
        if has_timestamp:
            (timestamp_ms,) = TIMESTAMP.unpack_from(self.buffer, position + ENTRY.size)
            self.max_timestamp = self.base_timestamp = timestamp_ms
        self.partition_leader_epoch = self.producer_epoch = NO_EPOCH
        self.producer_id = NO_PRODUCER_ID
        self.base_sequence = NO_SEQUENCE

    def _check_size(self, left: int) -> None:
        if self.magic not in (MAGIC_0, MAGIC_1):
            raise self._corrupt(f"magic {self.magic} is neither {MAGIC_0} nor {MAGIC_1}")
        if self.batch_length < MIN_SIZES[self.magic]:
            raise self._corrupt(f"size {self.batch_length} is below {MIN_SIZES[self.magic]}")
        if self.size_in_bytes > left:
            raise self._corrupt(f"of its {self.size_in_bytes} bytes only {left} are there")

    def __repr__(self) -> str:
        return (
            f"<LegacyBatch magic {self.magic}, last offset {self.last_offset}, "
            f"{self.size_in_bytes} bytes>"
        )

    @property
    def compression(self) -> CompressionType:
        codec = self.attributes & COMPRESSION_MASK
        if codec > NEWEST_CODEC:
            raise self._corrupt(f"codec {codec}, which messages of magic {self.magic} cannot have")
        return CompressionType(codec)

    # These fields of a header need the messages to be read, and are never set.

    @property
    def base_offset(self) -> int:  # type: ignore[override]
        return self._extent()[0]

    @property
    def record_count(self) -> int:  # type: ignore[override]
        return self._extent()[1]

    @property
    def last_offset(self) -> int:
        return self._last_offset

    @property
    def next_offset(self) -> int:
        return self._last_offset + 1

    @property
    def last_offset_delta(self) -> int:  # type: ignore[override]
        return self._last_offset - self.base_offset

    def verify(self) -> None:
        """Raise CorruptRecordError unless its CRC, codec and lengths are right.

        Messages inside are checked when they are read.
        """
        _ = self.compression
        self._message()

    def payload(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
        """The message set inside, decompressed within `max_bytes`; the entry if it has no codec."""
        return self._decompressed(max_bytes) if self.compression else self.view

    def records(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Every record; raises before the first or not at all."""
        if not self.compression:
            message = self._message()
            record = Record(message.offset, message.timestamp_ms, message.key, message.value, ())
            return iter((record,))
        return iter(self._inner_records(max_bytes))

    def keys(
        self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
    ) -> Iterator[tuple[int, bytes | None, bool]]:
        """Offset and key of every record, and whether it has a value (or is a tombstone)."""
        return (
            (record.offset, record.key, record.value is not None)
            for record in self.records(max_bytes=max_bytes)
        )

    def _message(self) -> Message:
        return parse_message(self.buffer, self.position)

    def _extent(self) -> tuple[int, int]:
        if self._first_and_count is None:
            if self.compression:
                records = self._inner_records(MAX_EXTENT_BYTES)
                self._first_and_count = records[0].offset, len(records)
            else:
                self._first_and_count = self._last_offset, 1
        return self._first_and_count

    def _decompressed(self, max_bytes: int) -> bytes:
        value = self._message().value
        if value is None:
            raise self._corrupt("a codec, and nothing that it has compressed")
        codec = self.compression
        if codec is CompressionType.LZ4 and self.magic == MAGIC_0:
            value = mend_lz4(value)
        try:
            return decompress(codec, value, max_bytes)
        except CorruptRecordError as error:
            what = f"the message at offset {self._last_offset}: {error.message}"
            raise type(error)(what) from None

    def _inner_records(self, max_bytes: int) -> list[Record]:
        """The messages inside, with the offsets and timestamps that the wrapper gives them."""
        messages = list(self.messages(max_bytes))
        shift = self._last_offset - messages[-1].offset if self.magic == MAGIC_1 else 0
        append_time_ms = self.max_timestamp if self.is_log_append_time else None
        return [
            Record(
                message.offset + shift,
                message.timestamp_ms if append_time_ms is None else append_time_ms,
                message.key,
                message.value,
                (),
            )
            for message in messages
        ]

    def messages(self, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Message]:
        """The messages inside a compressed set, as they are stored; there is at least one."""
        data = self._decompressed(max_bytes)
        if not data:
            raise self._corrupt("a compressed message set without a message")
        position = 0
        while position < len(data):
            try:
                message = parse_message(data, position)
            except CorruptRecordError as error:
                raise self._corrupt(f"inside, {error.message}") from None
            if message.magic != self.magic:
                raise self._corrupt(f"a message of magic {message.magic} inside")
            if message.codec:
                raise self._corrupt("a compressed message set inside a compressed message set")
            yield message
            position += message.size_in_bytes

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"the message at offset {self._last_offset}: {what}")


def parse_message(data: bytes | memoryview, position: int) -> Message:
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
    return Message(offset, end - position, magic, attributes, timestamp_ms, key, value)


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
