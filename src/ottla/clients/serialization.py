"""Converts Python values to the bytes of a key or value, and back: Kafka's serializers and JSON.

A serializer is any callable `value -> bytes`, or an object with `serialize(topic, value)`; a
deserializer any callable `bytes -> value`, or an object with `deserialize(topic, data)`.
A class is instantiated first. None stays None: in Kafka it is a tombstone, not a value.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from ottla.errors import ConfigError, ErrorCode, KafkaError

Serialize = Callable[[str, Any], bytes | None]
Deserialize = Callable[[str, bytes], Any]


class SerializationError(KafkaError):
    """A key or value could not be turned into bytes, or its bytes into a value."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class StringSerializer:
    """Encodes text as UTF-8, or in another `encoding`."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, value: str) -> bytes:
        return value.encode(self.encoding)


class StringDeserializer:
    """Decodes text from UTF-8, or from another `encoding`."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def deserialize(self, topic: str, data: bytes) -> str:
        return str(data, self.encoding)


class JsonSerializer:
    """Encodes anything that the json module can write, without spaces, as UTF-8."""

    def serialize(self, topic: str, value: object) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class JsonDeserializer:
    """Decodes values that the json module can read."""

    def deserialize(self, topic: str, data: bytes) -> Any:
        return json.loads(data)


class _Number:
    """A number in network byte order, as Kafka's serializer of the same name writes it."""

    format: struct.Struct

    def serialize(self, topic: str, value: float) -> bytes:
        return self.format.pack(value)

    def deserialize(self, topic: str, data: bytes) -> Any:
        return self.format.unpack(data)[0]


class IntegerSerializer(_Number):
    """32-bit integers."""

    format = struct.Struct(">i")


class LongSerializer(_Number):
    """64-bit integers."""

    format = struct.Struct(">q")


class DoubleSerializer(_Number):
    """64-bit floating point numbers."""

    format = struct.Struct(">d")


IntegerDeserializer = IntegerSerializer
LongDeserializer = LongSerializer
DoubleDeserializer = DoubleSerializer


def serializer_of(key: str, setting: Any) -> Serialize | None:
    """The function behind the setting `key`; None where bytes pass as they are."""
    function = _function_of(key, setting, "serialize")
    if function is None:
        return None
    what, serialize = key.partition(".")[0], _explained(function, "serialize")

    def call(topic: str, value: Any) -> bytes | None:
        data = serialize(topic, value)
        return data if data is None or type(data) is bytes else to_bytes(what, data)

    return call


def deserializer_of(key: str, setting: Any) -> Deserialize | None:
    """The function behind the setting `key`; None where bytes pass as they are."""
    function = _function_of(key, setting, "deserialize")
    return None if function is None else _explained(function, "deserialize")


def _function_of(key: str, setting: Any, method: str) -> Callable[[str, Any], Any] | None:
    if setting is None:
        return None
    instance = setting() if isinstance(setting, type) else setting
    if hasattr(instance, method):
        function: Callable[[str, Any], Any] = getattr(instance, method)
        return function
    if callable(instance):
        return lambda topic, value: instance(value)
    raise ConfigError(f"{key}={setting!r}: must be a callable or have a method {method}")


def _explained(function: Callable[[str, Any], Any], verb: str) -> Callable[[str, Any], Any]:
    """The function with its exceptions turned into SerializationError; None stays None."""

    def call(topic: str, value: Any) -> Any:
        if value is None:
            return None
        try:
            return function(topic, value)
        except Exception as cause:  # the application's function may raise anything
            raise SerializationError(
                f"cannot {verb} {value!r} of topic {topic}: {cause}"
            ) from cause

    return call


def to_bytes(what: str, value: Any) -> bytes:
    """The bytes to send: bytes as they are, text as UTF-8.

    What a subclass of either, such as numpy's, adds to it is left behind: batches are of `bytes`.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return value if type(value) is bytes else bytes(memoryview(value))
    if isinstance(value, str):
        return encoded_text(what, value)
    raise SerializationError(
        f"{what} {value!r} is a {type(value).__name__}; "
        "without a serializer it must be bytes or str, and a serializer must return them"
    )


def encoded_text(what: str, text: str) -> bytes:
    """A text as UTF-8; SerializationError for one with half of a surrogate pair."""
    try:
        return str.encode(text)
    except UnicodeEncodeError as cause:
        raise SerializationError(f"{what} {text!r} cannot be written as UTF-8: {cause}") from None
