"""Messages of Kafka 0.7, from bytes made by hand."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest

from ottla.record.compression import CompressionType, compress
from ottla.record.legacy_positional import encode_positional, positional_messages
from ottla.record.record import CorruptRecordError


def entry(payload: bytes, magic: int = 0, codec: int = 0) -> bytes:
    body = bytes([magic]) + (bytes([codec]) if magic else b"")
    body += struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def test_messages_of_both_magics_are_read():
    """The CRC covers the payload only, and the next position is 4 + N further."""
    data = entry(b"first") + entry(b"", 1) + entry(b"third", 1)
    found = list(positional_messages(data, 1000))

    assert [(m.position, m.next_position, m.magic, m.payload) for m in found] == [
        (1000, 1014, 0, b"first"),
        (1014, 1024, 1, b""),
        (1024, 1039, 1, b"third"),
    ]


def test_our_entries_are_those_of_the_description():
    """Length, magic, attributes in magic 1 only, CRC, payload."""
    assert encode_positional(b"abc", 0) == entry(b"abc")
    assert encode_positional(b"abc", 1, CompressionType.SNAPPY) == entry(b"abc", 1, 2)


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY])
def test_messages_inside_have_the_position_of_the_wrapper(codec):
    """A compressed set is one thing to whoever counts positions."""
    inner = entry(b"a") + entry(b"b", 1)
    data = entry(b"x") + entry(compress(codec, inner), 1, codec)
    plain, wrapper = positional_messages(data)

    assert plain.inner() == [plain]
    assert [(m.position, m.next_position, m.payload) for m in wrapper.inner()] == [
        (wrapper.position, len(data), b"a"),
        (wrapper.position, len(data), b"b"),
    ]


def test_partial_message_at_the_end_is_left_out():
    """The length in front shows that it is not all there."""
    data = entry(b"first") + entry(b"second", 1)

    for size in range(len(entry(b"first")), len(data)):
        assert [m.payload for m in positional_messages(data[:size])] == [b"first"]


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_of_a_payload_is_found(magic):
    """A flipped bit of the payload or of the CRC itself is an error."""
    data = entry(b"payload", magic)

    for bit in range(8 * (5 + magic), 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecordError, match="CRC-32"):
            list(positional_messages(damaged))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack(">i", 4) + bytes(4), "length 4 is below 5"),
        (struct.pack(">i", -1) + bytes(9), "length -1 is below 5"),
        (struct.pack(">i", 5) + b"\x01\x00\x00\x00\x00", "length 5 is below 6"),
        (entry(b"x", 2), "magic 2"),
        (entry(b"x", 1, 3), "codec 3"),
    ],
)
def test_bad_entries_are_refused(data, why):
    """Entries that the 0.7 format does not know are errors."""
    with pytest.raises(CorruptRecordError, match=why):
        list(positional_messages(data))


@pytest.mark.parametrize(
    "inner",
    [b"", entry(b"a")[:-1], entry(gzip.compress(entry(b"a")), 1, 1), entry(bytes(1_000_000))],
    ids=["empty", "cut off", "nested", "too large"],
)
def test_bad_compressed_sets_are_refused(inner):
    """Empty, cut off, nested, or far too large."""
    (wrapper,) = positional_messages(entry(gzip.compress(inner), 1, 1))

    with pytest.raises(CorruptRecordError):
        wrapper.inner(max_bytes=1000)
