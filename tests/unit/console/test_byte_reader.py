"""Bytes of others are read within bounds."""

from __future__ import annotations

import pytest

from ottla.console.byte_reader import DEEPEST, FREE_ITEMS, ByteReader, hex_text


@pytest.mark.parametrize(
    ("data", "number"),
    [(b"\0", 0), (b"\x01", -1), (b"\x02", 1), (b"\x80\x01", 64), (b"\xff" * 9 + b"\1", -(1 << 63))],
)
def test_zigzag_numbers_are_read(data, number):
    """With their sign in the lowest bit."""
    reader = ByteReader(data)

    assert reader.zigzag() == number
    assert reader.is_over


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_number_that_does_not_end_is_refused(data):
    """As one of more than 64 bits is."""
    with pytest.raises(ValueError, match="bytes"):
        ByteReader(data).zigzag()


def test_bounds_are_those_of_the_bytes():
    """Of what is taken, of items, and of depth."""
    reader = ByteReader(b"ab")
    for count in (-1, 3, 1 << 60):
        with pytest.raises(ValueError, match="end before"):
            reader.take(count)
    for _ in range(FREE_ITEMS + 2):
        reader.count_item()
    with pytest.raises(ValueError, match="more items"):
        reader.count_item()

    def dive() -> None:
        with reader:
            dive()

    with pytest.raises(ValueError, match=f"deeper than {DEEPEST}"):
        dive()
    with reader:
        assert hex_text(reader.take(2)) == "0x6162"
