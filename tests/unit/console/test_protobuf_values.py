"""Protocol Buffers by a descriptor file of protoc, and bytes that mean harm."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
from topics_of_records import send
from visitor import Visitor, visit

from ottla.console.byte_reader import DEEPEST
from ottla.console.protobuf_values import DescriptorFile, ProtobufTopics, protobuf_topics
from ottla.errors import ConfigError
from ottla.testing import InProcessBroker

SHOP = b64decode(
    "Cu8FCgpzaG9wLnByb3RvEgRzaG9wIrEFCgVPcmRlchIOCgJpZBgBIAEoA1ICaWQSEAoDYmlnGAIgASgEUgNiaWcS"
    "EgoEdXNlchgDIAEoCVIEdXNlchISCgRnaWZ0GAQgASgIUgRnaWZ0EiQKBnN0YXR1cxgFIAEoDjIMLnNob3AuU3Rh"
    "dHVzUgZzdGF0dXMSJgoFbGluZXMYBiADKAsyEC5zaG9wLk9yZGVyLkxpbmVSBWxpbmVzEi8KBmNvdW50cxgHIAMo"
    "CzIXLnNob3AuT3JkZXIuQ291bnRzRW50cnlSBmNvdW50cxIWCgZwYWNrZWQYCCADKAVSBnBhY2tlZBIWCgZhbW91"
    "bnQYCSABKAFSBmFtb3VudBISCgRwYXJ0GAogASgCUgRwYXJ0EhAKA3JhdxgLIAEoDFIDcmF3EhAKA2YzMhgMIAEo"
    "B1IDZjMyEhAKA3M2NBgNIAEoEFIDczY0EhQKBW1pbnVzGA4gASgFUgVtaW51cxIjCgZwYXJlbnQYDyABKAsyCy5z"
    "aG9wLk9yZGVyUgZwYXJlbnQSNgoJYnlfbnVtYmVyGBAgAygLMhkuc2hvcC5PcmRlci5CeU51bWJlckVudHJ5Ughi"
    "eU51bWJlchIUCgRsZWZ0GBEgASgJSABSBGxlZnQSFgoFcmlnaHQYEiABKAVIAFIFcmlnaHQaMAoETGluZRIQCgNz"
    "a3UYASABKAlSA3NrdRIWCgZjaGFuZ2UYAiABKBFSBmNoYW5nZRo5CgtDb3VudHNFbnRyeRIQCgNrZXkYASABKAlS"
    "A2tleRIUCgV2YWx1ZRgCIAEoBVIFdmFsdWU6AjgBGk0KDUJ5TnVtYmVyRW50cnkSEAoDa2V5GAEgASgFUgNrZXkS"
    "JgoFdmFsdWUYAiABKAsyEC5zaG9wLk9yZGVyLkxpbmVSBXZhbHVlOgI4AUIICgZjaG9pY2UqHwoGU3RhdHVzEgsK"
    "B1VOS05PV04QABIICgRQQUlEEAFiBnByb3RvMw=="
)
"""Of protoc 6.33, for a message shop.Order with a field of each kind."""
ORDER = b64decode(
    "CPv//////////wEQ////////////ARoEw6RubiABKAEyBQoBYRANMgMKAWI6BQoBeBABQg0B/v//////////AawC"
    "SQAAAAAAAPg/VQAAgD5aAgD/ZQcAAABp9/////////9w////////////AXoJCIGAgICAgIAQggEHCAQSAwoBepAB"
    "Aw=="
)
"""As Google's library for Python writes it."""
VALUE = {
    "id": -5,
    "big": 18446744073709551615,
    "user": "änn",
    "gift": True,
    "status": "PAID",
    "lines": [{"sku": "a", "change": -7}, {"sku": "b"}],
    "counts": {"x": 1},
    "packed": [1, -2, 300],
    "amount": 1.5,
    "part": 0.25,
    "raw": "0x00ff",
    "f32": 7,
    "s64": -9,
    "minus": -1,
    "parent": {"id": 9007199254740993},
    "by_number": {"4": {"sku": "z"}},
    "right": 3,
}


@pytest.fixture(scope="module")
def orders(tmp_path_factory) -> ProtobufTopics:
    """The topics whose values are orders."""
    file = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    file.write_bytes(SHOP)
    return protobuf_topics(f"orders.*:{file}:shop.Order")


def test_fields_of_each_type_are_read(orders):
    """Also behind the frame of a schema registry, with the place of the message in its file."""
    assert orders.value_of(ORDER) == ("protobuf", VALUE)
    for frame in (b"\0\0\0\0\1\0", b"\0\0\0\0\1\2\0"):
        assert orders.value_of(frame + ORDER) == ("protobuf", VALUE)
    assert orders.value_of(b"") == ("protobuf", {})


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x28\x63", {"status": 99}),
        (b"\x98\x06\x07", {"99": 7}),
        (b"\x9a\x06\x01\xff", {"99": "0xff"}),
        (b"\x40\x05\x40\x06", {"packed": [5, 6]}),
        (b"\x08\x01\x08\x02", {"id": 2}),
        (b"\x3a\x00", {"counts": {"": None}}),
    ],
)
def test_unusual_messages_are_read(orders, data, value):
    """Unknown fields and symbols by their numbers, lists that are not packed, the last of two."""
    assert orders.value_of(data)[1] == value


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",
        b"\x0a\x01a",
        b"\x1a\xff\xff\xff\xff\x0f",
        b"\x1a\x01\xff",
        b"\x32\x02\x0a",
        b"\x30\x01",
        b"\x0b",
        b"\x42\x01\x80",
        b"\0",
        b"\0\0\0\0\1\xfe\xff\xff\xff\x0f",
        b"\xff" * 60,
        b"{}",
    ],
)
def test_other_bytes_are_refused(orders, data):
    """Those that are cut, of another type, and texts."""
    with pytest.raises(ValueError, match=r"\w"):
        orders.value_of(data)


def test_message_is_not_too_deep(orders):
    """However often it has itself in it."""
    data = b""
    for _ in range(DEEPEST + 2):
        size = len(data)
        length = bytes([size & 0x7F | 0x80, size >> 7])
        data = b"\x7a" + length + data
    with pytest.raises(ValueError, match="too deep"):
        orders.value_of(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("orders", "PATTERN:FILE:MESSAGE"),
        ("orders:/nowhere/at.all:M", "No such file"),
        ("orders:FILE:shop.Nothing", r"no message shop.Nothing, but shop.Order, shop.Order"),
        ("(:FILE:shop.Order", "unterminated"),
    ],
)
def test_option_names_a_message_of_a_file(tmp_path: Path, text, words):
    """Else the reason is told."""
    file = tmp_path / "shop.desc"
    file.write_bytes(SHOP)
    with pytest.raises(ConfigError, match=words):
        protobuf_topics(text.replace("FILE:shop", f"{file}:shop"))


@pytest.mark.parametrize("data", [b"", b"\x0a\x00", b"syntax", b"\xff" * 100])
def test_file_that_protoc_has_not_written_is_refused(data):
    """As one without messages is."""
    with pytest.raises(ValueError, match=r"\w"):
        DescriptorFile(data)


def test_values_of_topics_are_shown(orders):
    """Of those that the pattern names; what is no message is shown as before."""
    with InProcessBroker() as broker:
        for topic in ("orders-a", "others"):
            broker.create_topic(topic, 1)
            send(broker, topic, (0, 1, None, b"\x08\x05", []), (0, 2, None, b"text", []))

        async def walk(visitor: Visitor) -> None:
            rows = (await visitor.get("/t/orders-a/records.json")).json["records"][::-1]
            assert [each["value"]["kind"] for each in rows] == ["protobuf", "text"]
            assert rows[0]["value"]["text"] == '{"id": 5}'
            rows = (await visitor.get("/t/others/records.json")).json["records"]
            assert {each["value"]["kind"] for each in rows} == {"text"}

        visit(broker.bootstrap_servers, walk, protobuf=(orders,))
