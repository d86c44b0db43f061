"""The records of a batch, read in plain Python; see `kernel`.

Varints of one and two bytes are read in place, and anything rarer goes to `decode_varint`. The
compiled loops only find that a batch is malformed: the message of every error is made here.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from ottla.record.consumer_record import ConsumerRecord, placed
from ottla.record.record import (
    INT64_MAX,
    INT64_MIN,
    BatchHeader,
    CorruptRecordError,
    FieldsOfRecord,
    Record,
    RecordHeaders,
    decode_varint,
    decode_varlong,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The largest raw (zig-zag) varint of two bytes, and timestamps too far off to add such a delta to.
_SHORT_RAW = (1 << 14) - 1
FAR = 1 << 62


def decode_records(batch: BatchHeader, payload: Buffer) -> list[Record]:
    """Every record of a batch, whose uncompressed records section is `payload`."""
    return list(map(tuple.__new__, repeat(Record), _decode(batch, payload)))


def _decode(batch: BatchHeader, payload: Buffer) -> list[FieldsOfRecord]:
    data = bytes(payload)
    batch.check_count(len(data))
    records: list[FieldsOfRecord] = []
    position = 0
    try:
        while len(records) < batch.record_count:
            position = _decode_short_records(batch, data, position, records)
            if len(records) < batch.record_count:
                previous_delta = records[-1][0] - batch.base_offset if records else -1
                record, position = _decode_record(batch, data, position, previous_delta)
                records.append(record)
    except IndexError:
        raise batch.corrupt_record(len(records), "the bytes end in the middle of it") from None
    except CorruptRecordError as error:
        raise batch.corrupt_record(len(records), error.message) from None
    if position != len(data):
        raise batch.garbage(len(data) - position)
    return records


def decode_consumer_records(
    batch: BatchHeader, payload: Buffer, topic: str, partition: int
) -> list[ConsumerRecord]:
    """The same with their place, as consumers return them."""
    return placed(_decode(batch, payload), batch, topic, partition)


def _decode_short_records(
    batch: BatchHeader, data: bytes, position: int, records: list[FieldsOfRecord]
) -> int:
    """Decode records up to one with a longer varint or with a flaw, and return where that starts.

    Almost all records have varints of one or two bytes. A varint that is read here as two bytes
    comes out above `_SHORT_RAW` if a third one follows.
    """
    if not -FAR <= batch.base_timestamp <= FAR:
        return position
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    delta_limit = batch.last_offset_delta << 1
    previous = (records[-1][0] - base_offset) << 1 if records else -1
    append, size = records.append, len(data)
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
            append((base_offset + (delta >> 1), timestamp, key, value, headers))
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


def decode_one(
    batch: BatchHeader, data: bytes, position: int, index: int, previous_delta: int
) -> tuple[Record, int]:
    """Record number `index`, and where it ends; the error names the malformed field."""
    try:
        return _decode_record(batch, data, position, previous_delta)
    except IndexError:
        raise batch.corrupt_record(index, "the bytes end in the middle of it") from None
    except CorruptRecordError as error:
        raise batch.corrupt_record(index, error.message) from None


def _decode_record(
    batch: BatchHeader, data: bytes, position: int, previous_delta: int
) -> tuple[Record, int]:
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
    return Record(batch.base_offset + offset_delta, timestamp, key, value, headers), position


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
