"""Message sets of Kafka 0.7 as its clients make and read them."""

from __future__ import annotations

import asyncio
import struct
import zlib

import pytest

from ottla.clients.legacy import Message
from ottla.clients.legacy.broker_clients import LinkSettings
from ottla.clients.legacy.first_design_link import (
    REQUEST_BYTES,
    REQUEST_SETS,
    FirstDesignLink,
    PositionalMessageSet,
    encode_set,
    in_requests,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.first_design import ToAppend
from ottla.record.compression import CompressionType
from ottla.structs import Node, TopicPartition

GZIP, SNAPPY = CompressionType.GZIP, CompressionType.SNAPPY


def entry(payload: bytes) -> bytes:
    body = b"\1\0" + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def read(data: bytes, offset: int = 0) -> list[tuple[bytes, int, int]]:
    found = PositionalMessageSet(data, offset)
    return [(each.message.payload, each.offset, each.next_offset) for each in found]


def test_messages_are_sent_with_magic_1():
    """The layout of 0.7 with attributes; a payload may be empty."""
    assert encode_set([Message(b"a"), Message(b"")], CompressionType.NONE) == entry(b"a") + entry(
        b""
    )
    assert encode_set([], GZIP) == b""


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_of_a_compressed_set_only_the_last_message_leads_behind_it(codec):
    """Who stops in the middle of it, and commits, reads all of it again: nothing is lost."""
    data = encode_set([Message(b"a"), Message(b"b"), Message(b"c")], codec)

    assert read(data + entry(b"d"), 100) == [
        (b"a", 100, 100),
        (b"b", 100, 100),
        (b"c", 100, 100 + len(data)),
        (b"d", 100 + len(data), 100 + len(data) + 11),
    ]


def test_message_that_is_cut_off_is_left_out():
    """The set knows where to go on."""
    data = entry(b"a") + entry(b"bb")
    for size in range(11, len(data)):
        found = PositionalMessageSet(data[:size], 50)
        assert [each.message.payload for each in found] == [b"a"]
        assert (found.next_offset, found.valid_bytes, found.needed_bytes) == (61, 11, 0)
    assert PositionalMessageSet(data, 50).next_offset == 50 + len(data)
    assert read(b"") == []


def test_message_larger_than_the_fetch_is_an_error_that_says_how_large_it_is():
    """Else a reader would ask for the same bytes for ever."""
    data = entry(b"x" * 100)
    for size in range(1, len(data)):
        found = PositionalMessageSet(data[:size], 0)
        assert found.needed_bytes == (len(data) if size >= 4 else 4)
        with pytest.raises(KafkaError) as refused:
            list(found)
        assert refused.value.error is ErrorCode.INVALID_FETCH_SIZE


@pytest.mark.parametrize("damage", [0, 4, 6, 10])
def test_damaged_message_is_an_invalid_message(damage):
    """Its length, its magic, its CRC, its payload; those before it are read."""
    data = bytearray(entry(b"a"))
    data[damage] ^= 0x80
    found = iter(PositionalMessageSet(entry(b"first") + data, 0))

    assert next(found).message.payload == b"first"
    with pytest.raises(KafkaError) as refused:
        next(found)
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE


def test_error_of_the_answer_is_raised_when_the_set_is_read():
    """As that of today's sets."""
    error = KafkaError.of(ErrorCode.OFFSET_OUT_OF_RANGE, "gone")
    found = PositionalMessageSet(b"", 7, error)

    assert (found.error_code, found.next_offset) == (1, 7)
    with pytest.raises(KafkaError, match="gone"):
        list(found)


@pytest.mark.parametrize(
    ("message", "codec", "error"),
    [
        (Message(b"a", b"key"), CompressionType.NONE, ErrorCode.INVALID_RECORD),
        (Message(None), CompressionType.NONE, ErrorCode.INVALID_RECORD),
        (Message(b"a"), CompressionType.ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_what_the_first_design_cannot_keep_is_refused_before_it_is_sent(message, codec, error):
    """Keys, nulls, and codecs of later are not dropped in silence."""
    with pytest.raises(KafkaError) as refused:
        encode_set([message], codec)
    assert refused.value.error is error


def test_requests_are_not_larger_than_a_broker_takes():
    """By bytes and by sets; a set that is larger goes alone."""

    def sizes(*lengths: int) -> list[int]:
        sets = [ToAppend("t", 0, memoryview(bytes(length))) for length in lengths]
        return [len(part) for part in in_requests(sets)]

    assert sizes() == []
    assert sizes(1, 1) == [2]
    assert sizes(REQUEST_BYTES, 1, 1) == [1, 2]
    assert sizes(*[0] * (REQUEST_SETS + 1)) == [REQUEST_SETS, 1]


class WrongBroker(asyncio.Protocol):
    """It answers each request with the same bytes."""

    answer = b""
    connection_count = 0

    def connection_made(self, transport):
        self.transport = transport
        WrongBroker.connection_count += 1

    def data_received(self, data):
        self.transport.write(self.answer)


SETTINGS = LinkSettings("test", 5_000, 1_000)


@pytest.mark.parametrize(
    "answer",
    ["00000000", "00000001 00", "ffffffff", "00000006 0000 00000009", "00000006 0000 0000000c"],
)
def test_answer_that_is_none_is_an_error_of_the_network(runtime, answer):
    """The connection is closed, and the next request has a new one."""
    WrongBroker.answer, WrongBroker.connection_count = bytes.fromhex(answer), 0
    runtime.network.serve("kafka", 9091, WrongBroker)
    link = FirstDesignLink(runtime, Node(0, "kafka", 9091), SETTINGS)
    two = {TopicPartition("t", number): (0, 100) for number in (0, 1)}
    for call in (
        lambda: link.offsets_before(TopicPartition("t", 0), -1, 1),
        lambda: link.fetch(two, 0, 0),
    ):
        with pytest.raises(KafkaError) as refused:
            runtime.scheduler.run(call())
        assert refused.value.error is ErrorCode.NETWORK_EXCEPTION
    assert WrongBroker.connection_count == 2


def test_broker_that_does_not_answer_or_is_not_there_is_told_in_time(runtime):
    """By the timeouts of the settings."""
    link = FirstDesignLink(runtime, Node(0, "kafka", 9091), SETTINGS)
    with pytest.raises(KafkaError, match="cannot connect"):
        runtime.scheduler.run(link.offsets_before(TopicPartition("t", 0), -1, 1))
    WrongBroker.answer = b""
    runtime.network.serve("kafka", 9091, WrongBroker)
    with pytest.raises(KafkaError, match="within 5000 ms"):
        runtime.scheduler.run(link.offsets_before(TopicPartition("t", 0), -1, 1))
    link.close()
    with pytest.raises(KafkaError, match="was closed"):
        runtime.scheduler.run(link.offsets_before(TopicPartition("t", 0), -1, 1))
