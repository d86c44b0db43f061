"""Values of MessagePack (its specification of 2017), without trust in their sender.

Libraries make room for as many items as a list says that it has, before any of them is there: a
few bytes would cost hundreds of megabytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from ottla.console.byte_reader import ByteReader, hex_text
from ottla.console.decoding import MSGPACK, written

if TYPE_CHECKING:
    from collections.abc import Callable

FIXED: Final[dict[int, Any]] = {0xC0: None, 0xC2: False, 0xC3: True}
NUMBERS: Final = {
    **{0xCC + index: (1 << index, False) for index in range(4)},
    **{0xD0 + index: (1 << index, True) for index in range(4)},
}
"""Integers by their first byte: how many bytes they have, and whether they have a sign."""
FLOATS: Final = {0xCA: struct.Struct(">f"), 0xCB: struct.Struct(">d")}
TEXTS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
"""The bytes of the length; so in the next ones."""
BINARIES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
FIXED_EXTENSIONS: Final = {0xD4 + index: 1 << index for index in range(5)}
LISTS: Final = {0xDC: 2, 0xDD: 4}
MAPS: Final = {0xDE: 2, 0xDF: 4}


def msgpack_of(data: bytes) -> tuple[str, Any]:
    """The kind, and the map or the list that some bytes are; ValueError for all others.

    Any single byte is a value of MessagePack, so that only these two are told from other bytes.
    """
    first = data[0] if data else 0
    if not 0x80 <= first <= 0x9F and first not in LISTS and first not in MAPS:
        raise ValueError("this is no map and no list of MessagePack")
    reader = ByteReader(data)
    found = _value(reader)
    if not reader.is_over:
        raise ValueError("there are bytes behind the value")
    return MSGPACK, found


def _value(reader: ByteReader) -> Any:
    reader.count_item()
    first = reader.number(1)
    if first < 0x80 or first >= 0xE0:
        return first if first < 0x80 else first - 0x100
    if first < 0xC0:
        return _short(reader, first)
    if first in FIXED:
        return FIXED[first]
    if first in NUMBERS:
        size, is_signed = NUMBERS[first]
        return reader.number(size, signed=is_signed)
    if first in FLOATS:
        return FLOATS[first].unpack(reader.take(FLOATS[first].size))[0]
    for sizes, read in LONG:
        if first in sizes:
            return read(reader, reader.number(sizes[first]))
    if first in FIXED_EXTENSIONS:
        return _extension(reader, FIXED_EXTENSIONS[first])
    raise ValueError("no value of MessagePack begins so")


def _short(reader: ByteReader, first: int) -> Any:
    """A map, a list or a text whose length is in the first byte."""
    if first < 0x90:
        return _map(reader, first & 0x0F)
    return _list(reader, first & 0x0F) if first < 0xA0 else _text(reader, first & 0x1F)


def _text(reader: ByteReader, size: int) -> str:
    data = reader.take(size)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return hex_text(data)


def _binary(reader: ByteReader, size: int) -> str:
    return hex_text(reader.take(size))


def _extension(reader: ByteReader, size: int) -> dict[str, Any]:
    return {"type": reader.number(1, signed=True), "data": hex_text(reader.take(size))}


def _list(reader: ByteReader, count: int) -> list[Any]:
    with reader:
        return [_value(reader) for _ in range(count)]


def _map(reader: ByteReader, count: int) -> dict[str, Any]:
    with reader:
        found = {}
        for _ in range(count):
            name = _value(reader)
            found[name if isinstance(name, str) else written(name)] = _value(reader)
        return found


LONG: Final[tuple[tuple[dict[int, int], Callable[[ByteReader, int], Any]], ...]] = (
    (TEXTS, _text),
    (BINARIES, _binary),
    (EXTENSIONS, _extension),
    (LISTS, _list),
    (MAPS, _map),
)
