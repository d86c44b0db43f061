"""Building message sets of magic 0 and magic 1, for the clients that read nothing newer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from ottla.errors import ErrorCode, KafkaError
from ottla.record.compression import CompressionType, compress
from ottla.record.legacy import CRC_BYTES, ENTRY, LENGTH, MAGIC_0, MAGIC_1, NEWEST_CODEC, TIMESTAMP
from ottla.record.legacy_lz4 import compress_lz4
from ottla.record.record import Record
from ottla.record.record_batch import LOG_APPEND_TIME_FLAG


def build_message_set(
    records: Sequence[Record],
    magic: int,
    codec: CompressionType = CompressionType.NONE,
    *,
    is_log_append_time: bool = False,
) -> bytes:
    """The records in the order given, with their offsets; with a codec in one wrapper message.

    Headers are left out, and for magic 0 timestamps as well: there is no place for them.
    """
    flags = LOG_APPEND_TIME_FLAG if is_log_append_time and magic == MAGIC_1 else 0
    if codec is CompressionType.NONE:
        return _entries(records, magic, flags, 0)
    if codec > NEWEST_CODEC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"messages of magic {magic} cannot be compressed with {codec.label}",
        )
    if not records:
        return b""
    first_offset = records[0].offset if magic == MAGIC_1 else 0
    inner = _entries(records, magic, flags, first_offset)
    if codec is CompressionType.LZ4:
        value = compress_lz4(inner, wrong_checksum=magic == MAGIC_0)
    else:
        value = compress(codec, inner)
    timestamp_ms = max(record.timestamp_ms for record in records)
    wrapper = Record(records[-1].offset, timestamp_ms, None, value, ())
    return encode_message(wrapper, magic, codec | flags)


def _entries(records: Iterable[Record], magic: int, flags: int, first_offset: int) -> bytes:
    return b"".join(
        encode_message(record._replace(offset=record.offset - first_offset), magic, flags)
        if first_offset
        else encode_message(record, magic, flags)
        for record in records
    )


def encode_message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """One entry of a message set."""
    timestamp = TIMESTAMP.pack(record.timestamp_ms) if magic == MAGIC_1 else b""
    body = b"".join((timestamp, *_field(record.key), *_field(record.value)))
    head = bytes((magic, attributes))
    size = CRC_BYTES + len(head) + len(body)
    crc = crc32(body, crc32(head))
    return ENTRY.pack(record.offset, size, crc, magic, attributes) + body


def _field(data: bytes | None) -> tuple[bytes, bytes]:
    return (LENGTH.pack(-1), b"") if data is None else (LENGTH.pack(len(data)), data)
