"""The foundation of the loops over records: a record, its varints, and the header of its batch.

`record_batch` reads the header and calls the loops, so that these know no more of it than is here.
A varint holds an int32 in at most 5 bytes, a varlong an int64 in at most 10. Seven bits to a byte,
least significant first; zig-zag puts the sign into the lowest bit, so that -1 takes one byte.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ottla.errors import ErrorCode, RetriableError
from ottla.structs import NO_SEQUENCE, NamedTuple
from ottla.structs import NO_TIMESTAMP as NO_TIMESTAMP  # the compiled kernels take it from here

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]
FieldsOfRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, RecordHeaders]
"""Those of a Record, in their order."""
NewRecord: TypeAlias = tuple[int, bytes | None, bytes | None, RecordHeaders]
"""The parts of a record from a producer: timestamp in ms, key, value, headers."""
LOG_OVERHEAD: Final = 12
VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10
HEADER_OVERHEAD = 2 * VARINT_MAX_BYTES
"""The most that the lengths of a header's key and value take up."""

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_MAX_SEQUENCE = 2**31 - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
MIN_RECORD_BYTES = 7


class Record(NamedTuple):
    """One record at its place in the partition; `None` is a null, which is not an empty value."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class RecordSurvey(NamedTuple):
    """The timestamps of a batch, the first offset with the largest one, and how many null keys."""

    min_timestamp_ms: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    null_key_count: int


EMPTY_SURVEY: Final = RecordSurvey(NO_TIMESTAMP, NO_TIMESTAMP, -1, 0)


class CorruptRecordError(RetriableError):
    """Bytes that are not a valid record batch; the text names the offset and the reason.

    Retriable as in Kafka: another copy of the batch may be whole.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class DecompressionLimitError(CorruptRecordError):
    """Compressed data that would become more bytes than the caller allows."""


class BatchHeader:
    """The fields of a batch's header, by the protocol's names, and facts that follow from them."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
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

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

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

    def check_count(self, payload_size: int) -> None:
        """Refuse a count or a last offset that cannot be true, before memory is sized by it."""
        count = self.record_count
        if count < 0 or count * MIN_RECORD_BYTES > payload_size:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} says that it has {count} records, "
                f"in {payload_size} bytes"
            )
        if not INT64_MIN <= self.last_offset <= INT64_MAX:
            raise CorruptRecordError(
                f"the last offset delta {self.last_offset_delta} of the batch at offset "
                f"{self.base_offset} leads past 64 bits"
            )

    def corrupt_record(self, index: int, what: str) -> CorruptRecordError:
        """The error for record number `index`."""
        return CorruptRecordError(
            f"record {index} of the batch at offset {self.base_offset}: {what}"
        )

    def garbage(self, size: int) -> CorruptRecordError:
        """The error for bytes behind the last record."""
        return CorruptRecordError(
            f"the batch at offset {self.base_offset} has {size} bytes of garbage "
            f"behind its {self.record_count} records"
        )


def encode_varint(value: int) -> bytes:
    """The bytes of a varint or a varlong: the encoding of small values does not depend on it."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 0x80:
        return raw.to_bytes(1, "little")
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """An int32 and the position after it; IndexError where the data end too early."""
    raw = data[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    return _decode(data, position, VARINT_MAX_BYTES, 32)


def decode_varlong(data: bytes, position: int) -> tuple[int, int]:
    """An int64 and the position after it; IndexError where the data end too early."""
    raw = data[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    return _decode(data, position, VARLONG_MAX_BYTES, 64)


def _decode(data: bytes | bytearray, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise CorruptRecordError(f"a varint of more than {max_bytes} bytes")
    if raw >> bits:
        raise CorruptRecordError(f"a varint that does not fit into {bits} bits")
    return (raw >> 1) ^ -(raw & 1), position
