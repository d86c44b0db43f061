"""The loops over records in plain Python: always there, and the reference for the compiled ones.

They are tuned for CPython: one-byte and two-byte varints are read in place, and anything rarer goes
to `varint`. They also own the wording of every error: the compiled loops only say that a batch is
malformed, and `kernel` asks the plain ones what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

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

_SMALL = 8192
_VARINTS = [encode_varint(value) for value in range(_SMALL)]
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)
_new_record = tuple.__new__


def encode_records(records: Sequence[NewRecord]) -> tuple[Buffer, int, int]:
    """The records section of a batch, and the base and the maximum timestamp of its header."""
    if not records:
        return b"", NO_TIMESTAMP, NO_TIMESTAMP
    base_timestamp = max_timestamp = records[0][0]
    varints = _VARINTS
    parts: list[bytes] = []
    append = parts.append
    for offset_delta, (timestamp, key, value, headers) in enumerate(records):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        delta = timestamp - base_timestamp
        prefix = b"\x00%b%b%b%b" % (
            varints[delta] if 0 <= delta < _SMALL else encode_varint(delta),
            varints[offset_delta] if offset_delta < _SMALL else encode_varint(offset_delta),
            _NULL if key is None else _sized(key),
            _NULL
            if value is None
            else encode_varint(len(value))
            if len(value) >= _SMALL
            else varints[len(value)],
        )
        suffix = _NO_HEADERS if not headers else _encode_headers(headers)
        size = len(prefix) + len(suffix) + (0 if value is None else len(value))
        append(varints[size] if size < _SMALL else encode_varint(size))
        append(prefix)
        if value:
            append(value)
        append(suffix)
    return b"".join(parts), base_timestamp, max_timestamp


def _sized(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
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
    position, previous_delta = 0, -1
    try:
        for _ in range(batch.record_count):
            position, previous_delta = _decode_record(
                batch, data, position, previous_delta, records
            )
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


def _decode_record(
    batch: RecordBatch, data: bytes, position: int, previous_delta: int, records: list[Record]
) -> tuple[int, int]:
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
    return position, offset_delta


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
