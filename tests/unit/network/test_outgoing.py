"""What is sent in which calls, when the socket takes all, a part, or nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ottla.network.outgoing import (
    ALL,
    COLD,
    FULL,
    MAX_COPIED_BYTES,
    MAX_QUEUED_PARTS,
    PART,
    READ_AHEAD_BYTES,
    SMALL_REGION_BYTES,
    Outgoing,
    TruncatedFileError,
)
from ottla.network.transport import send_read
from ottla.runtime import Buffer, File, FileRegion
from ottla.testing import MemoryDisk


class FakeTransport:
    """Takes `room` bytes, and keeps what it was given and how."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.sent = bytearray()
        self.calls: list[str] = []

    def fileno(self) -> int:
        return -1

    def recv_into(self, buffer: memoryview) -> int:
        raise BlockingIOError

    def send(self, data: Buffer) -> int:
        self.calls.append("send")
        return self._take(data)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        self.calls.append("send more" if more_follows else "send all")
        return self._take(b"".join(buffers))

    def send_file(self, file: File, position: int, count: int) -> int:
        return send_read(self.send, file, position, count)

    def close(self) -> None:
        self.room = 0

    def _take(self, data: Buffer) -> int:
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)


def region(content: bytes, position: int = 0, size: int | None = None) -> FileRegion:
    file = MemoryDisk().open("/file", create=True)
    file.pwrite(content, 0)
    return FileRegion(file, position, len(content) if size is None else size)


def test_one_buffer_takes_one_call() -> None:
    """By far the most frequent answer."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([b"answer"])

    assert outgoing.flush(transport, 1000) is ALL
    assert transport.calls == ["send"]
    assert not outgoing
    assert outgoing.bytes_in_memory == 0


def test_several_buffers_are_gathered_in_one_call() -> None:
    """Answers of a client that sends ahead leave together."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([b"one", memoryview(b"two")])
    outgoing.extend([b"three"])

    assert outgoing.flush(transport, 1000) is ALL
    assert transport.calls == ["send all"]
    assert bytes(transport.sent) == b"onetwothree"


def test_buffers_before_a_file_region_ask_the_kernel_to_wait() -> None:
    """The head of a fetch response shall not travel in a packet of its own."""
    outgoing, transport = Outgoing(), FakeTransport()
    records = bytes(SMALL_REGION_BYTES + 1)
    outgoing.extend([b"head", region(records), b"tail"])

    assert outgoing.flush(transport, 1 << 20) is ALL
    assert transport.calls == ["send more", "send", "send"]
    assert bytes(transport.sent) == b"head" + records + b"tail"


def test_small_file_region_leaves_in_one_call_with_what_stands_around_it() -> None:
    """Nobody is woken for a part of a small answer."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([b"head", region(b"records"), b"tail"])

    assert outgoing.flush(transport, 1000) is ALL
    assert transport.calls == ["send all"]
    assert bytes(transport.sent) == b"headrecordstail"


def test_very_many_small_file_regions_do_not_fill_the_memory() -> None:
    """What a peer that does not read has waiting for it stays in the files."""
    outgoing = Outgoing()
    part = region(bytes(SMALL_REGION_BYTES))
    outgoing.extend([part] * 1000)

    assert outgoing.bytes_in_memory == MAX_COPIED_BYTES


@pytest.mark.parametrize("room", range(1, 26))
def test_full_socket_loses_and_repeats_nothing(room: int) -> None:
    """Wherever the socket stops, the rest follows from there."""
    outgoing, transport = Outgoing(), FakeTransport(room)
    outgoing.extend([b"abc", b"defgh", region(b"0123456789", 2, 6), b"xyz", region(b"end")])
    while outgoing.flush(transport, 1000) is not ALL:
        assert outgoing
        transport.room += room

    assert bytes(transport.sent) == b"abcdefgh234567xyzend"
    assert outgoing.bytes_in_memory == 0


def test_socket_without_room_says_so() -> None:
    """Nothing is sent, everything stays."""
    outgoing, transport = Outgoing(), FakeTransport(room=0)
    outgoing.extend([b"answer"])

    assert outgoing.flush(transport, 1000) is FULL
    assert outgoing.bytes_in_memory == 6


def test_flush_stops_at_the_byte_limit_of_the_turn() -> None:
    """The rest of a large region has to wait, though the socket would take it."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([region(bytes(100_000)), b"tail"])

    assert outgoing.flush(transport, 40_000) is PART
    assert len(transport.sent) == 40_000
    assert outgoing.flush(transport, 40_000) is PART
    assert outgoing.flush(transport, 40_000) is ALL
    assert len(transport.sent) == 100_004


def test_region_beyond_the_end_of_its_file_is_an_error() -> None:
    """What is there is sent; then nothing can be right any more."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([region(b"0123", 2, 10)])
    assert outgoing.flush(transport, 1000) is FULL
    with pytest.raises(TruncatedFileError, match="/file ends before position 12"):
        outgoing.flush(transport, 1000)

    assert bytes(transport.sent) == b"23"


def test_queue_has_room_for_a_bounded_number_of_answers() -> None:
    """In bytes of memory, and in parts where those are in files."""
    by_bytes, by_parts = Outgoing(), Outgoing()
    by_bytes.extend([bytes(300_000)])
    by_parts.extend([region(b"x")] * (MAX_QUEUED_PARTS + 1))

    assert not by_bytes.has_room()
    assert not by_parts.has_room()
    by_parts.clear()
    assert by_parts.has_room()


def cold_region(size: int) -> FileRegion:
    """A region of a file that is on the disk alone."""
    disk = MemoryDisk(is_cold=True)
    file = disk.open("/file", create=True)
    file.pwrite(bytes(size), 0)
    return FileRegion(file, 0, size)


def test_file_region_that_is_not_cached_is_not_sent() -> None:
    """Before it stands what is in memory, which goes out; the rest waits until it has been read."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([b"head", cold_region(10)])

    assert outgoing.flush(transport, 1000) is COLD
    assert bytes(transport.sent) == b"head"
    wanted = outgoing.next_in_file()
    assert wanted is not None
    assert (wanted.position, wanted.size) == (0, 10)

    outgoing.note_cached(10)

    assert outgoing.flush(transport, 1000) is ALL
    assert bytes(transport.sent) == b"head" + bytes(10)


def test_large_cold_region_is_read_in_pieces() -> None:
    """What has been read is sent and the next piece asked for; the region after starts anew."""
    outgoing, transport = Outgoing(), FakeTransport()
    outgoing.extend([cold_region(READ_AHEAD_BYTES + 5), cold_region(7)])
    pieces = []

    while outgoing.flush(transport, 1 << 30) is COLD:
        wanted = outgoing.next_in_file()
        assert wanted is not None
        pieces.append((wanted.position, wanted.size))
        outgoing.note_cached(wanted.size)

    assert pieces == [(0, READ_AHEAD_BYTES), (READ_AHEAD_BYTES, 5), (0, 7)]
    assert len(transport.sent) == READ_AHEAD_BYTES + 12
