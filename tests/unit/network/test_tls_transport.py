"""One TLS stream over a socket that takes all, a part, or nothing."""

from __future__ import annotations

import gc
import ssl

import pytest
from tls_world import TlsEnd, listening, trusting

from ottla.network.outgoing import ALL, FULL, Outgoing
from ottla.network.tls_input import MAX_RECORDS
from ottla.network.tls_transport import MAX_PULLS, TlsTransport
from ottla.network.transport import CHUNK_BYTES, TlsSide
from ottla.runtime import FileRegion
from ottla.testing import MemoryDisk


class Wire:
    """A socket without a network: `room` is what it takes, `inbox` what the peer has sent."""

    def __init__(self) -> None:
        self.room = 1 << 40
        self.inbox = bytearray()
        self.sent = bytearray()
        self.has_ended = False
        self.is_closed = False

    def fileno(self) -> int:
        return 7

    def recv_into(self, buffer: memoryview) -> int:
        if not self.inbox and not self.has_ended:
            raise BlockingIOError
        count = min(len(self.inbox), len(buffer))
        buffer[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    def recv(self, count: int) -> bytes:
        data = bytearray(count)
        return bytes(data[: self.recv_into(memoryview(data))])

    def send(self, data: memoryview, flags: int = 0) -> int:
        if not self.room:
            raise BlockingIOError
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def take(self) -> bytes:
        taken = bytes(self.sent)
        self.sent.clear()
        return taken

    def close(self) -> None:
        self.is_closed = True


class Stream:
    """Both ends, and the wire between them."""

    def __init__(self, certificates) -> None:
        self.wire = Wire()
        self.side = TlsSide()
        self.transport = TlsTransport(self.wire, listening(certificates).context, self.side)
        self.client = TlsEnd(trusting(certificates))

    def deliver(self) -> None:
        """What the server has sent reaches the client."""
        self.client.step(self.wire.take())

    def shake_hands(self) -> Stream:
        is_done = False
        while not (is_done and self.client.is_agreed):
            self.wire.inbox += self.client.outbox
            is_done = self.transport.handshake()
            self.deliver()
        return self

    def received(self) -> bytes:
        """What the client has got, decrypted."""
        self.deliver()
        return bytes(self.client.inbox)


@pytest.fixture
def stream(certificates) -> Stream:
    """Before the handshake."""
    return Stream(certificates)


@pytest.fixture
def agreed(certificates) -> Stream:
    """After the handshake."""
    return Stream(certificates).shake_hands()


def read(stream: Stream, size: int) -> bytes:
    target = bytearray(size)
    return bytes(target[: stream.transport.recv_into(memoryview(target))])


def content(size: int) -> bytes:
    return (b"%d," * 40_000 % tuple(range(40_000)) * (size // 200_000 + 1))[:size]


def test_handshake_goes_on_byte_by_byte(stream: Stream) -> None:
    """In both directions; it is done when the last byte has come, and not before."""
    stream.wire.room = 1
    is_done = False
    while not is_done:
        for byte in stream.client.outbox or [None]:
            assert not is_done
            stream.wire.inbox += b"" if byte is None else bytes([byte])
            stream.wire.room = 1
            is_done = stream.transport.handshake()
            stream.deliver()

    assert stream.client.is_agreed
    assert not stream.transport.wants_to_send


def test_peer_that_speaks_no_tls_ends_the_handshake(stream: Stream) -> None:
    """With a reason."""
    stream.wire.inbox += b"GET / HTTP/1.1\r\n\r\n"
    with pytest.raises(ssl.SSLError) as caught:
        stream.transport.handshake()
    assert caught.value.reason == "HTTP_REQUEST"


def test_peer_that_hangs_up_ends_the_handshake(stream: Stream) -> None:
    """Halfway through its first message."""
    stream.wire.inbox += stream.client.outbox[:50]
    stream.wire.has_ended = True
    with pytest.raises(ssl.SSLError, match="EOF"):
        stream.transport.handshake()


def test_bytes_are_received_as_they_come(agreed: Stream) -> None:
    """Byte by byte, a record shows when it is whole."""
    record = agreed.client.write(b"request")
    for byte in record[:-1]:
        agreed.wire.inbox.append(byte)
        with pytest.raises(BlockingIOError):
            read(agreed, 100)
    agreed.wire.inbox += record[-1:]

    assert read(agreed, 100) == b"request"
    with pytest.raises(BlockingIOError):
        read(agreed, 100)


def test_many_records_fill_one_buffer(agreed: Stream) -> None:
    """As one call of the kernel would."""
    data = content(100_000)
    agreed.wire.inbox += agreed.client.write(data)

    assert read(agreed, 200_000) == data
    assert not agreed.side.ahead


def test_records_of_a_byte_are_read_some_at_a_time(agreed: Stream) -> None:
    """However many have come: each costs as much as a large one, and others wait meanwhile."""
    data = content(5000)
    for byte in data:
        agreed.wire.inbox += agreed.client.write(bytes([byte]))
    received, most = b"", 0
    while len(received) < len(data):
        part = read(agreed, 100_000)
        received, most = received + part, max(most, len(part))
        assert agreed.side.ahead or received == data

    assert received == data
    assert 0 < most <= MAX_RECORDS * (MAX_PULLS + 1)
    assert not agreed.side.ahead


def test_bytes_that_are_left_over_are_noted(agreed: Stream) -> None:
    """Epoll says nothing of them; when they are gone, or never were, nor does the transport."""
    agreed.wire.inbox += agreed.client.write(b"0123456789")

    assert read(agreed, 4) == b"0123"
    assert agreed.side.ahead == {7}
    assert read(agreed, 4) == b"4567"
    assert agreed.side.ahead == {7}
    assert read(agreed, 4) == b"89"
    assert not agreed.side.ahead


def test_first_request_may_come_with_the_end_of_the_handshake(stream: Stream) -> None:
    """It is in OpenSSL's hands then, where epoll does not see it."""
    stream.wire.inbox += stream.client.outbox
    assert not stream.transport.handshake()
    stream.deliver()
    stream.wire.inbox += stream.client.outbox + stream.client.write(b"request")

    assert stream.transport.handshake()
    assert stream.side.ahead == {7}
    assert read(stream, 100) == b"request"


def test_end_of_the_stream_is_told_once_all_was_read(agreed: Stream) -> None:
    """With the client's goodbye, or without."""
    agreed.wire.inbox += agreed.client.write(b"last")
    agreed.wire.has_ended = True

    assert read(agreed, 100) == b"last"
    assert agreed.side.ahead == {7}
    assert read(agreed, 100) == b""


def test_goodbye_of_the_client_is_the_end(agreed: Stream) -> None:
    """Though the socket is open."""
    with pytest.raises(ssl.SSLWantReadError):
        agreed.client.tls.unwrap()
    agreed.wire.inbox += agreed.client.outbox

    assert read(agreed, 100) == b""


def test_forged_record_is_an_error(agreed: Stream) -> None:
    """One bit is enough."""
    record = bytearray(agreed.client.write(b"request"))
    record[-1] ^= 1
    agreed.wire.inbox += record
    with pytest.raises(ssl.SSLError):
        read(agreed, 100)


@pytest.mark.parametrize("room", [1, 7, 1000, 20_000, CHUNK_BYTES + 500])
def test_full_socket_loses_and_repeats_nothing(agreed: Stream, room: int) -> None:
    """Buffers and files; the queue keeps what has not left."""
    file = MemoryDisk().open("/file", create=True)
    file.pwrite(content(30_000 if room < 1000 else 300_000), 0)
    size = file.size()
    parts = [b"head", memoryview(b"defgh"), FileRegion(file, 2, size - 4), b"xyz", b"", b"end"]
    outgoing = Outgoing()
    outgoing.extend(parts)
    agreed.wire.room = 0
    received = bytearray()
    while outgoing.flush(agreed.transport, 1 << 20) is not ALL:
        assert outgoing
        agreed.wire.room += room
        received = agreed.received()

    expected = b"headdefgh" + file.pread(size - 4, 2) + b"xyzend"
    assert agreed.received() == expected
    assert len(received) >= len(expected) - CHUNK_BYTES - room


def test_socket_without_room_costs_no_memory_and_no_reading(agreed: Stream, monkeypatch) -> None:
    """One chunk is encrypted, however often the rest is offered."""
    file = MemoryDisk().open("/file", create=True)
    file.pwrite(bytes(1 << 20), 0)
    outgoing = Outgoing()
    outgoing.extend([FileRegion(file, 0, 1 << 20)])
    agreed.wire.room = 0
    assert outgoing.flush(agreed.transport, 1 << 20) is FULL
    monkeypatch.setattr(type(file), "pread", None)  # whoever calls it now fails

    assert outgoing.flush(agreed.transport, 1 << 20) is FULL
    assert agreed.transport.wants_to_send


def test_close_says_goodbye_where_there_is_room(agreed: Stream) -> None:
    """Clients tell the end of the stream from one that was cut off."""
    agreed.transport.close()
    agreed.deliver()

    assert agreed.client.has_ended
    assert agreed.wire.is_closed


def test_close_in_the_middle_of_everything_closes(stream: Stream, agreed: Stream) -> None:
    """Before a handshake, and with a chunk that cannot leave."""
    stream.transport.close()
    agreed.wire.room = 0
    with pytest.raises(BlockingIOError):
        agreed.transport.send(b"answer")
    agreed.transport.close()

    assert stream.wire.is_closed
    assert agreed.wire.is_closed


@pytest.mark.parametrize("has_tickets", [True, False])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("says_goodbye", [True, False])
def test_no_session_is_kept_when_its_connection_has_ended(
    certificates, version: ssl.TLSVersion, has_tickets: bool, says_goodbye: bool
) -> None:
    """It would hold the certificates that the client has shown for hours, as many as they are."""
    stream, context = Stream(certificates), trusting(certificates)
    context.maximum_version = version
    context.options |= ssl.OP_NO_TICKET * (not has_tickets)
    stream.client = TlsEnd(context)
    sessions = stream.transport._tls.context.session_stats
    stream.shake_hands()
    assert stream.client.tls.version() == version.name.replace("v1_", "v1.")
    stream.wire.inbox += stream.client.write(b"request")
    assert read(stream, 100) == b"request"
    if says_goodbye:
        with pytest.raises(ssl.SSLWantReadError):
            stream.client.tls.unwrap()
        stream.wire.inbox += stream.client.outbox
        assert read(stream, 100) == b""
    stream.transport.close()
    del stream.transport
    gc.collect()

    assert sessions()["number"] == 0
