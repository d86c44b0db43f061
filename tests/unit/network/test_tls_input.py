"""Records from a socket to OpenSSL: all of them, and some at a time."""

from __future__ import annotations

import struct

import pytest

from ottla.network.tls_input import HEAD_BYTES, MAX_RECORDS, TlsInput

SCRATCH = 64 * 1024


def record(body: bytes, kind: int = 23) -> bytes:
    """The body as one record, as if it were encrypted."""
    return struct.pack(">BHH", kind, 0x0303, len(body)) + body


class Socket:
    """Gives what has come, `size` bytes of it at a time."""

    def __init__(self, data: bytes, size: int = SCRATCH) -> None:
        self.data, self.size, self.has_ended = data, size, False

    def receive(self, target: memoryview) -> int:
        if not self.data and not self.has_ended:
            raise BlockingIOError
        taken = self.data[: min(self.size, len(target))]
        self.data = self.data[len(taken) :]
        target[: len(taken)] = taken
        return len(taken)


def handed_on(socket: Socket) -> list[bytes]:
    """Each portion, until nothing is left."""
    source, portions = TlsInput(socket.receive), []
    while source.pull(memoryview(bytearray(SCRATCH))):
        assert source.is_ahead or not source.bio.pending
        portions.append(source.bio.read())
    return portions


def record_count(data: bytes) -> int:
    """How many records begin in whole records."""
    count = 0
    while data:
        data = data[HEAD_BYTES + struct.unpack_from(">3xH", data)[0] :]
        count += 1
    return count


def test_records_without_end_are_handed_on_some_at_a_time() -> None:
    """OpenSSL works off all that it has, and a new key takes longer than a kilobyte of data."""
    keys = record(bytes(22)) * 2000
    portions = handed_on(Socket(keys))

    assert b"".join(portions) == keys
    assert {record_count(each) for each in portions} == {MAX_RECORDS}


def test_full_records_are_handed_on_as_they_were_read() -> None:
    """A read has few of them: large requests take no longer than without the bound."""
    data = record(bytes(16_000)) * 12
    portions = handed_on(Socket(data))

    assert b"".join(portions) == data
    assert len(portions) == -(-len(data) // SCRATCH)


@pytest.mark.parametrize("size", range(1, 40))
def test_reads_of_any_size_keep_the_bytes_and_the_bound(size: int) -> None:
    """Headers and records end in the middle of reads."""
    data = b"".join(record(bytes(length)) for length in (0, 1, 3, 22, 40, 300) * 5)
    portions = handed_on(Socket(data, size))

    assert b"".join(portions) == data


def test_bytes_that_are_no_tls_reach_openssl() -> None:
    """Whose error ends the connection; none of them can stand for the length of a long record."""
    text = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
    portions = handed_on(Socket(text))

    assert b"".join(portions) == text[: len(text) // HEAD_BYTES * HEAD_BYTES]
    assert max(map(len, portions)) <= MAX_RECORDS * HEAD_BYTES


def test_end_is_handed_on_behind_all_records() -> None:
    """It is ahead, as no poller tells of it again."""
    socket = Socket(record(b"last"))
    socket.has_ended = True
    source, scratch = TlsInput(socket.receive), memoryview(bytearray(SCRATCH))
    assert source.pull(scratch)
    assert not source.bio.eof
    assert source.bio.read() == record(b"last")
    assert not source.is_ahead

    assert source.pull(scratch)
    assert source.is_ahead
    assert source.bio.read() == b""


CHANGE_CIPHER, ALERT = 20, 21


@pytest.mark.parametrize("size", [1, 7, SCRATCH])
def test_encrypted_alert_is_the_end(size: int) -> None:
    """OpenSSL would keep the session of a connection that has ended with a goodbye."""
    before = record(b"hello", 22) + record(b"\1", CHANGE_CIPHER) + record(b"request")
    after = record(bytes(26), ALERT) + record(b"more")
    socket = Socket(before + after, size)
    source, got = TlsInput(socket.receive), b""
    while not source.bio.eof and source.pull(memoryview(bytearray(SCRATCH))):
        got += source.bio.read()

    assert got == before
    assert source.bio.eof
    assert source.is_ahead


def test_alert_of_a_handshake_is_handed_on() -> None:
    """It is not encrypted yet, and has the reason that the log is told."""
    data = record(b"hello", 22) + record(b"\2\x30", ALERT)

    assert b"".join(handed_on(Socket(data))) == data
