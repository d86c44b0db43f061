"""How bytes get from and to the peer: one small table of calls, the same for each kind."""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import Final, Protocol, TypeAlias, cast

from ottla.runtime import Buffer, File, FileRegion
from ottla.runtime.network import USE_SYSTEM_DEFAULT, set_buffer_sizes

READ_BYTES: Final = 128 * 1024
# How soon, and how often, a client that has closed its side is asked whether it is still there.
PROBE_SECONDS: Final = 5
PROBES: Final = 3
# Linux's: wait with a packet that is not full. Elsewhere it goes out at once.
MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class Transport(Protocol):
    """A socket that never blocks: BlockingIOError says that nothing can be moved now.

    After BlockingIOError, and wherever less was sent than was given, the rest must be offered
    again, the same bytes first.
    """

    @property
    def recv_into(self) -> Callable[[memoryview], int]:
        """Receive; 0 is the end of the stream."""
        ...

    @property
    def send(self) -> Callable[[Buffer], int]: ...

    def fileno(self) -> int: ...

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        """Send as much of the buffers as fits; `more_follows` asks to wait with a packet."""
        ...

    def send_file(self, file: File, position: int, count: int) -> int:
        """Send a part of a file; less than `count` when the peer takes no more, 0 at its end."""
        ...

    def has_ended(self) -> bool:
        """Whether all that the peer has sent is read, and its end has come; False if unknown."""
        ...

    def probe_peer(self) -> None:
        """Have the kernel find out whether a peer that stopped sending still exists."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    """TCP as it is; files are sent by the kernel and never read here."""

    __slots__ = ("_fd", "_socket", "recv_into", "send")

    def __init__(self, endpoint: socket.socket) -> None:
        self._socket = endpoint
        self._fd = endpoint.fileno()
        # Bound once: two calls in the hot path that need no frame of ours.
        self.recv_into: Callable[[memoryview], int] = endpoint.recv_into
        self.send: Callable[[Buffer], int] = endpoint.send

    def fileno(self) -> int:
        return self._fd

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        return self._socket.sendmsg(buffers, (), MSG_MORE if more_follows else 0)

    def send_file(self, file: File, position: int, count: int) -> int:
        fd = file.fileno()
        if fd is None or not hasattr(os, "sendfile"):
            return send_read(self.send, file, position, count)
        return os.sendfile(self._fd, fd, position, count)

    def has_ended(self) -> bool:
        return has_ended(self._socket)

    def probe_peer(self) -> None:
        probe(self._socket)

    def close(self) -> None:
        self._socket.close()


def send_read(send: Callable[[Buffer], int], file: File, position: int, count: int) -> int:
    """Send a part of a file in the way of those who must read it first."""
    sent = 0
    try:
        while sent < count:
            data = file.pread(min(count - sent, READ_BYTES), position + sent)
            taken = send(data) if data else 0
            sent += taken
            if not data or taken < len(data):
                break
    except BlockingIOError:
        if not sent:
            raise
    return sent


def tune_socket(endpoint: socket.socket, send_buffer_bytes: int) -> str:
    """Make an accepted socket one that never blocks and never dawdles; returns its own address."""
    endpoint.setblocking(False)
    # Answers are written whole; to wait for more to send would only delay them.
    endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    set_buffer_sizes(endpoint, send_buffer_bytes, USE_SYSTEM_DEFAULT)
    host, port = endpoint.getsockname()[:2]
    return f"{host}:{port}"


def has_ended(endpoint: socket.socket) -> bool:
    """Look without taking anything: whether the next that is received is the end of the stream."""
    try:
        return not endpoint.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


def probe(endpoint: socket.socket) -> None:
    """Have the kernel ask soon whether the peer still exists; if not, the poller tells of it.

    The kernel of a client that is gone keeps its half of the connection for a while (a minute on
    Linux, `net.ipv4.tcp_fin_timeout`), and refuses the next probe.
    """
    values = {"KEEPINTVL": PROBE_SECONDS, "KEEPCNT": PROBES}
    # macOS has the first under another name. What a system has not got keeps the system's value.
    values["KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "KEEPALIVE"] = PROBE_SECONDS
    for name, value in values.items():
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None:
            endpoint.setsockopt(socket.IPPROTO_TCP, option, value)


# Answers on their way to a peer that reads as fast as it likes.


Part: TypeAlias = Buffer | FileRegion

# The kernel takes no more buffers in one call.
MAX_BUFFERS_PER_CALL = min(os.sysconf("SC_IOV_MAX"), 1024)
# What a client that sends ahead may have waiting for it before no more of its requests are taken.
MAX_QUEUED_BYTES = 256 * 1024
MAX_QUEUED_PARTS = 64
# A region of a file that is not larger is sent together with what stands around it, in one call
# and one packet: to copy it costs less than calls of its own. An answer with very many of them
# must not fill the memory, though.
SMALL_REGION_BYTES = 16 * 1024
MAX_COPIED_BYTES = 64 * 1024
# How much of a file is read at once in the background, where the page cache has not got it.
READ_AHEAD_BYTES = 2 * 1024 * 1024


class Flushed(Enum):
    """How far a flush got."""

    ALL = "everything is sent"
    PART = "the byte limit of the turn is reached"
    FULL = "the socket takes no more for now"
    COLD = "what comes next is on the disk and not in the page cache"


# A member of an enum costs a look-up through its metaclass; these are returned for every answer.
ALL, PART, FULL, COLD = Flushed


class NotCachedError(Exception):
    """The next bytes of a file cannot be sent without waiting for the disk."""


class TruncatedFileError(Exception):
    """A region of a file was promised to the peer and the file has ended before it."""


class Outgoing:
    """A queue of buffers and file regions, sent in order.

    `bytes_in_memory` is what the buffers in the queue hold; file regions take no memory, but small
    ones are read and become buffers.
    `is_reading` says that a job in the background reads what comes next.
    """

    __slots__ = (
        "_parts",
        "_region_cached",
        "_region_sent",
        "bytes_in_memory",
        "is_reading",
        "sent_bytes",
    )

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self.sent_bytes = 0
        self._region_sent = 0
        # Up to where the region at the head is in the page cache, as far as that is known.
        self._region_cached = 0
        self.is_reading = False
        self.bytes_in_memory = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def extend(self, parts: Iterable[Part]) -> None:
        """Queue the parts of one answer."""
        for part in parts:
            if isinstance(part, FileRegion):
                copy = self._copy_of(part)
                if copy is None:
                    self._parts.append(part)
                    continue
                part = copy
            self.bytes_in_memory += len(part)
            self._parts.append(part)

    def _copy_of(self, region: FileRegion) -> bytes | None:
        """The bytes of a small region; None where reading might wait, or fails."""
        size, position = region.size, region.position
        if size > SMALL_REGION_BYTES or self.bytes_in_memory + size > MAX_COPIED_BYTES:
            return None
        try:
            data = region.read() if region.file.is_cached(size, position) else b""
        except OSError:
            return None
        return data if len(data) == size else None

    def has_room(self) -> bool:
        """Whether another answer may be queued before some of this is sent."""
        return self.bytes_in_memory <= MAX_QUEUED_BYTES and len(self._parts) <= MAX_QUEUED_PARTS

    def clear(self) -> None:
        """Drop what is left."""
        self._parts.clear()
        self._region_sent = self._region_cached = 0
        self.bytes_in_memory = 0

    def next_in_file(self) -> FileRegion | None:
        """What to read of the first file region in the queue before sending can continue."""
        region = self._parts[0] if self._parts else None
        if not isinstance(region, FileRegion):
            return None
        size = min(region.size - self._region_sent, READ_AHEAD_BYTES)
        return FileRegion(region.file, region.position + self._region_sent, size)

    def note_cached(self, length: int) -> None:
        """So much of what comes next has been read, and is not asked for again."""
        self.is_reading = False
        self._region_cached = self._region_sent + length

    def flush(self, transport: Transport, max_bytes: int) -> Flushed:
        """Send until all is sent, the socket is full or about `max_bytes` are sent."""
        parts = self._parts
        try:
            while parts:
                if max_bytes <= 0:
                    return PART
                part = parts[0]
                if isinstance(part, FileRegion):
                    wanted, sent = self._send_region(transport, part, max_bytes)
                elif len(parts) == 1:
                    wanted = len(part)
                    sent = transport.send(part)
                    self.sent_bytes += sent
                    if sent == wanted:  # by far the most frequent way to end
                        self.bytes_in_memory = 0
                        parts.clear()
                        return ALL
                    self._drop_buffers(sent)
                else:
                    wanted, sent = self._send_buffers(transport)
                if sent < wanted:
                    return FULL
                max_bytes -= sent
        except BlockingIOError:
            return FULL
        except NotCachedError:
            return COLD
        return ALL

    def _send_buffers(self, transport: Transport) -> tuple[int, int]:
        """Send the buffers at the head of the queue in one call; returns bytes tried and sent."""
        buffers: list[Buffer] = []
        for part in islice(self._parts, MAX_BUFFERS_PER_CALL):
            if isinstance(part, FileRegion):
                break
            buffers.append(part)
        wanted = sum(map(len, buffers))
        is_all = len(buffers) == len(self._parts)
        sent = transport.send_all_of(buffers, not is_all)
        self.sent_bytes += sent
        if is_all and sent == wanted:
            self.clear()
        else:
            self._drop_buffers(sent)
        return wanted, sent

    def _drop_buffers(self, sent: int) -> None:
        self.bytes_in_memory -= sent
        parts = self._parts
        while parts:
            head = parts[0]
            if isinstance(head, FileRegion):
                return
            if sent < len(head):
                if sent:
                    parts[0] = memoryview(head)[sent:]
                return
            sent -= len(head)
            parts.popleft()

    def _send_region(
        self, transport: Transport, region: FileRegion, max_bytes: int
    ) -> tuple[int, int]:
        """Send of the file region at the head of the queue; returns bytes tried and sent."""
        count = min(region.size - self._region_sent, max_bytes)
        position = region.position + self._region_sent
        if self._region_sent >= self._region_cached:
            if self.is_reading or not region.file.is_cached(count, position):
                raise NotCachedError
            self._region_cached = self._region_sent + count
        else:
            count = min(count, self._region_cached - self._region_sent)
        sent = transport.send_file(region.file, position, count)
        self.sent_bytes += sent
        if sent == 0 < count:
            raise TruncatedFileError(f"{region.file.path} ends before position {position + count}")
        self._region_sent += sent
        if self._region_sent == region.size:
            self._region_sent = self._region_cached = 0
            self._parts.popleft()
        return count, sent


# TLS on a socket that never blocks: OpenSSL works on memory, and the socket is ours.
#
# Measured beside a non-blocking `SSLSocket`, files of 256 MB on loopback, AES-256-GCM: 2.4 GB and
# not 2.0 GB sent for a second of CPU, as 64 KB leave in one call and not in four, and 1.6 GB
# received by both. It also tells bytes that OpenSSL holds from bytes that a poller can tell of, and
# can be tested byte by byte.


CHUNK_BYTES: Final = 64 * 1024
# So much of one client is decrypted at once; 256 KB take a tenth of a millisecond.
RECEIVE_BYTES: Final = 256 * 1024
# What TLS itself may owe a peer (alerts, new keys) that does not read.
MAX_OWED_BYTES: Final = 64 * 1024
NOTHING: Final = memoryview(b"")


class TlsSide:
    """What the connections of a processor share.

    `ahead` are the descriptors of those whose next bytes may have been taken from the socket
    already: the poller says nothing of them.
    """

    __slots__ = ("ahead", "scratch")

    def __init__(self) -> None:
        self.ahead: set[int] = set()
        self.scratch = memoryview(bytearray(CHUNK_BYTES))


class TlsTransport:
    """A socket with TLS on it, for a server; `handshake` comes first.

    Invariant: at most one chunk is encrypted and not sent, and its plaintext still belongs to
    the caller that offered it: it counts as sent when the last byte of its ciphertext is. A record
    cannot be encrypted twice, so the same plaintext must be offered again.
    """

    __slots__ = ("_accepted", "_encrypted", "_fd", "_in", "_out", "_side", "_socket", "_tls")

    def __init__(self, endpoint: socket.socket, context: ssl.SSLContext, side: TlsSide) -> None:
        self._socket = endpoint
        self._fd = endpoint.fileno()
        self._side = side
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._encrypted = NOTHING  # of which the socket has taken nothing yet
        self._accepted = 0  # bytes of plaintext in there

    def fileno(self) -> int:
        return self._fd

    @property
    def wants_to_send(self) -> bool:
        """Whether something waits for room in the socket."""
        return bool(self._encrypted)

    @property
    def peer_certificate(self) -> bytes | None:
        """What the client has shown and OpenSSL verified, in DER; None where it showed none."""
        return self._tls.getpeercert(binary_form=True)

    def handshake(self) -> bool:
        """Continue as far as bytes have come; True when done and all output has been sent.

        ssl.SSLError: the peer refuses or cannot do it; the peer has been told why.
        """
        is_done = False
        while not self._encrypted or self._push():
            if is_done:
                self._note_ahead(True)
                return True
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self._take_encrypted()
                self._push()
                raise
            self._take_encrypted()
            if not is_done and not self._encrypted and not self._pull():
                break
        return False

    def recv_into(self, target: memoryview) -> int:
        """Decrypt as much as fits and has come; 0 is the end of the stream."""
        end = min(len(target), RECEIVE_BYTES)
        filled = 0
        has_ended = False
        while filled < end:
            try:
                count = cast(int, self._tls.read(end - filled, target[filled:]))
            except ssl.SSLWantReadError:
                if not self._pull():
                    break
                continue
            except ssl.SSLEOFError:
                count = 0
            if not count:
                has_ended = True
                break
            filled += count
        if self._out.pending:
            self._answer()
        self._note_ahead(has_ended or filled == end)
        if not filled and not has_ended:
            raise BlockingIOError
        return filled

    def send(self, data: Buffer) -> int:
        """Encrypt and send; what was begun before is finished first."""
        return self._finish() or self._send(data, 0)

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        count = self._finish()
        if count:
            return count
        taken: list[Buffer] = []
        size = 0
        for buffer in buffers:
            taken.append(buffer)
            size += len(buffer)
            if size >= CHUNK_BYTES:
                break
        return self._send(b"".join(taken), MSG_MORE if more_follows else 0)

    def send_file(self, file: File, position: int, count: int) -> int:
        return self._finish() or send_read(self.send, file, position, count)

    def has_ended(self) -> bool:
        """As of plain sockets: a goodbye that is not read yet counts as something to read."""
        return self._fd not in self._side.ahead and has_ended(self._socket)

    def probe_peer(self) -> None:
        probe(self._socket)

    def close(self) -> None:
        """Say goodbye if the socket takes it, and close."""
        self._side.ahead.discard(self._fd)
        try:
            if not self._encrypted:
                self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # the peer's goodbye is not waited for
        try:
            self._take_encrypted()
            self._push()
        except OSError:
            pass  # it has gone already
        self._socket.close()

    def _send(self, data: Buffer, flags: int) -> int:
        view = memoryview(data)
        sent = 0
        while sent < len(view):
            self._accepted = self._tls.write(view[sent : sent + CHUNK_BYTES])
            self._take_encrypted()
            if not self._push(flags):
                break
            sent += self._accepted
            self._accepted = 0
        if not sent and len(view):
            raise BlockingIOError
        return sent

    def _finish(self) -> int:
        """Send what is left of the last chunk; how much plaintext that was."""
        if not self._encrypted:
            return 0
        if not self._push():
            raise BlockingIOError
        count, self._accepted = self._accepted, 0
        return count

    def _take_encrypted(self) -> None:
        if self._out.pending:
            data = self._out.read()
            self._encrypted = memoryview(bytes(self._encrypted) + data if self._encrypted else data)

    def _push(self, flags: int = 0) -> bool:
        """Give the socket what it takes; whether that is all."""
        while self._encrypted:
            try:
                count = self._socket.send(self._encrypted, flags)
            except BlockingIOError:
                return False
            self._encrypted = self._encrypted[count:]
        self._encrypted = NOTHING  # an empty view would keep its bytes
        return True

    def _answer(self) -> None:
        """Send what a message of the peer asks of TLS itself, such as new keys."""
        self._take_encrypted()
        if not self._push() and len(self._encrypted) > CHUNK_BYTES + MAX_OWED_BYTES:
            raise OSError(None, "the client reads nothing, and TLS owes it more and more")

    def _pull(self) -> bool:
        """Take what the socket has got; False when that is nothing."""
        try:
            count = self._socket.recv_into(self._side.scratch)
        except BlockingIOError:
            return False
        if count:
            self._in.write(self._side.scratch[:count])
        else:
            self._in.write_eof()
        return True

    def _note_ahead(self, is_possible: bool) -> None:
        if is_possible and (self._in.pending or self._in.eof or self._tls.pending()):
            self._side.ahead.add(self._fd)
        else:
            self._side.ahead.discard(self._fd)
