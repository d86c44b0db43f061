"""Zig-zag varints against the table of the format."""

import pytest

from ottla.record.record import CorruptRecordError, decode_varint, decode_varlong, encode_varint

TABLE = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
LONG_TABLE = [
    *TABLE,
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "wire"), LONG_TABLE)
def test_encode_varint_writes_the_bytes_of_the_table(value, wire):
    """The encoding is that of the description."""
    assert encode_varint(value).hex() == wire


@pytest.mark.parametrize(("value", "wire"), TABLE)
def test_decode_varint_reads_the_bytes_of_the_table(value, wire):
    """What is behind the number is left alone."""
    data = bytes.fromhex(wire)

    assert decode_varint(b"\xff" + data + b"\x00", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("value", "wire"), LONG_TABLE)
def test_decode_varlong_reads_the_bytes_of_the_table(value, wire):
    """A varlong has room for 64 bits."""
    assert decode_varlong(bytes.fromhex(wire), 0) == (value, len(wire) // 2)


def test_decode_varint_accepts_needless_bytes():
    """Java reads a number with empty leading groups, and so do we, within the five bytes."""
    assert decode_varint(bytes.fromhex("8280808000"), 0) == (1, 5)


@pytest.mark.parametrize("wire", ["808080808000", "ffffffffff01"])
def test_decode_varint_refuses_more_than_five_bytes(wire):
    """A sixth byte cannot belong to an int32."""
    with pytest.raises(CorruptRecordError, match="more than 5 bytes"):
        decode_varint(bytes.fromhex(wire), 0)


def test_decode_varint_refuses_more_than_32_bits():
    """The fifth byte has room for four bits."""
    with pytest.raises(CorruptRecordError, match="32 bits"):
        decode_varint(bytes.fromhex("ffffffff1f"), 0)


def test_decode_varlong_refuses_more_than_64_bits():
    """The tenth byte has room for one bit."""
    with pytest.raises(CorruptRecordError, match="64 bits"):
        decode_varlong(bytes.fromhex("ffffffffffffffffff03"), 0)


@pytest.mark.parametrize("wire", ["", "80", "ffff"])
def test_decode_varint_tells_when_the_bytes_end(wire):
    """The caller knows how to say where they ended."""
    with pytest.raises(IndexError):
        decode_varint(bytes.fromhex(wire), 0)
