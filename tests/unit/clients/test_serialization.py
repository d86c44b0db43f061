"""Serializers and deserializers."""

from __future__ import annotations

import pytest

from ottla.clients.serialization import (
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    SerializationError,
    StringDeserializer,
    StringSerializer,
    deserializer_of,
    serializer_of,
    to_bytes,
)
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("serializer", "deserializer", "value", "data"),
    [
        (StringSerializer, StringDeserializer, "blå", b"bl\xc3\xa5"),
        (JsonSerializer, JsonDeserializer, {"a": [1, "å"]}, b'{"a":[1,"\xc3\xa5"]}'),
        (IntegerSerializer, IntegerDeserializer, -2, b"\xff\xff\xff\xfe"),
        (LongSerializer, LongDeserializer, 258, b"\0\0\0\0\0\0\x01\x02"),
        (DoubleSerializer, DoubleDeserializer, 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
    ],
)
def test_values_survive_as_kafka_writes_them(serializer, deserializer, value, data):
    """The bytes are those of Kafka's serializers of the same name."""
    assert serializer_of("value.serializer", serializer)("t", value) == data
    assert deserializer_of("value.deserializer", deserializer)("t", data) == value


def test_any_callable_will_do():
    """A function of one value, an object with the method, or its class."""
    assert serializer_of("key.serializer", str.encode)("t", "a") == b"a"
    assert serializer_of("key.serializer", StringSerializer("latin-1"))("t", "å") == b"\xe5"
    assert deserializer_of("key.deserializer", bytes.decode)("t", b"a") == "a"
    assert serializer_of("key.serializer", None) is None


def test_null_stays_null():
    """A tombstone is not a value."""
    assert serializer_of("value.serializer", JsonSerializer)("t", None) is None
    assert deserializer_of("value.deserializer", JsonDeserializer)("t", None) is None


def test_failure_names_topic_and_value():
    """Whatever the function raises is told as one kind of error."""
    with pytest.raises(SerializationError, match="cannot serialize 1 of topic t: "):
        serializer_of("value.serializer", StringSerializer)("t", 1)
    with pytest.raises(SerializationError, match=r"cannot deserialize b'{' of topic t: "):
        deserializer_of("value.deserializer", JsonDeserializer)("t", b"{")


def test_setting_that_cannot_be_called_is_refused():
    """The error names the setting."""
    with pytest.raises(ConfigError, match=r"value\.serializer=7"):
        serializer_of("value.serializer", 7)


def test_bytes_and_text_need_no_serializer():
    """Text becomes UTF-8; other types are refused by name."""
    assert to_bytes("value", bytearray(b"a")) == b"a"
    assert to_bytes("value", "å") == b"\xc3\xa5"
    with pytest.raises(SerializationError, match="value 7 is a int; without a serializer"):
        to_bytes("value", 7)


class Letters(bytes):
    """As numpy.bytes_: bytes to isinstance, and not to compiled code."""


@pytest.mark.parametrize("given", [Letters(b"a"), memoryview(b"abc")[:1], bytearray(b"a")])
def test_what_is_sent_is_of_the_type_bytes(given):
    """A subclass of bytes is no exception, nor what a serializer returns."""
    key = serializer_of("key.serializer", lambda value: given)
    assert [type(to_bytes("value", given)), type(key("t", 1))] == [bytes, bytes]
    assert (to_bytes("value", given), key("t", 1)) == (b"a", b"a")


def test_text_that_has_no_bytes_is_refused():
    """Half of a surrogate pair is named before it gets into a batch."""
    with pytest.raises(SerializationError, match=r"value 'a\\ud800' cannot be written as UTF-8"):
        to_bytes("value", "a\ud800")
    with pytest.raises(SerializationError, match=r"key 7 is a int; .* a serializer must return"):
        serializer_of("key.serializer", lambda value: 7)("t", 1)
