"""How bytes get from and to the peer: one small table of calls, so that nobody asks which."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.runtime import Buffer


class Transport(Protocol):
    """A socket that never blocks: BlockingIOError says that nothing can be moved now."""

    can_sendfile: bool
    recv_into: Callable[[memoryview], int]
    send: Callable[[Buffer], int]

    def fileno(self) -> int: ...

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        """Send as much of the buffers as fits; `more_follows` asks to wait with a packet."""
        ...

    def sendfile(self, fd: int, position: int, count: int) -> int:
        """Send from a file without reading it, if `can_sendfile`; 0 when the file has ended."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    """TCP as it is."""

    __slots__ = ("_fd", "_socket", "can_sendfile", "recv_into", "send")

    def __init__(self, endpoint: socket.socket) -> None:
        self._socket = endpoint
        self._fd = endpoint.fileno()
        self.can_sendfile = True
        # Bound once: two calls in the hot path that need no frame of ours.
        self.recv_into: Callable[[memoryview], int] = endpoint.recv_into
        self.send: Callable[[Buffer], int] = endpoint.send

    def fileno(self) -> int:
        return self._fd

    def send_all_of(self, buffers: Iterable[Buffer], more_follows: bool) -> int:
        return self._socket.sendmsg(buffers, (), socket.MSG_MORE if more_follows else 0)

    def sendfile(self, fd: int, position: int, count: int) -> int:
        return os.sendfile(self._fd, fd, position, count)

    def close(self) -> None:
        self._socket.close()
