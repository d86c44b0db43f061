"""Converters: between the values of records and the bytes that stand in Kafka.

A converter has two ways, `from_connect_data` and `to_connect_data`, for keys, values and headers
alike. This file has the contract and the simple converters of Kafka; `json_converter` has the one
for JSON. None is null bytes in all of them, and the other way round. A value that does not fit is a
DataError: a record that is bad, not a connector that is.
"""

from __future__ import annotations

import codecs
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.rule import Rule, one_of
from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    DataError,
    Schema,
    SchemaAndValue,
    SchemaType,
    shown,
)
from ottla.connect.value_text import from_text, simple_text, to_text

_PACKAGE: Final = "org.apache.kafka.connect"
NOTHING: Final = SchemaAndValue(None, None)
"""What null bytes stand for where a converter has no schema for them."""


class ConverterSettings(ConfigTable):
    """The settings of all converters."""

    converter_type: str = config_key(
        default="value",
        rule=one_of("key", "value", "header"),
        importance=LOW,
        doc="What the converter is used for; the worker sets it.",
    )


class Converter(ABC):
    """Values to bytes and back, for one worker or connector. It keeps no state between records."""

    Settings: ClassVar[type[ConfigTable]] = ConverterSettings
    kafka_class: ClassVar[str] = ""
    """The class of Java that it stands for."""
    version: ClassVar[str] = ""
    """Left empty it is that of the package which it comes from."""

    def __init__(self, settings: ConfigTable | None = None) -> None:
        self.settings: Any = settings if settings is not None else self.Settings()

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Converter:
        """A converter with these settings, without their prefix (`value.converter.`)."""
        return cls(cls.Settings.parse(properties))

    @abstractmethod
    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """The bytes for a value; DataError if it has none."""

    @abstractmethod
    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The value that the bytes stand for; DataError if they stand for none."""

    def close(self) -> None:
        """Release the converter's resources; most have none."""


def _is_encoding(name: str) -> bool:
    try:
        codecs.lookup(name)
    except LookupError:
        return False
    return True


class StringConverterSettings(ConverterSettings):
    """The settings of StringConverter."""

    converter_encoding: str = config_key(
        default="UTF-8",
        rule=Rule("be the name of an encoding that Python knows", _is_encoding),
        importance=HIGH,
        doc="How characters are written as bytes.",
    )


class StringConverter(Converter):
    """Text as it is; other values as Java's toString has them: `true`, `1.5`, `[1, 2]`, `{a=1}`.

    Bytes that are no text are an error, where Kafka would replace them silently.
    """

    Settings = StringConverterSettings
    kafka_class = f"{_PACKAGE}.storage.StringConverter"

    def __init__(self, settings: ConfigTable | None = None) -> None:
        super().__init__(settings)
        self._encoding = codecs.lookup(self.settings.converter_encoding).name

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        text = value if isinstance(value, str) else java_string(value, schema)
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"value={shown(text)}: must have a form in {self._encoding}") from error

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(_OPTIONAL_STRING, None)
        try:
            return SchemaAndValue(_OPTIONAL_STRING, data.decode(self._encoding))
        except UnicodeDecodeError as error:
            raise DataError(
                f"topic {topic}: bytes {shown(data)} must be {self._encoding} text; "
                "ByteArrayConverter takes any bytes"
            ) from error


_OPTIONAL_STRING: Final = STRING.as_optional()


def java_string(value: Any, schema: Schema | None = None) -> str:
    """A value as toString makes it: `[1, 2]`, `{a=1}`, `Struct{a=1}`; dates as in ISO 8601."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        raise DataError(f"value={shown(bytes(value))}: must not be bytes; use ByteArrayConverter")
    if isinstance(value, list | tuple):
        items = schema.items if schema else None
        return f"[{', '.join(java_string(item, items) for item in value)}]"
    if not isinstance(value, dict):
        return simple_text(value, schema)
    if schema is not None and schema.type is SchemaType.STRUCT:
        pairs = [
            f"{name}={java_string(value[name], field)}"
            for name, field in schema.by_name.items()
            if value.get(name) is not None
        ]
        return f"Struct{{{','.join(pairs)}}}"
    keys, values = (schema.keys, schema.items) if schema else (None, None)
    pairs = [f"{java_string(key, keys)}={java_string(value[key], values)}" for key in value]
    return f"{{{', '.join(pairs)}}}"


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    kafka_class = f"{_PACKAGE}.converters.ByteArrayConverter"

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not SchemaType.BYTES:
            raise DataError(f"topic {topic}: schema {schema} must be bytes for ByteArrayConverter")
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise DataError(f"value={shown(value)}: must be bytes for ByteArrayConverter")

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        return SchemaAndValue(_OPTIONAL_BYTES, data)


_OPTIONAL_BYTES: Final = BYTES.as_optional()


class NumberConverter(Converter):
    """Numbers of one width, big-endian, as Kafka's serializers write them."""

    schema: ClassVar[Schema]
    layout: ClassVar[struct.Struct]

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        self.schema.validate(value)
        try:
            return self.layout.pack(value)
        except (struct.error, OverflowError) as error:
            raise DataError(f"value={shown(value)}: must be {self.schema}") from error

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(self.schema, None)
        if len(data) != self.layout.size:
            raise DataError(
                f"topic {topic}: bytes {shown(data)} must be {self.layout.size} for {self.schema}"
            )
        return SchemaAndValue(self.schema, self.layout.unpack(data)[0])


class ShortConverter(NumberConverter):
    """Two bytes."""

    kafka_class = f"{_PACKAGE}.converters.ShortConverter"
    schema = INT16.as_optional()
    layout = struct.Struct(">h")


class IntegerConverter(NumberConverter):
    """Four bytes."""

    kafka_class = f"{_PACKAGE}.converters.IntegerConverter"
    schema = INT32.as_optional()
    layout = struct.Struct(">i")


class LongConverter(NumberConverter):
    """Eight bytes."""

    kafka_class = f"{_PACKAGE}.converters.LongConverter"
    schema = INT64.as_optional()
    layout = struct.Struct(">q")


class FloatConverter(NumberConverter):
    """Four bytes of IEEE 754."""

    kafka_class = f"{_PACKAGE}.converters.FloatConverter"
    schema = FLOAT32.as_optional()
    layout = struct.Struct(">f")


class DoubleConverter(NumberConverter):
    """Eight bytes of IEEE 754."""

    kafka_class = f"{_PACKAGE}.converters.DoubleConverter"
    schema = FLOAT64.as_optional()
    layout = struct.Struct(">d")


class BooleanConverter(Converter):
    """One byte, 0 or 1."""

    kafka_class = f"{_PACKAGE}.converters.BooleanConverter"
    schema: Final = BOOLEAN.as_optional()

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type is not SchemaType.BOOLEAN:
            raise DataError(f"topic {topic}: schema {schema} must be boolean for BooleanConverter")
        self.schema.validate(value)
        return None if value is None else bytes([value])

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data not in (None, b"\x00", b"\x01"):
            raise DataError(f"topic {topic}: bytes {shown(data)} must be one byte, 0 or 1")
        return SchemaAndValue(self.schema, None if data is None else data == b"\x01")


class SimpleHeaderConverter(Converter):
    """Headers as text, whose type is guessed when it is read (`value_text`).

    Bytes that are no text are left as bytes.
    """

    Settings = ConfigTable
    kafka_class = f"{_PACKAGE}.storage.SimpleHeaderConverter"

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else to_text(value, schema).encode()

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NOTHING
        try:
            return from_text(data.decode())
        except UnicodeDecodeError:
            return SchemaAndValue(BYTES, data)
