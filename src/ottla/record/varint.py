"""Zig-zag variable-length integers, as used inside records.

A varint holds an int32 in at most 5 bytes, a varlong an int64 in at most 10. Seven bits to a byte,
least significant first; zig-zag puts the sign into the lowest bit, so that -1 takes one byte.
"""

from __future__ import annotations

from ottla.record.record import CorruptRecordError

VARINT_MAX_BYTES = 5
VARLONG_MAX_BYTES = 10


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


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """An int32 and the position after it; IndexError where the data end too early."""
    return _decode(data, position, VARINT_MAX_BYTES, 32)


def decode_varlong(data: bytes, position: int) -> tuple[int, int]:
    """An int64 and the position after it; IndexError where the data end too early."""
    return _decode(data, position, VARLONG_MAX_BYTES, 64)


def _decode(data: bytes, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
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
