"""Responses out of bytes, however they are cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import RemoteProtocolError
from ottla.network.response_reader import FIRST_FRAME_BYTES, SHARED_BYTES, ResponseReader


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def read(reader: ResponseReader, data: bytes) -> list[memoryview]:
    """The frames that come out when all of `data` has been received."""
    frames = []
    while data:
        buffer = reader.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        frames += reader.received(count)
        data = data[count:]
    return frames


@given(
    bodies=st.lists(st.integers(0, 2 * SHARED_BYTES), max_size=6),
    cuts=st.lists(st.integers(1, 2 * SHARED_BYTES), min_size=1, max_size=5),
)
def test_frames_are_the_same_however_the_bytes_are_cut(bodies: list[int], cuts: list[int]) -> None:
    """Small ones in the shared buffer, large ones in memory of their own."""
    expected = [bytes([size % 251]) * size for size in bodies]
    stream = b"".join(map(framed, expected))
    reader = ResponseReader()
    frames = []
    position = number = 0
    while position < len(stream):
        end = position + cuts[number % len(cuts)]
        frames += read(reader, stream[position:end])
        position = end
        number += 1

    assert frames == expected


def test_frames_may_come_one_byte_at_a_time() -> None:
    """The triad: whole and together is above, this is byte by byte, with a rest behind."""
    reader = ResponseReader()
    stream = framed(b"one") + framed(b"") + framed(b"three") + b"\0\0"
    frames = [frame for byte in stream for frame in read(reader, bytes([byte]))]

    assert frames == [b"one", b"", b"three"]


def test_frame_is_not_touched_by_what_comes_after_it() -> None:
    """Its memory belongs to the response."""
    reader = ResponseReader()
    (first,) = read(reader, framed(b"first"))
    (large,) = read(reader, framed(b"l" * 100_000))
    read(reader, framed(b"other") + framed(b"x" * 100_000))

    assert first == b"first"
    assert large == b"l" * 100_000


def test_frame_beyond_the_first_allocation_grows_as_bytes_come() -> None:
    """Something else on the port, such as HTTP, is not worth a gigabyte of memory."""
    reader = ResponseReader()
    read(reader, b"HTTP/1.1 400 Bad Request\r\n")
    assert len(reader.buffer()) <= FIRST_FRAME_BYTES

    body = bytes(range(256)) * (3 * FIRST_FRAME_BYTES // 256)
    (frame,) = read(ResponseReader(), framed(body))
    assert frame == body


def test_negative_size_is_refused() -> None:
    """There is no such frame."""
    with pytest.raises(RemoteProtocolError, match="a response of -1 bytes"):
        read(ResponseReader(), struct.pack(">i", -1))
