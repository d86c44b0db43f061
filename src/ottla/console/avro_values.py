"""Values of Avro 1.11 by the schema of their writer, without trust in their sender.

A schema becomes a function from a reader to a value; names of types are looked up when it runs, as
types may have themselves in them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.console.byte_reader import ByteReader, hex_text
from ottla.console.decoding import RawNumber

Read = Callable[[ByteReader], Any]
MOST_SCALE: Final = 10_000
FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def _nothing(_reader: ByteReader) -> None:
    """The value of null has no bytes."""


def _text(reader: ByteReader) -> str:
    return reader.take(reader.zigzag()).decode()


def _binary(reader: ByteReader) -> str:
    return hex_text(reader.take(reader.zigzag()))


PRIMITIVE: Final[dict[str, Read]] = {
    "null": _nothing,
    "boolean": lambda reader: reader.take(1) != b"\0",
    "int": ByteReader.zigzag,
    "long": ByteReader.zigzag,
    "float": lambda reader: FLOAT.unpack(reader.take(FLOAT.size))[0],
    "double": lambda reader: DOUBLE.unpack(reader.take(DOUBLE.size))[0],
    "bytes": _binary,
    "string": _text,
}


class AvroSchema:
    """A schema; ValueError for a text that is none, or that refers to schemas elsewhere."""

    def __init__(self, text: str) -> None:
        self._named: dict[str, Read] = {}
        self._used: set[str] = set()
        try:
            self._read = self._of(json.loads(text), "")
        except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise ValueError(f"this is no schema of Avro: {error!r}") from None
        if missing := self._used - self._named.keys():
            raise ValueError(f"the schema has no type {min(missing)}")

    def value_of(self, data: bytes) -> Any:
        """The value of some bytes; ValueError where they do not have this schema."""
        reader = ByteReader(data)
        found = self._read(reader)
        if not reader.is_over:
            raise ValueError("there are bytes behind the value")
        return found

    def _of(self, schema: Any, namespace: str) -> Read:
        if isinstance(schema, list):
            return _union([self._of(each, namespace) for each in schema])
        if isinstance(schema, str):
            return PRIMITIVE.get(schema) or self._reference(full_name(schema, namespace))
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._of(kind, namespace)
        if schema.get("logicalType") == "decimal" and kind == "bytes":
            return _decimal(schema, None)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema, kind, namespace)
        if kind == "array":
            return _blocks(self._of(schema["items"], namespace), list)
        if kind == "map":
            return _blocks(_pair(self._of(schema["values"], namespace)), dict)
        return self._of(kind, namespace)

    def _define(self, schema: Any, kind: str, namespace: str) -> Read:
        name = full_name(schema["name"], schema.get("namespace", namespace))
        if kind == "enum":
            read = _symbol([str(each) for each in schema["symbols"]])
        elif kind == "fixed":
            size = int(schema["size"])
            is_decimal = schema.get("logicalType") == "decimal"
            read = _decimal(schema, size) if is_decimal else _fixed(size)
        else:
            inner = name.rpartition(".")[0]
            read = _record([(str(e["name"]), self._of(e["type"], inner)) for e in schema["fields"]])
        self._named[name] = read
        return read

    def _reference(self, name: str) -> Read:
        self._used.add(name)

        def read(reader: ByteReader) -> Any:
            return self._named[name](reader)

        return read


def full_name(name: str, namespace: str | None) -> str:
    """The name of a type with its namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def decimal_text(unscaled: int, scale: int) -> str:
    """All digits of a decimal."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _union(branches: list[Read]) -> Read:
    def read(reader: ByteReader) -> Any:
        number = reader.zigzag()
        if not 0 <= number < len(branches):
            raise ValueError("a union has no such branch")
        return branches[number](reader)

    return read


def _decimal(schema: Any, size: int | None) -> Read:
    """A decimal in bytes of a fixed size, or of the size that stands before them."""
    scale = int(schema.get("scale", 0))
    if not 0 <= scale <= MOST_SCALE:
        raise ValueError(f"scale={scale}: must be from 0 to {MOST_SCALE}")

    def read(reader: ByteReader) -> RawNumber:
        data = reader.take(reader.zigzag() if size is None else size)
        return RawNumber(decimal_text(int.from_bytes(data, signed=True), scale))

    return read


def _symbol(symbols: list[str]) -> Read:
    def read(reader: ByteReader) -> str:
        number = reader.zigzag()
        if not 0 <= number < len(symbols):
            raise ValueError("an enum has no such symbol")
        return symbols[number]

    return read


def _fixed(size: int) -> Read:
    return lambda reader: hex_text(reader.take(size))


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(reader: ByteReader) -> dict[str, Any]:
        found = {}
        with reader:
            for name, of_field in fields:
                reader.count_item()
                found[name] = of_field(reader)
        return found

    return read


def _pair(value: Read) -> Read:
    return lambda reader: (_text(reader), value(reader))


def _blocks(item: Read, kind: Callable[[list[Any]], Any]) -> Read:
    """The items of a list or a map, which come in blocks; the last one is empty."""

    def read(reader: ByteReader) -> Any:
        found: list[Any] = []
        with reader:
            while count := reader.zigzag():
                if count < 0:
                    reader.zigzag()  # the bytes of the block, by which it could be passed over
                for _ in range(abs(count)):
                    reader.count_item()
                    found.append(item(reader))
        return kind(found)

    return read
