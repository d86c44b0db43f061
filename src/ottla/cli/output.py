"""Results as a command prints them.

Records by the formatters of Kafka's console consumer, and rows as Kafka's text, as a table for
people, or as JSON for programs.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.group_records import group_line, offset_line
from ottla.cli.options import word_bytes
from ottla.cli.terminal import TURNING, escape_of

if TYPE_CHECKING:
    from ottla.record.consumer_record import ConsumerRecord as Record

logger = logging.getLogger(__name__)


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
    """The function that turns bytes into text for printing; None: they are printed as they are."""
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


TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
CONTROL: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{TURNING}]")
LINE_CONTROL: Final = re.compile(f"[\x00-\x1f\x7f-\x9f{TURNING}]")
"""Characters on which a terminal acts, or that turn text round: in records, which have tabs and
lines, and in names, which have none."""


class MessageFormatter(ABC):
    """Writes records; `properties` are those of `--property`.

    With `for_screen` control characters are escaped, so that no terminal acts on them.
    """

    def __init__(self, properties: Mapping[str, str], *, for_screen: bool = False) -> None:
        self.properties = properties
        self.for_screen = for_screen

    @abstractmethod
    def write(self, record: Record, out: BinaryIO) -> None: ...

    def shown(self, data: bytes) -> bytes:
        """The bytes as they are, or as text that is safe on a screen."""
        return visible(data) if self.for_screen else data


class DefaultMessageFormatter(MessageFormatter):
    """The value, after the other parts that were asked for, in Kafka's order:

    timestamp, partition, offset, headers, key, value; separated by key.separator
    """

    def __init__(self, properties: Mapping[str, str], *, for_screen: bool = False) -> None:
        super().__init__(properties, for_screen=for_screen)
        self.key_separator = word_bytes(properties.get("key.separator", "\t"))
        self.line_separator = word_bytes(properties.get("line.separator", "\n"))
        self.headers_separator = word_bytes(properties.get("headers.separator", ","))
        self.null_literal = word_bytes(properties.get("null.literal", "null"))
        self.decode_key = decoder(properties.get("key.deserializer"))
        self.decode_value = decoder(properties.get("value.deserializer"))
        self.decode_header = decoder(properties.get("headers.deserializer"))
        self.parts = self._parts(properties)
        is_value = list(self.parts) == ["print.value"]
        self.is_plain = is_value and self.decode_value is None and not for_screen

    def _parts(self, properties: Mapping[str, str]) -> dict[str, Callable[[Record], bytes]]:
        every: dict[str, Callable[[Record], bytes]] = {
            "print.timestamp": lambda record: timestamp_text(record).encode(),
            "print.partition": lambda record: b"Partition:%d" % record.partition,
            "print.offset": lambda record: b"Offset:%d" % record.offset,
            "print.headers": self._headers,
            "print.key": lambda record: self._text(self.decode_key, record.key),
            "print.value": lambda record: self._text(self.decode_value, record.value),
        }
        return {
            name: part
            for name, part in every.items()
            if _is_true(properties.get(name, "true" if name == "print.value" else "false"))
        }

    def write(self, record: Record, out: BinaryIO) -> None:
        if self.is_plain:
            value = record.value
            out.write((self.null_literal if value is None else value) + self.line_separator)
        elif self.parts:
            fields = [part(record) for part in self.parts.values()]
            out.write(self.key_separator.join(fields) + self.line_separator)

    def _headers(self, record: Record) -> bytes:
        return (
            self.headers_separator.join(
                self.shown(key.encode()) + b":" + self._text(self.decode_header, value)
                for key, value in record.headers
            )
            or b"NO_HEADERS"
        )

    def _text(self, decode: Decode | None, data: bytes | None) -> bytes:
        if data is None:
            return self.null_literal
        return self.shown(data if decode is None else decode(data))


class LoggingMessageFormatter(DefaultMessageFormatter):
    """The default formatter, which also logs each record (--log-level INFO shows that)."""

    def write(self, record: Record, out: BinaryIO) -> None:
        super().write(record, out)
        logger.info(
            "%s, key:%s, value:%s",
            timestamp_text(record),
            _utf8(record.key),
            _utf8(record.value),
        )


class NoOpMessageFormatter(MessageFormatter):
    """Writes nothing: the records are only counted."""

    def write(self, record: Record, out: BinaryIO) -> None:
        pass


class OffsetsMessageFormatter(MessageFormatter):
    """Committed offsets, for reading __consumer_offsets: `[group,topic,partition]::value`."""

    def write(self, record: Record, out: BinaryIO) -> None:
        line = offset_line(record.key, record.value)
        if line is not None:
            out.write(self.shown(one_line(line).encode()) + b"\n")


class GroupMetadataMessageFormatter(MessageFormatter):
    """Groups and their members, for reading __consumer_offsets: `group::value`."""

    def write(self, record: Record, out: BinaryIO) -> None:
        line = group_line(record.key, record.value)
        if line is not None:
            out.write(self.shown(one_line(line).encode()) + b"\n")


FORMATTERS: Final[dict[str, type[MessageFormatter]]] = {
    "default": DefaultMessageFormatter,
    "logging": LoggingMessageFormatter,
    "noop": NoOpMessageFormatter,
    "offsets": OffsetsMessageFormatter,
    "groupmetadata": GroupMetadataMessageFormatter,
}


def formatter(
    name: str, properties: Mapping[str, str], *, for_screen: bool = False
) -> MessageFormatter:
    """The formatter of a name like `default` or `kafka.tools.DefaultMessageFormatter`."""
    short = name.rpartition(".")[2].rpartition("$")[2].removesuffix("MessageFormatter")
    found = FORMATTERS.get(short.lower())
    if found is None:
        raise UsageError(f"there is no formatter '{name}'; there are {', '.join(FORMATTERS)}")
    return found(properties, for_screen=for_screen)


def visible(data: bytes) -> bytes:
    """UTF-8 text with control characters as `\\x1b`; anything else as hexadecimal digits."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return b"0x" + data.hex().encode()
    return CONTROL.sub(lambda found: escape_of(found[0]), text).encode()


def one_line(text: str) -> str:
    """A text as a part of a line: characters that would begin another line are escaped as well."""
    return LINE_CONTROL.sub(lambda found: escape_of(found[0]), text)


def timestamp_text(record: Record) -> str:
    """`CreateTime:1700000000000`, or that there is none."""
    if record.timestamp_ms < 0:
        return "NO_TIMESTAMP"
    return f"{TIMESTAMP_TYPES[record.timestamp_type]}:{record.timestamp_ms}"


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _utf8(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "replace")
