"""Varints, UUIDs, tagged sections and records."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.wire import (
    SMALL_RECORDS_BYTES,
    RefusedError,
    append_records,
    long_uvarint,
    records_size,
    skip_tags,
    string_length_bytes,
    uuid_of,
    uvarint,
    uvarint_bytes,
)
from ottla.runtime import FileRegion
from ottla.testing import MemoryDisk

VARINTS = [
    (0, b"\0"),
    (1, b"\1"),
    (127, b"\x7f"),
    (128, b"\x80\1"),
    (300, b"\xac\2"),
    (16383, b"\xff\x7f"),
    (16384, b"\x80\x80\1"),
    (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("value", "data"), VARINTS)
def test_varint_has_seven_bits_in_a_byte(value: int, data: bytes) -> None:
    """The lowest first; all but the last byte have the high bit."""
    assert uvarint_bytes(value) == data
    assert uvarint(b"x" + data + b"x", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("value", "data"), [pair for pair in VARINTS if pair[0] > 127])
def test_varint_is_read_on_after_its_first_byte(value: int, data: bytes) -> None:
    """Codecs read the first byte themselves, it is mostly the only one."""
    assert long_uvarint(data, 1, data[0]) == (value, len(data))


def test_length_of_a_string_is_limited() -> None:
    """32767 bytes, of which the compact length is one more."""
    assert string_length_bytes(32768) == b"\x80\x80\2"
    with pytest.raises(RefusedError, match="32768 bytes is longer than 32767"):
        string_length_bytes(32769)


def test_uuid_is_made_once() -> None:
    """Topic ids come again with every request."""
    raw = bytes(range(16))

    assert uuid_of(raw) == UUID(bytes=raw)
    assert uuid_of(raw) is uuid_of(bytes(bytearray(raw)))


def test_section_of_more_tags_than_bytes_is_refused() -> None:
    """Each tag takes two bytes at least."""
    assert skip_tags(b"\2\0\0\0\0", 1, 2, 5, 9) == (7, 5)
    with pytest.raises(RefusedError, match="3 elements announced, but only 4 bytes follow"):
        skip_tags(b"\3\0\0\0\0", 1, 3, 5)


def test_records_size_counts_every_form() -> None:
    """Bytes-like, a region of a file, and lists of these."""
    file = MemoryDisk().open("/log", create=True)
    region = FileRegion(file, 10, 1000)

    assert records_size([b"ab", memoryview(b"cde"), [bytearray(4), region]]) == 1009


def test_small_records_are_copied_beside_their_neighbours() -> None:
    """One more part to send costs more than a copy."""
    parts: list[object] = []

    out = append_records(bytearray(b"head"), parts, b"x" * SMALL_RECORDS_BYTES)

    assert (parts, len(out)) == ([], 4 + SMALL_RECORDS_BYTES)


def test_large_records_become_parts_without_a_copy() -> None:
    """What came before is a part too, and what follows begins a new one."""
    parts: list[object] = []
    records, more = b"x" * 5000, memoryview(b"y" * 5000)

    out = append_records(bytearray(b"head"), parts, [records, more])

    assert [type(part) for part in parts] == [bytearray, bytes, memoryview]
    assert parts[1] is records
    assert parts[2] is more
    assert out == b""
