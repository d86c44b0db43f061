"""The loops over records in plain Python: always there, and the reference for the compiled ones.

They are tuned for CPython: one-byte and two-byte varints are read in place, and anything rarer goes
to `varint`. They also own the wording of every error: the compiled loops only say that a batch is
malformed, and `kernel` asks the plain ones what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.record.record import NO_TIMESTAMP, CorruptRecordError, Record, RecordHeaders
from ottla.record.varint import decode_varint, decode_varlong, encode_varint

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla.record.record_batch import RecordBatch

COMPILED = False
MIN_RECORD_BYTES = 7
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# What a producer hands over for one record: timestamp in ms, key, value, headers.
NewRecord: TypeAlias = tuple[int, bytes | None, bytes | None, RecordHeaders]


class RecordSurvey(NamedTuple):
    """The timestamps of a batch, the first offset with the largest one, and how many null keys."""

    min_timestamp_ms: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    null_key_count: int


_SMALL = 8192
# The varints of 0 to 8191, in one byte and in two.
_VARINTS = [
    *(bytes((raw,)) for raw in range(0, 0x80, 2)),
    *(bytes((raw & 0x7F | 0x80, raw >> 7)) for raw in range(0x80, 2 * _SMALL, 2)),
]
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
# Raw (zig-zag) varints of at most two bytes, and timestamps too far off to add such a delta to.
_SHORT_RAW = 2 * _SMALL - 1
_FAR = 1 << 62


def encode_records(records: Sequence[NewRecord]) -> tuple[Buffer, int, int]:
    """The records section of a batch, and the base and the maximum timestamp of its header."""
    if not records:
        return b"", NO_TIMESTAMP, NO_TIMESTAMP
    base_timestamp = max_timestamp = records[0][0]
    parts: list[bytes] = []
    append, varints, small = parts.append, _VARINTS, _SMALL
    for offset_delta, (timestamp, key, value, headers) in enumerate(records):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        delta = timestamp - base_timestamp
        prefix = b"\x00%b%b%b%b" % (
            varints[delta] if 0 <= delta < small else _encode_delta(timestamp, base_timestamp),
            varints[offset_delta] if offset_delta < small else encode_varint(offset_delta),
            _NULL if key is None else _sized(key),
            _NULL if value is None else _size(value),
        )
        suffix = encode_headers(headers) if headers else _NO_HEADERS
        length = len(prefix) + len(suffix) + len(value or b"")
        append(varints[length] if length < small else encode_varint(length))
        append(prefix)
        if value:
            append(value)
        append(suffix)
    return b"".join(parts), base_timestamp, max_timestamp


def encode_values(values: Iterable[bytes | None]) -> Buffer:
    """The records section for values only: no keys, no headers, all of the same timestamp."""
    return encode_records([(0, None, value, ()) for value in values])[0]


def _encode_delta(timestamp: int, base_timestamp: int) -> bytes:
    delta = timestamp - base_timestamp
    for number in (timestamp, base_timestamp, delta):
        if not INT64_MIN <= number <= INT64_MAX:
            raise ValueError(
                f"timestamp {timestamp} in a batch that begins at {base_timestamp}: "
                f"{number} does not fit into 64 bits"
            )
    return encode_varint(delta)


def _size(data: bytes) -> bytes:
    size = len(data)
    return _VARINTS[size] if size < _SMALL else encode_varint(size)


def _sized(data: bytes) -> bytes:
    return _size(data) + data


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    parts = [b""]
    for key, value in headers:
        parts.append(_sized(key.encode()))
        parts.append(_NULL if value is None else _sized(value))
    parts[0] = encode_varint(len(parts) // 2)
    return b"".join(parts)


def decode_records(batch: RecordBatch, payload: Buffer) -> list[Record]:
    """Every record of a batch, whose uncompressed records section is `payload`."""
    data = bytes(payload)
    check_count(batch, len(data))
    records: list[Record] = []
    position = 0
    try:
        while len(records) < batch.record_count:
            position = _decode_short_records(batch, data, position, records)
            if len(records) < batch.record_count:
                position = _decode_record(batch, data, position, records)
    except IndexError:
        raise corrupt(batch, len(records), "the bytes end in the middle of it") from None
    except CorruptRecordError as error:
        raise corrupt(batch, len(records), error.message) from None
    if position != len(data):
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} has {len(data) - position} bytes of garbage "
            f"behind its {batch.record_count} records"
        )
    return records


def decode_keys(batch: RecordBatch, payload: Buffer) -> list[tuple[int, bytes | None, bool]]:
    """Offset, key, and whether there is a value, of every record: what compaction goes by."""
    return [
        (record.offset, record.key, record.value is not None)
        for record in decode_records(batch, payload)
    ]


def survey_records(batch: RecordBatch, payload: Buffer) -> RecordSurvey:
    """Check every record, and sum up what a leader wants to know about all of them."""
    records = decode_records(batch, payload)
    if not records:
        return RecordSurvey(NO_TIMESTAMP, NO_TIMESTAMP, -1, 0)
    last = max(records, key=itemgetter(1))
    return RecordSurvey(
        min(record.timestamp_ms for record in records),
        last.timestamp_ms,
        last.offset,
        sum(record.key is None for record in records),
    )


def _decode_short_records(
    batch: RecordBatch, data: bytes, position: int, records: list[Record]
) -> int:
    """Decode records up to one with a longer varint or with a flaw, and return where that starts.

    Almost all records have varints of one or two bytes. What is met here in two bytes reads as more
    than `_SHORT_RAW` when a third one follows.
    """
    if not -_FAR <= batch.base_timestamp <= _FAR:
        return position
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    delta_limit = batch.last_offset_delta << 1
    previous = (records[-1].offset - base_offset) << 1 if records else -1
    append, new, cls, size = records.append, tuple.__new__, Record, len(data)
    try:
        for _ in range(batch.record_count - len(records)):
            length = data[position]
            at = position + 1
            if length > 127:
                length += (data[at] << 7) - 128
                at += 1
            end = at + (length >> 1)
            time = data[at + 1]
            at += 2
            if time > 127:
                time += (data[at] << 7) - 128
                at += 1
            delta = data[at]
            at += 1
            if delta > 127:
                delta += (data[at] << 7) - 128
                at += 1
            key, at = _decode_short_bytes(data, at)
            value, at = _decode_short_bytes(data, at)
            if at >= end or (length | time | delta) > _SHORT_RAW or (length | delta) & 1:
                return position
            headers, at = _decode_headers(data, at, end) if data[at] else ((), at + 1)
            if at != end or end > size or not previous < delta <= delta_limit:
                return position
            previous = delta
            if append_time is None:
                timestamp = base_timestamp + ((time >> 1) ^ -(time & 1))
            else:
                timestamp = append_time
            append(new(cls, (base_offset + (delta >> 1), timestamp, key, value, headers)))
            position = end
    except IndexError:
        return position
    return position


def _decode_short_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size = data[at]
    at += 1
    if size == 1:
        return None, at
    if size > 127:
        size += (data[at] << 7) - 128
        at += 1
    end = at + (size >> 1)
    return data[at:end], len(data) if size & 1 or size > 16383 else end


def _decode_record(batch: RecordBatch, data: bytes, position: int, records: list[Record]) -> int:
    previous_delta = records[-1].offset - batch.base_offset if records else -1
    length, position = decode_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptRecordError(
            f"its length {length} does not fit into the {len(data) - position} bytes that are left"
        )
    timestamp_delta, position = decode_varlong(data, position + 1)
    offset_delta, position = decode_varint(data, position)
    if not previous_delta < offset_delta <= batch.last_offset_delta:
        raise CorruptRecordError(
            f"its offset delta {offset_delta} is not between the one before, {previous_delta}, "
            f"and the batch's last, {batch.last_offset_delta}"
        )
    key, position = _decode_bytes(data, position, end, "key")
    value, position = _decode_bytes(data, position, end, "value")
    headers, position = _decode_headers(data, position, end)
    if position != end:
        raise CorruptRecordError(f"its length {length} is not what its fields take up")
    timestamp = (
        batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + timestamp_delta
    )
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise CorruptRecordError(f"its timestamp {timestamp} does not fit into 64 bits")
    records.append(Record(batch.base_offset + offset_delta, timestamp, key, value, headers))
    return position


def _decode_bytes(data: bytes, position: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, position = decode_varint(data, position)
    if size == -1:
        return None, position
    if size < 0 or position + size > end:
        raise CorruptRecordError(
            f"the size {size} of its {what} does not fit into the {end - position} bytes left of it"
        )
    return data[position : position + size], position + size


def _decode_headers(data: bytes, position: int, end: int) -> tuple[RecordHeaders, int]:
    count, position = decode_varint(data, position)
    if count == 0:
        return (), position
    if count < 0 or 2 * count > end - position:
        raise CorruptRecordError(
            f"its {count} headers do not fit into the {end - position} bytes left of it"
        )
    headers = []
    for _ in range(count):
        key, position = _decode_bytes(data, position, end, "header key")
        if key is None:
            raise CorruptRecordError("a header of it has no key")
        value, position = _decode_bytes(data, position, end, "header value")
        # Invalid UTF-8 is replaced, as Java does: one bad producer must not stop every reader.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def check_count(batch: RecordBatch, payload_size: int) -> None:
    """Refuse a header whose count or last offset cannot be true, before anything is sized by it."""
    count = batch.record_count
    if count < 0 or count * MIN_RECORD_BYTES > payload_size:
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} says that it has {count} records, "
            f"in {payload_size} bytes"
        )
    if not INT64_MIN <= batch.last_offset <= INT64_MAX:
        raise CorruptRecordError(
            f"the last offset delta {batch.last_offset_delta} of the batch at offset "
            f"{batch.base_offset} leads past 64 bits"
        )


def corrupt(batch: RecordBatch, index: int, what: str) -> CorruptRecordError:
    """The error for record number `index` of a batch."""
    return CorruptRecordError(f"record {index} of the batch at offset {batch.base_offset}: {what}")
