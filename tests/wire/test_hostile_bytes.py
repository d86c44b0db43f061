"""Bytes that end early, go on too long, lie about lengths or are noise, for every message."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
from breadth import examples, some

from ottla.errors import RemoteProtocolError
from ottla.protocol.__main__ import messages
from ottla.protocol.decoder import DecoderSource
from ottla.protocol.fetch import FetchRequest, ForgottenTopic
from ottla.protocol.header import decode_request_header, encode_request
from ottla.protocol.message import Message, Request, Response, decode, encode
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.wire import MAX_ELEMENTS, MAX_TAGGED_FIELDS, uvarint_bytes

CASES = [
    pytest.param(cls, version, id=f"{name}-v{version}")
    for name, cls in messages().items()
    for version in range(cls.min_version, cls.max_version + 1)
]
# Of versions of a message that are read by the same code, the first: to be lied to about lengths.
READERS = list(
    {
        DecoderSource(*case.values).text(): case  # the last one stays
        for case in reversed(CASES)
    }.values()
)
# As an int32: 2**31 - 1, 2**24 and -2. As varints: 2**32 - 1, and one that never ends.
LIES = (b"\x7f\xff\xff\xff", b"\1\0\0\0", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x0f", b"\xff" * 9)


def refused(cls: type[Message], version: int, data: bytes) -> bool:
    """Whether the bytes are refused, by name; anything but a RemoteProtocolError escapes."""
    try:
        decode(cls, version, data)
    except RemoteProtocolError as error:
        return f"{cls.__name__} v{version}" in str(error)
    return False


def peak_of(cls: type[Message], version: int, data: bytes) -> int:
    """How much more memory was traced than before, at most, while these bytes were read.

    For each message by itself: what the collector has not freed of those before does not count.
    """
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    refused(cls, version, data)
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_message_is_read_whole_or_not_at_all(cls: type[Message], version: int, fill: Any) -> None:
    """Cut at any byte it is refused; whole, it is itself again, also before a byte too many.

    Only what is stored or embedded, and has no frame around it, must end with its last field.
    """
    message = fill(cls, version, 1, longest=20)
    data = encode(message, version)

    assert encode(decode(cls, version, data), version) == data
    if issubclass(cls, Request | Response) or cls.reads_newer:
        assert encode(decode(cls, version, data + b"\0"), version) == data
    else:
        assert refused(cls, version, data + b"\0")
    assert all(refused(cls, version, data[:length]) for length in range(len(data)))


@pytest.mark.parametrize(("cls", "version"), some(READERS))
def test_lying_lengths_do_no_harm(cls: type[Message], version: int, fill: Any) -> None:
    """Lengths and counts that are not true are refused, or are read as something else.

    Memory is traced, at five times the cost, where the lie is the last thing that is read: what
    it is a count of is not there, so all that is taken is taken on its word.
    """
    data = encode(fill(cls, version, 2, longest=10), version)
    step = len(data) // 60 + 1
    places = [(position, lie) for lie in LIES for position in range(0, len(data), step)]
    for position, lie in places:
        refused(cls, version, data[:position] + lie + data[position + len(lie) :])
    tracemalloc.start()
    try:
        peaks = [peak_of(cls, version, data[:position] + lie) for position, lie in places]
    finally:
        tracemalloc.stop()

    assert max(peaks, default=0) < 1_000_000


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_damaged_bytes_are_refused_or_read(cls: type[Message], version: int, fill: Any) -> None:
    """Flipped bits and noise never raise anything but RemoteProtocolError."""
    draw = random.Random(f"{cls.__name__} {version}")
    data = encode(fill(cls, version, 3, longest=20), version)

    for _ in range(examples(40)):
        damaged = bytearray(data or b"\0")
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        refused(cls, version, bytes(damaged))
        refused(cls, version, draw.randbytes(draw.randrange(40)))


@pytest.mark.parametrize(
    ("cls", "version"), [case for case in CASES if case.values[1] in case.values[0].flexible]
)
def test_unknown_tagged_fields_are_skipped(cls: type[Message], version: int, fill: Any) -> None:
    """A newer peer may add tagged fields, of any size, to a version that we know."""
    message = fill(cls, version, 4)
    for field in cls.fields:
        if field.tag is not None:
            setattr(message, field.name, getattr(cls(), field.name))
    data = encode(message, version)
    assert data[-1:] == b"\0"
    tags = b"\2" + b"\x7f\0" + uvarint_bytes(70000) + uvarint_bytes(300) + bytes(300)

    known = decode(cls, version, data[:-1] + tags)

    assert encode(known, version) == data


@pytest.mark.parametrize("version", [11, 12], ids=["fixed count", "compact count"])
def test_arrays_have_a_limit_of_elements(version: int) -> None:
    """Kafka 4.4 reads a million elements and no more, however many bytes follow."""

    def fetch(count: int) -> bytes:
        forgotten = ForgottenTopic(topic="t", partitions=[7] * count)
        return encode(FetchRequest(forgotten_topics_data=[forgotten]), version)

    known = decode(FetchRequest, version, fetch(MAX_ELEMENTS))
    assert len(known.forgotten_topics_data[0].partitions) == MAX_ELEMENTS
    data = fetch(MAX_ELEMENTS + 1)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError) as refusal:
            decode(FetchRequest, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert refusal.value.message == (
        f"FetchRequest v{version}: forgotten_topics_data.partitions: "
        "1000001 elements announced, but at most 1000000 are read"
    )
    assert peak < 100_000


def test_arrays_of_structs_have_a_limit_of_elements() -> None:
    """Each would become an object: the count is refused before the first."""
    data = struct.pack(">i", MAX_ELEMENTS + 1) + bytes(2 * (MAX_ELEMENTS + 1))
    with pytest.raises(RemoteProtocolError, match="MetadataRequest v1: topics: 1000001 elements"):
        decode(MetadataRequest, 1, data)


@pytest.mark.parametrize("cls", [MetadataRequest, FetchRequest], ids=["no known tag", "known tags"])
def test_tagged_sections_have_a_limit_of_fields(cls: type[Message]) -> None:
    """Kafka 4.4 reads ten thousand unknown tagged fields and no more."""
    data = encode(cls(), 12)
    assert data[-1:] == b"\0"

    def tagged(count: int) -> bytes:
        return data[:-1] + uvarint_bytes(count) + b"\x7f\0" * count

    assert encode(decode(cls, 12, tagged(MAX_TAGGED_FIELDS)), 12) == data
    with pytest.raises(RemoteProtocolError, match="10001 tagged fields announced, but at most"):
        decode(cls, 12, tagged(MAX_TAGGED_FIELDS + 1))


def test_tagged_section_of_a_header_has_a_limit_of_fields() -> None:
    """The header is read before anything else of a request is known."""
    frame = encode_request(12, 1, "", MetadataRequest())[4:]
    head, section, body = frame[:10], frame[10:11], frame[11:]
    assert section == b"\0", "behind key, version, correlation id and the empty client id"
    many = uvarint_bytes(MAX_TAGGED_FIELDS + 1) + b"\x7f\0" * (MAX_TAGGED_FIELDS + 1)

    with pytest.raises(RemoteProtocolError, match="header: tagged fields: 10001 tagged fields"):
        decode_request_header(head + many + body)
