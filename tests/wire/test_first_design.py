"""Requests and answers of Kafka 0.7, byte by byte by hand as its design describes them."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, RemoteProtocolError
from ottla.protocol.first_design import (
    MAX_PARTS,
    RequestType,
    ToAppend,
    ToFind,
    ToRead,
    decode_answer,
    decode_multi_answer,
    decode_offsets_answer,
    decode_request,
    encode_answer_head,
    encode_fetch,
    encode_offsets,
    encode_offsets_answer,
    encode_produce,
)

MESSAGE = bytes.fromhex("00000006 00 e8b7be43 61")  # length 6, magic 0, CRC of "a", "a"
PAGES = "0005 7061676573"
REQUESTS = {
    "produce": (
        f"0000001b 0000 {PAGES} 00000002 0000000a {MESSAGE.hex()}",
        RequestType.PRODUCE,
        [ToAppend("pages", 2, MESSAGE)],
    ),
    "produce anywhere": (
        f"00000011 0000 {PAGES} ffffffff 00000000",
        RequestType.PRODUCE,
        [ToAppend("pages", -1, b"")],
    ),
    "multi-produce": (
        f"00000028 0003 0002 {PAGES} 00000000 0000000a {MESSAGE.hex()} 0001 78 00000001 00000000",
        RequestType.MULTI_PRODUCE,
        [ToAppend("pages", 0, MESSAGE), ToAppend("x", 1, b"")],
    ),
    "fetch": (
        f"00000019 0001 {PAGES} 00000000 0000000100000002 00100000",
        RequestType.FETCH,
        [ToRead("pages", 0, 2**32 + 2, 1048576)],
    ),
    "multi-fetch": (
        f"0000002e 0002 0002 {PAGES} 00000000 0000000000000000 00000400"
        "0001 78 00000003 000000000000000a 00000001",
        RequestType.MULTI_FETCH,
        [ToRead("pages", 0, 0, 1024), ToRead("x", 3, 10, 1)],
    ),
    "offsets": (
        f"00000019 0004 {PAGES} 00000001 ffffffffffffffff 0000000a",
        RequestType.OFFSETS,
        [ToFind("pages", 1, -1, 10)],
    ),
}


def encode(type_: RequestType, parts: list) -> bytes:
    """The request that a client makes of these parts."""
    if type_ is RequestType.OFFSETS:
        return encode_offsets(*parts)
    is_produce = type_ in (RequestType.PRODUCE, RequestType.MULTI_PRODUCE)
    return (encode_produce if is_produce else encode_fetch)(parts)


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_of_the_first_design_are_these_bytes(name):
    """Size, type, topic with its length, partition: no version, no correlation id, no client id."""
    text, type_, parts = REQUESTS[name]
    data = bytes.fromhex(text)

    assert encode(type_, parts) == data
    assert int.from_bytes(data[:4]) == len(data) - 4
    assert decode_request(data[4:]) == (type_, parts)


@pytest.mark.parametrize("name", REQUESTS)
def test_request_of_the_first_design_that_is_cut_off_or_too_long_is_refused(name):
    """At each of its bytes, and with one too many."""
    frame = bytes.fromhex(REQUESTS[name][0])[4:]

    for wrong in (*(frame[:size] for size in range(len(frame))), frame + b"\0"):
        with pytest.raises(RemoteProtocolError):
            decode_request(wrong)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"0005 {PAGES} 00000000 0000000000000000 00000001", "type 5"),
        (f"ffff {PAGES} 00000000 0000000000000000 00000001", "type -1"),
        (f"0000 {PAGES} 00000000 ffffffff", "-1 bytes"),
        (f"0000 {PAGES} 00000000 7fffffff 61", "2147483647 bytes"),
        ("0001 ffff 00000000 0000000000000000 00000001", "-1 bytes"),
        ("0001 0001 ff 00000000 0000000000000000 00000001", "UTF-8"),
        ("0002 ffff", "-1 parts"),
        (f"0003 {MAX_PARTS + 1:04x}", f"{MAX_PARTS + 1} parts"),
    ],
)
def test_request_of_the_first_design_with_a_hostile_size_is_refused(text, words):
    """Nothing is allocated for what it only announces."""
    with pytest.raises(RemoteProtocolError, match=words):
        decode_request(bytes.fromhex(text))


def test_multi_requests_of_nothing_are_valid():
    """A count of 0 is a count."""
    assert decode_request(bytes.fromhex("0002 0000")) == (RequestType.MULTI_FETCH, [])
    assert decode_request(bytes.fromhex("0003 0000")) == (RequestType.MULTI_PRODUCE, [])


def test_fetch_answer_layout_is_length_error_code_and_messages():
    """Total length 4, error code 2, message 1 to n: no other field (MessageSetSend)."""
    answer = encode_answer_head(len(MESSAGE)) + MESSAGE

    assert answer == bytes.fromhex("0000000c 0000") + MESSAGE
    assert decode_answer(answer[4:]) == (ErrorCode.NONE, MESSAGE)
    refusal = encode_answer_head(0, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert refusal == bytes.fromhex("00000002 0001")
    assert decode_answer(refusal[4:]) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


def test_multi_fetch_answer_layout_is_a_head_and_whole_fetch_answers():
    """Total length 4, error code 2, then n answers of fetch (MultiMessageSetSend)."""
    one = encode_answer_head(len(MESSAGE)) + MESSAGE
    other = encode_answer_head(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer = encode_answer_head(len(one) + len(other)) + one + other

    assert answer == bytes.fromhex("00000018 0000 0000000c 0000") + MESSAGE + bytes.fromhex(
        "00000002 0003"
    )
    error, body = decode_answer(answer[4:])
    assert error is ErrorCode.NONE
    assert decode_multi_answer(body, 2) == [
        (ErrorCode.NONE, MESSAGE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b""),
    ]


def test_offsets_answer_layout_is_a_count_and_offsets():
    """Of 8 bytes each, behind the head that all answers have."""
    answer = encode_offsets_answer([2**32, 0])

    assert answer == bytes.fromhex("00000016 0000 00000002 0000000100000000 0000000000000000")
    assert decode_offsets_answer(decode_answer(answer[4:])[1]) == [2**32, 0]


@pytest.mark.parametrize("text", ["", "00", "00000001", "7fffffff 0000000000000000"])
def test_answer_of_the_first_design_that_is_cut_off_is_refused(text):
    """A client does not wait for, or make room for, what is not there."""
    body = memoryview(bytes.fromhex(text))
    for decode in (lambda: decode_offsets_answer(body), lambda: decode_multi_answer(body, 1)):
        with pytest.raises(RemoteProtocolError):
            decode()
    with pytest.raises(RemoteProtocolError):
        decode_answer(b"\0")
