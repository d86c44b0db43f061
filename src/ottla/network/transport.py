"""How bytes get from and to the peer: one small table of calls, the same for each kind."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from ottla.runtime import Buffer, File
from ottla.runtime.network import USE_SYSTEM_DEFAULT, set_buffer_sizes

READ_BYTES: Final = 128 * 1024
MAX_UNREAD_READS: Final = 16  # of what a client has sent behind its last request
# How soon, and how often, a client that has closed its side is asked whether it is still there.
PROBE_SECONDS: Final = 5
PROBES: Final = 3
# Linux's: wait with a packet that is not full. Elsewhere it goes out at once.
MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
# Of a connection with TLS: so much is read from its socket, or encrypted, at once.
CHUNK_BYTES: Final = 64 * 1024


class TlsSide:
    """The buffers that the connections with TLS of a processor share.

    `ahead` are the descriptors of those whose next bytes may have been taken from the socket
    already: the poller says nothing of them. While they are muted they are `parked`, so that no
    turn looks at all of them.
    """

    __slots__ = ("ahead", "parked", "scratch")

    def __init__(self) -> None:
        self.ahead: set[int] = set()
        self.parked: set[int] = set()
        self.scratch = memoryview(bytearray(CHUNK_BYTES))

    def park(self, fd: int) -> None:
        """Look at it when it is not muted any longer."""
        self.ahead.discard(fd)
        self.parked.add(fd)

    def resume(self, fd: int) -> None:
        """It is not muted; it may have been parked."""
        if fd in self.parked:
            self.parked.discard(fd)
            self.ahead.add(fd)


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
        hang_up(self._socket)


def send_read(send: Callable[[Buffer], int], file: File, position: int, count: int) -> int:
    """Send a part of a file by transports that must read it first."""
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


def hang_up(endpoint: socket.socket) -> None:
    """Close; where something is unread, TCP would take back what is sent and has not arrived."""
    with suppress(OSError):
        for _ in range(MAX_UNREAD_READS):
            if not endpoint.recv(READ_BYTES):
                break
    endpoint.close()


def has_ended(endpoint: socket.socket) -> bool:
    """Look without taking anything: whether the next that is received is the end of the stream."""
    try:
        return not endpoint.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


def probe(endpoint: socket.socket) -> None:
    """Have the kernel ask soon whether the peer still exists; if not, the poller reports it.

    The kernel of a client that is gone keeps its half of the connection for a while (a minute on
    Linux, `net.ipv4.tcp_fin_timeout`), and refuses the next probe.
    """
    values = {"KEEPINTVL": PROBE_SECONDS, "KEEPCNT": PROBES}
    # macOS has the first under another name. Options that a system lacks keep its value.
    values["KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "KEEPALIVE"] = PROBE_SECONDS
    for name, value in values.items():
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None:
            endpoint.setsockopt(socket.IPPROTO_TCP, option, value)
