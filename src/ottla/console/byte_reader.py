"""Reads values from bytes of others: each step is bounded by the bytes that there are."""

from __future__ import annotations

from typing import Final

DEEPEST: Final = 64
FREE_ITEMS: Final = 1_000
"""Items may have no bytes of their own, such as null in Avro: so many more than bytes are taken."""
LONGEST_VARINT: Final = 10


class ByteReader:
    """A place in some bytes; ValueError where they are too few, too many items or too deep."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._items_left = FREE_ITEMS + len(data)
        self._depth = 0

    @property
    def is_over(self) -> bool:
        """Whether all bytes were read."""
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise ValueError("the bytes end before the value")
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, count: int, *, signed: bool = False) -> int:
        """A number of so many bytes, the highest one first."""
        return int.from_bytes(self.take(count), signed=signed)

    def rest(self) -> bytes:
        """All bytes that were not read."""
        return self.take(len(self._data) - self._at)

    def zigzag(self) -> int:
        """A signed number of variable length, as Avro and Protocol Buffers have it."""
        return signed_of(self.varint())

    def varint(self) -> int:
        """A number of variable length, the lowest bits first."""
        found = 0
        for index in range(LONGEST_VARINT):
            byte = self.number(1)
            found |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return found
        raise ValueError("a number has too many bytes")

    def count_item(self) -> None:
        """Count an item of a list, a map or a record."""
        self._items_left -= 1
        if self._items_left < 0:
            raise ValueError("there are more items than bytes")

    def __enter__(self) -> ByteReader:
        """Go into a value that has others in it."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"values are nested deeper than {DEEPEST}")
        return self

    def __exit__(self, *_error: object) -> None:
        self._depth -= 1


def signed_of(zigzag: int) -> int:
    """The signed number for which another one stands: 0, -1, 1, -2 and so on."""
    return (zigzag >> 1) ^ -(zigzag & 1)


def hex_text(data: bytes) -> str:
    """Bytes within a value, as text."""
    return f"0x{data.hex()}"
