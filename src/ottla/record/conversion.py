"""Between the formats: message sets up to batches, and batches down to message sets.

Up, for producers before 0.11 and for old segments: nothing is lost, and a message without a
timestamp keeps none (-1). Down, for consumers before 0.11, batch by batch: headers, producer fields
and leader epochs have no place there, markers of transactions are left out, and magic 0 has no
timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

from ottla.errors import ErrorCode, KafkaError
from ottla.record.batch_builder import build_batch, with_records
from ottla.record.compression import MAX_DECOMPRESSED_BYTES, CompressionType, compress
from ottla.record.legacy import (
    CRC_BYTES,
    ENTRY,
    LENGTH,
    MAGIC_0,
    MAGIC_1,
    NEWEST_CODEC,
    TIMESTAMP,
    parse_message,
)
from ottla.record.legacy_batch import LegacyBatch
from ottla.record.legacy_lz4 import compress_lz4
from ottla.record.memory_records import batches
from ottla.record.record import (
    LOG_APPEND_TIME_FLAG,
    CorruptRecordError,
    DecompressionLimitError,
    NewRecord,
    Record,
    encode_varint,
)
from ottla.record.record_batch import BATCH_OVERHEAD, MAGIC, RecordBatch
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NamedTuple


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


PACKED_BYTES: Final = 64 * 1024
MAX_OFFSET_DELTA: Final = 2**31 - 1
"""Old messages are packed into batches up to these bytes, and offsets this far apart."""
MESSAGE_MEMORY_BYTES: Final = 100
"""The memory that a message counts for beside its key and value: a set may unpack to millions."""


class Converted(NamedTuple):
    """The converted batches of a fetch, and how far they go.

    `next_offset` is the offset behind the last batch that was looked at, even if nothing of it
    was left. The error says why the first one could not be converted.
    """

    data: bytes | memoryview
    next_offset: int
    error: ErrorCode = ErrorCode.NONE


def to_batch(message_set: memoryview, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytearray:
    """The message set of a producer, as one batch with offsets from 0.

    Raises KafkaError with the code that the producer gets, and DecompressionLimitError where the
    messages would take more memory than `max_bytes`. The batch has the codec of the set.
    """
    rows: list[NewRecord] = []
    codec = CompressionType.NONE
    room = max_bytes
    position = 0
    while position < len(message_set):
        message = parse_message(message_set, position)
        if message.is_log_append_time:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP, "a message says that the broker has set its timestamp"
            )
        if message.codec:
            entry = LegacyBatch(message_set, position)
            codec = entry.compression
            for inner in entry.messages(room):
                room -= MESSAGE_MEMORY_BYTES + len(inner.key or b"") + len(inner.value or b"")
                if room < 0:
                    raise DecompressionLimitError(
                        f"messages that take more than {max_bytes} bytes of memory"
                    )
                rows.append((inner.timestamp_ms, inner.key, inner.value, ()))
        else:
            rows.append((message.timestamp_ms, message.key, message.value, ()))
        position += message.size_in_bytes
    if not rows:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a message set without a message")
    try:
        return bytearray(build_batch(rows, codec))
    except ValueError as error:  # two timestamps are further apart than a batch can say
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None


def up_convert(entries: Sequence[RecordBatch]) -> RecordBatch:
    """One batch of magic 2 with the records of stored messages, unchanged and in order.

    All have the same attributes. Offsets stay: where one is missing, the batch has a gap as after
    compaction.
    """
    records = [record for entry in entries for record in entry.records()]
    first = records[0]
    head = RecordBatch(bytes(BATCH_OVERHEAD))
    head.base_offset = first.offset
    head.last_offset_delta = records[-1].offset - first.offset
    head.attributes = entries[0].attributes
    head.partition_leader_epoch = head.producer_epoch = NO_EPOCH
    head.producer_id = NO_PRODUCER_ID
    head.base_sequence = NO_SEQUENCE
    payload = b"".join(_encode_record(record, first) for record in records)
    newest_ms = max(record.timestamp_ms for record in records)
    return RecordBatch(with_records(head, payload, len(records), first.timestamp_ms, newest_ms))


def _encode_record(record: Record, first: Record) -> bytes:
    """A record's bytes in a batch that begins with `first`; the kernel allows no gaps."""
    body = b"".join(
        (
            b"\0",
            encode_varint(record.timestamp_ms - first.timestamp_ms),
            encode_varint(record.offset - first.offset),
            *_encode_field(record.key),
            *_encode_field(record.value),
            encode_varint(0),
        )
    )
    return encode_varint(len(body)) + body


def _encode_field(data: bytes | None) -> tuple[bytes, bytes]:
    return (encode_varint(-1), b"") if data is None else (encode_varint(len(data)), data)


def modernised(stored: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Batches of magic 2 for stored ones of any format: old messages are packed together.

    Batches of magic 2 are passed on as they are.
    """
    waiting: list[RecordBatch] = []
    size = 0
    for batch in stored:
        if waiting and not (size < PACKED_BYTES and _belong_together(waiting[0], batch)):
            yield up_convert(waiting)
            waiting, size = [], 0
        if batch.magic >= MAGIC:
            yield batch
        else:
            waiting.append(batch)
            size += batch.size_in_bytes
    if waiting:
        yield up_convert(waiting)


def _belong_together(first: RecordBatch, batch: RecordBatch) -> bool:
    """Whether old messages can share a batch: same attributes, broker's time, and near."""
    return (
        batch.magic == first.magic
        and batch.attributes == first.attributes
        and (not first.is_log_append_time or batch.max_timestamp == first.max_timestamp)
        and batch.last_offset - first.base_offset < MAX_OFFSET_DELTA
    )


def down_convert(data: memoryview, magic: int, start_offset: int, max_bytes: int) -> Converted:
    """The stored batches for a reader of message sets up to `magic`, at most `max_bytes` of them.

    The first message comes whole even if it is larger. A batch that is old enough stays as it is,
    and one that cannot be converted ends the answer before it.
    """
    parts: list[bytes | memoryview] = []
    size = 0
    next_offset = start_offset
    try:
        for batch in batches(data):
            for part in _down_convert_batch(batch, magic, start_offset):
                if parts and size + len(part) > max_bytes:
                    return Converted(b"".join(parts), next_offset)
                parts.append(part)
                size += len(part)
            next_offset = max(next_offset, batch.next_offset)
    except KafkaError as error:
        if not parts:
            return Converted(b"", next_offset, error.error)
    return Converted(b"".join(parts), next_offset)


def _down_convert_batch(
    batch: RecordBatch, magic: int, start_offset: int
) -> Iterator[bytes | memoryview]:
    """The messages of a batch; the answer may end after any of them.

    Compressed ones come in sets of some records, so that a small batch of very many does not take
    a hundred times its size.
    """
    if batch.magic <= magic:
        yield batch.view
        return
    if batch.is_control or batch.last_offset < start_offset:
        return
    if batch.compression > NEWEST_CODEC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch at offset {batch.base_offset} is compressed with "
            f"{batch.compression.label}, which messages of magic {magic} cannot be",
        )
    batch.verify()
    codec, append_time = batch.compression, batch.is_log_append_time
    for records in batch.record_slices():
        if codec is not CompressionType.NONE:
            if records[-1].offset >= start_offset:
                yield build_message_set(records, magic, codec, is_log_append_time=append_time)
            continue
        for record in records:
            if record.offset >= start_offset:
                yield build_message_set([record], magic, is_log_append_time=append_time)


def needs_down_conversion(data: memoryview, magic: int) -> bool:
    """Whether a reader of message sets up to `magic` cannot be given these batches as they are."""
    try:
        return any(batch.magic > magic for batch in batches(data))
    except CorruptRecordError:
        return True  # the conversion reports the error
