"""Bytes as printable text, by the names of Kafka's deserializers and decoders."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from ottla.cli.command_error import CommandError, UsageError

Decode = Callable[[bytes], bytes]

AS_THEY_ARE: Final = ("string", "bytes", "bytearray", "bytebuffer", "default")
NUMBERS: Final = {
    "short": Struct(">h"),
    "integer": Struct(">i"),
    "int": Struct(">i"),
    "long": Struct(">q"),
    "float": Struct(">f"),
    "double": Struct(">d"),
}


def short_name(name: str) -> str:
    """`long` for org.apache.kafka.common.serialization.LongDeserializer."""
    last = name.rpartition(".")[2].lower()
    return last.removesuffix("deserializer").removesuffix("decoder")


def decoder(name: str | None) -> Decode | None:
    """What turns bytes into text for printing; None where they are printed as they are."""
    if not name or short_name(name) in AS_THEY_ARE:
        return None
    number = NUMBERS.get(short_name(name))
    if number is None:
        raise UsageError(
            f"there is no deserializer '{name}'; there are string, bytes, {', '.join(NUMBERS)}"
        )
    return _number_decoder(number, short_name(name))


def text_decoder(name: str) -> Callable[[bytes], str]:
    """Bytes as text that fits a line of a dump: `bytes` shows hexadecimal digits."""
    if short_name(name) in ("bytes", "bytearray", "bytebuffer", "default"):
        return bytes.hex
    decode = decoder(name)
    if decode is None:
        return lambda data: data.decode("utf-8", "replace")
    return lambda data: decode(data).decode()


def _number_decoder(number: Struct, name: str) -> Decode:
    def decode(data: bytes) -> bytes:
        if len(data) != number.size:
            raise CommandError(f"a {name} has {number.size} bytes, this record has {len(data)}")
        value: Any = number.unpack(data)[0]
        return str(value).encode()

    return decode
