"""The answers in memory that clients do not read: so many they may be, together.

A connection has one answer at a time, and a request of some bytes may have one of megabytes. So
clients that ask and do not read could fill the memory of a broker long before they are idle.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from ottla.network.connection import Connection

MAX_BYTES: Final = 256 * 1024 * 1024
LONG_BYTES: Final = 64 * 1024
"""Shorter ones are not looked at: as many connections as a process may have take less."""


class UnreadAnswers:
    """Those of all connections of a processor whose sockets are full."""

    __slots__ = ("_bytes", "_sizes")

    def __init__(self) -> None:
        self._sizes: dict[Connection, int] = {}
        """As they were at the last look; some may have been read since."""
        self._bytes = 0

    def note(self, connection: Connection) -> None:
        """Its socket is full. Where the answers of all are too many, those end that move least."""
        size = connection.outgoing.bytes_in_memory
        if size >= LONG_BYTES:
            self._bytes += size - self._sizes.get(connection, 0)
            self._sizes[connection] = size
            if self._bytes > MAX_BYTES:
                self._look()
                self._make_room(connection)

    def _look(self) -> None:
        sizes = {each: each.outgoing.bytes_in_memory for each in self._sizes if not each.is_closing}
        self._sizes = {each: size for each, size in sizes.items() if size >= LONG_BYTES}
        self._bytes = sum(self._sizes.values())

    def _make_room(self, but: Connection) -> None:
        for each in sorted(self._sizes, key=attrgetter("last_active_ms")):
            if self._bytes > MAX_BYTES and each is not but:
                self._bytes -= self._sizes.pop(each)
                each.close(f"it does not read, as others, who leave more than {MAX_BYTES} bytes")
