"""Frames out of bytes, however they are cut, and how much memory that may take."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import RemoteProtocolError
from ottla.network.frame_buffer import GROWTH, MIN_OWN_BYTES, BufferPool, FrameBuffer

MIB = 1 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def receive(frames: FrameBuffer, data: bytes) -> int:
    """Receive as the processor does: into an own buffer or a borrowed one; how much was taken."""
    if frames.is_empty():
        data = data[:65_536]
        arena = bytearray(len(data) + 7)
        arena[3 : 3 + len(data)] = data
        frames.feed(memoryview(arena), 3, 3 + len(data))
        return len(data)

    def take(target: memoryview) -> int:
        count = min(len(target), len(data))
        target[:count] = data[:count]
        return count

    count = frames.fill(take, 1)
    assert count is not None
    return count


def read(frames: FrameBuffer, data: bytes) -> list[bytes]:
    """The frames that come out when all of `data` has been received."""
    found = []
    while data:
        data = data[receive(frames, data) :]
        while (frame := frames.next_frame()) is not None:
            found.append(bytes(frame))
        frames.settle()
    return found


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    cuts=st.lists(st.integers(1, 200), min_size=1),
)
def test_frames_are_the_same_however_the_bytes_are_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    """Whole, byte by byte, or several at once: what comes out is what was put in."""
    stream = b"".join(map(framed, bodies))
    frames = FrameBuffer(MIB, BufferPool())
    found = []
    position = number = 0
    while position < len(stream):
        end = position + cuts[number % len(cuts)]
        found += read(frames, stream[position:end])
        position = end
        number += 1

    assert found == bodies
    assert frames.owned_bytes == 0


def test_own_buffer_receives_no_byte_beyond_the_frame() -> None:
    """So that a large frame is the only thing in it, and nothing has to be moved."""
    frames = FrameBuffer(MIB, BufferPool())
    read(frames, framed(b"x" * 1000)[:600])

    assert len(frames.target()) == 404


@pytest.mark.parametrize("sent", [1, 3, 4, 100, 10_000, 200_000])
def test_memory_is_a_small_multiple_of_what_has_come(sent: int) -> None:
    """A declared size of 64 MiB counts for nothing."""
    frames = FrameBuffer(64 * MIB, BufferPool())
    read(frames, (struct.pack(">i", 64 * MIB) + bytes(200_000))[:sent])

    assert frames.owned_bytes <= max(MIN_OWN_BYTES, 2 * GROWTH * sent)


def test_whole_frames_that_were_not_taken_are_kept() -> None:
    """A muted connection: its requests wait, the bytes behind them as well."""
    frames = FrameBuffer(MIB, BufferPool())
    receive(frames, framed(b"one") + framed(b"two") + framed(b"three")[:6])
    assert bytes(frames.next_frame() or b"") == b"one"
    frames.settle()

    assert frames.has_frame()
    assert bytes(frames.next_frame() or b"") == b"two"
    assert not frames.has_frame()
    frames.settle()
    assert read(frames, framed(b"three")[6:]) == [b"three"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_size_out_of_range_is_refused(size: int) -> None:
    """The text names the size and the limit; `has_frame` sees that there is something to say."""
    frames = FrameBuffer(1000, BufferPool())
    receive(frames, struct.pack(">i", size))

    assert frames.has_frame()
    with pytest.raises(RemoteProtocolError, match=f"a request of {size} bytes.*1 to 1000"):
        frames.next_frame()


def test_buffer_of_a_large_frame_is_used_again() -> None:
    """The next large frame goes into the same memory, from its first growth on."""
    pool = BufferPool()
    frames = FrameBuffer(MIB, pool)
    read(frames, framed(bytes(300_000)))
    pooled = pool.pooled_bytes
    assert pooled >= 300_000
    read(frames, framed(bytes(300_000))[:100])

    assert frames.owned_bytes >= 300_000
    assert pool.pooled_bytes == pooled - frames.owned_bytes
    frames.clear()
    assert pool.pooled_bytes == pooled


def test_pool_keeps_no_more_than_its_limit() -> None:
    """The pool keeps no buffers above its limit, and none that are too small or too large."""
    pool = BufferPool(max_bytes=MIB)
    for size in (100, 8 * MIB, MIB // 2, MIB // 2, MIB // 2):
        pool.give(bytearray(size))

    assert pool.pooled_bytes == MIB


def test_pool_gives_the_smallest_buffer_that_suits() -> None:
    """A larger one is left for whom it may concern; a smaller one is better than none."""
    pool = BufferPool()
    for size in (MIB, MIB // 4, MIB // 2):
        pool.give(bytearray(size))

    assert len(pool.take(1000, 400_000)) == MIB // 2
    assert len(pool.take(1000, 3 * MIB)) == MIB
    assert len(pool.take(1000, 3 * MIB)) == MIB // 4
    assert len(pool.take(1000, 3 * MIB)) == 1000
