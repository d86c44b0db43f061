"""The records section of a batch, made of records in plain Python; see `kernel`.

Varints of up to 13 bits, which are nearly all, are looked up.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.record.record import INT64_MAX, INT64_MIN, NewRecord, encode_varint
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    from typing_extensions import Buffer

SMALL = 8192
# The first and the second byte of the varints of 64 to 8191, which repeat every 8192. Each process
# builds them.
LOW_BYTES = bytes(range(0x80, 0x100, 2)) * (SMALL // 64)
HIGH_BYTES = b"".join(bytes((high,)) * 64 for high in range(SMALL // 64))
# The varints of 0 to 8191, in one byte and in two.
VARINTS = [bytes((raw,)) for raw in range(0, 0x80, 2)]
_PAIRS = bytearray(2 * SMALL)
_PAIRS[::2], _PAIRS[1::2] = LOW_BYTES, HIGH_BYTES
VARINTS += struct.unpack("2s" * (SMALL - 64), _PAIRS[2 * 64 :])
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


def encode_records(records: Sequence[NewRecord]) -> tuple[Buffer, int, int]:
    """The records section of a batch, and the base and the maximum timestamp of its header."""
    if not records:
        return b"", NO_TIMESTAMP, NO_TIMESTAMP
    base_timestamp = max_timestamp = records[0][0]
    parts: list[bytes] = []
    append, varints, small = parts.append, VARINTS, SMALL
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
    return VARINTS[size] if size < SMALL else encode_varint(size)


def _sized(data: bytes) -> bytes:
    return _size(data) + data


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    parts = [b""]
    for key, value in headers:
        parts.append(_sized(key.encode()))
        parts.append(_NULL if value is None else _sized(value))
    parts[0] = encode_varint(len(parts) // 2)
    return b"".join(parts)
