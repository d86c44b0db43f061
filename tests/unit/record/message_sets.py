"""Messages of magic 0 and 1 put together byte by byte from the description of the formats."""

from __future__ import annotations

import gzip
import struct
import zlib

NOW = 1_700_000_000_000


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = NOW,
    attributes: int = 0,
) -> bytes:
    """One entry of a message set."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += sized(key) + sized(value)
    crc = struct.pack(">I", zlib.crc32(body))
    return struct.pack(">qi", offset, len(crc + body)) + crc + body


def wrapper(
    offset: int, inner: bytes, *, magic: int = 1, attributes: int = 1, timestamp: int = NOW
):
    """A message whose value is a message set compressed with gzip."""
    value = gzip.compress(inner, mtime=0)
    return message(offset, None, value, magic=magic, attributes=attributes, timestamp=timestamp)
