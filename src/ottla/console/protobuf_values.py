"""Values of Protocol Buffers by a descriptor file, without trust in their sender.

The file is what `protoc --include_imports --descriptor_set_out=FILE` writes. It is a message of
Protocol Buffers itself, of which only the parts are read that give fields their names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from ottla.console.byte_reader import DEEPEST, ByteReader, hex_text, signed_of
from ottla.console.decoding import PROTOBUF
from ottla.errors import ConfigError
from ottla.structs import NamedTuple

VARINT, FIXED_64, LENGTH, FIXED_32 = 0, 1, 2, 5
FRAME_BYTES: Final = 5
MESSAGE, ENUM, REPEATED = 11, 14, 3
LARGEST_FILE: Final = 16 * 1024 * 1024
Convert = Callable[[Any], Any]


def _signed(bits: int) -> Convert:
    return lambda raw: ((raw + (1 << (bits - 1))) % (1 << bits)) - (1 << (bits - 1))


def _unpacked(form: str) -> Convert:
    return lambda raw: struct.unpack(form, raw)[0]


def _symbol(names: dict[int, str]) -> Convert:
    return lambda raw: names.get(_signed(32)(raw), raw)


SCALARS: Final[dict[int, tuple[int, Convert]]] = {
    1: (FIXED_64, _unpacked("<d")),
    2: (FIXED_32, _unpacked("<f")),
    3: (VARINT, _signed(64)),
    4: (VARINT, int),
    5: (VARINT, _signed(32)),
    6: (FIXED_64, _unpacked("<Q")),
    7: (FIXED_32, _unpacked("<I")),
    8: (VARINT, bool),
    9: (LENGTH, bytes.decode),
    12: (LENGTH, hex_text),
    13: (VARINT, int),
    15: (FIXED_32, _unpacked("<i")),
    16: (FIXED_64, _unpacked("<q")),
    17: (VARINT, signed_of),
    18: (VARINT, signed_of),
}
"""The wire type and the value of the bytes of a type, by its number in a descriptor."""


class MessageField(NamedTuple):
    """A field of a message; `type_name` is that of its message or enum."""

    name: str
    type: int
    is_repeated: bool
    type_name: str


class MessageType(NamedTuple):
    """A message with its fields by their numbers; entries of maps are messages as well."""

    fields: dict[int, MessageField]
    is_map_entry: bool


class ProtobufTopics(NamedTuple):
    """Topics by a pattern whose values are one message of a file."""

    topics: re.Pattern[str]
    file: DescriptorFile
    message: str

    def value_of(self, data: bytes) -> tuple[str, Any]:
        """The kind and the value of some bytes; ValueError for other bytes.

        They may have the frame of a schema registry before them, which no message begins like.
        """
        if data[:1] != b"\0":
            return PROTOBUF, self.file.value_of(self.message, data, 0)
        reader = ByteReader(data)
        reader.take(FRAME_BYTES)
        for _ in range(reader.zigzag()):
            reader.zigzag()  # which message of the file it is: the option has said so
        return PROTOBUF, self.file.value_of(self.message, reader.rest(), 0)


def protobuf_topics(text: str) -> ProtobufTopics:
    """The topics of `PATTERN:FILE:MESSAGE`; ConfigError where the file has no such message."""
    pattern, _, rest = text.partition(":")
    path, colon, message = rest.rpartition(":")
    try:
        if not colon:
            raise ValueError("must be PATTERN:FILE:MESSAGE")
        with open(path, "rb") as file:
            found = DescriptorFile(file.read(LARGEST_FILE))
        if message not in found.messages:
            known = ", ".join(sorted(found.messages)[:10])
            raise ValueError(f"the file has no message {message}, but {known}")
        return ProtobufTopics(re.compile(pattern), found, message)
    except (OSError, ValueError, re.error) as error:
        raise ConfigError(f"--protobuf {text}: {error}") from None


class DescriptorFile:
    """The messages and enums of a descriptor file by their full names."""

    def __init__(self, data: bytes) -> None:
        """ValueError for bytes that are no such file."""
        self.messages: dict[str, MessageType] = {}
        self._enums: dict[str, dict[int, str]] = {}
        for file in _all(data, 1):
            package = _text(file, 2)
            for message in _all(file, 4):
                self._add(message, package, 0)
            for enum in _all(file, 5):
                self._add_enum(enum, package)
        if not self.messages:
            raise ValueError("it has no messages: protoc writes one with --descriptor_set_out")

    def _add(self, message: bytes, scope: str, depth: int) -> None:
        name = _full(scope, _text(message, 1))
        fields = {
            _number(each, 3): MessageField(
                _text(each, 1),
                _number(each, 5),
                _number(each, 4) == REPEATED,
                _text(each, 6).lstrip("."),
            )
            for each in _all(message, 2)
        }
        is_entry = any(_number(options, 7) for options in _all(message, 7))
        self.messages[name] = MessageType(fields, is_entry)
        for enum in _all(message, 4):
            self._add_enum(enum, name)
        if depth < DEEPEST:
            for nested in _all(message, 3):
                self._add(nested, name, depth + 1)

    def _add_enum(self, enum: bytes, scope: str) -> None:
        names = {_signed(32)(_number(each, 2)): _text(each, 1) for each in _all(enum, 2)}
        self._enums[_full(scope, _text(enum, 1))] = names

    def value_of(self, message: str, data: bytes, depth: int) -> dict[str, Any]:
        """The fields of a message; ValueError for bytes that are none."""
        if depth > DEEPEST or message not in self.messages:
            raise ValueError("a message is nested too deep, or of a type that the file has not")
        found: dict[str, Any] = {}
        for number, wire, raw in _fields(data):
            field = self.messages[message].fields.get(number)
            if field is None:
                found[str(number)] = hex_text(raw) if isinstance(raw, bytes) else raw
                continue
            values = self._values(field, wire, raw, depth)
            entry = self.messages.get(field.type_name)
            if entry is not None and entry.is_map_entry:
                into = found.setdefault(field.name, {})
                into |= {str(each.get("key", "")): each.get("value") for each in values}
            elif field.is_repeated:
                found.setdefault(field.name, []).extend(values)
            elif values:
                found[field.name] = values[-1]
        return found

    def _values(self, field: MessageField, wire: int, raw: Any, depth: int) -> list[Any]:
        """The value of a field; many where they are packed."""
        if field.type == MESSAGE:
            if wire != LENGTH:
                raise ValueError(f"{field.name} is no message")
            return [self.value_of(field.type_name, raw, depth + 1)]
        expected, convert = SCALARS.get(field.type, (VARINT, int))
        if field.type == ENUM:
            convert = _symbol(self._enums.get(field.type_name, {}))
        if wire == expected:
            return [convert(raw)]
        if wire != LENGTH or expected == LENGTH or not field.is_repeated:
            raise ValueError(f"{field.name} has another type")
        reader, found = ByteReader(raw), []
        while not reader.is_over:
            found.append(convert(_raw(reader, expected)))
        return found


def _raw(reader: ByteReader, wire: int) -> Any:
    if wire == VARINT:
        return reader.varint() % (1 << 64)
    if wire == LENGTH:
        return reader.take(reader.varint())
    if wire in (FIXED_64, FIXED_32):
        return reader.take(8 if wire == FIXED_64 else 4)
    raise ValueError("there is no such type on the wire")


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The number, the wire type and the bytes or the number of each field."""
    reader = ByteReader(data)
    while not reader.is_over:
        tag = reader.varint()
        if tag < 8:
            raise ValueError("no field has the number 0")
        yield tag >> 3, tag & 7, _raw(reader, tag & 7)


def _all(data: bytes, number: int) -> list[bytes]:
    return [raw for at, _, raw in _fields(data) if at == number and isinstance(raw, bytes)]


def _text(data: bytes, number: int) -> str:
    return b"".join(_all(data, number)[-1:]).decode()


def _number(data: bytes, number: int) -> int:
    found = [raw for at, _, raw in _fields(data) if at == number and isinstance(raw, int)]
    return found[-1] if found else 0


def _full(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
