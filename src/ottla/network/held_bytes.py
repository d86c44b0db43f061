"""The memory of clients that stop in the middle of answers, which they do not read, or requests.

A connection has one of each at a time, and a request of some bytes may have an answer of megabytes.
So many clients that stop could fill the memory of a broker long before they are idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from ottla.network.connection import Connection
from ottla.network.refusal_log import RefusalLog

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
MAX_REQUEST_BYTES: Final = 1024 * 1024 * 1024
"""Many producers with slow lines have large requests under way at once."""
LONG_BYTES: Final = 64 * 1024
"""Less of one connection is not looked at: as many as a process may have take little with it."""


class HeldBytes:
    """The bytes that the connections of a processor hold, of one kind; all together have a limit.

    They are noted as they were when a connection stopped; some may have moved since.
    """

    __slots__ = ("_bytes", "_max_bytes", "_reason", "_size_of", "sizes")

    def __init__(self, size_of: Callable[[Connection], int], max_bytes: int, reason: str) -> None:
        self._size_of, self._max_bytes = size_of, max_bytes
        self._reason = f"{reason}; of all clients these are more than {max_bytes} bytes"
        self.sizes: dict[Connection, int] = {}
        self._bytes = 0

    def note(self, connection: Connection) -> None:
        """It has stopped. Where all together hold too much, those end that have moved least."""
        size = self._size_of(connection)
        if size >= LONG_BYTES:
            self._bytes += size - self.sizes.get(connection, 0)
            self.sizes[connection] = size
            if self._bytes > self._max_bytes:
                self._look()
                self._make_room(connection)

    def _look(self) -> None:
        sizes = {each: self._size_of(each) for each in self.sizes if not each.is_closing}
        self.sizes = {each: size for each, size in sizes.items() if size >= LONG_BYTES}
        self._bytes = sum(self.sizes.values())

    def _make_room(self, but: Connection) -> None:
        for each in sorted(self.sizes, key=attrgetter("last_active_ms")):
            if self._bytes > self._max_bytes and each is not but:
                self._bytes -= self.sizes.pop(each)
                each.close(self._reason)


def unread_answers() -> HeldBytes:
    """The answers in memory whose clients' sockets are full."""
    reason = "it does not read its answer"
    return HeldBytes(lambda each: each.outgoing.bytes_in_memory, MAX_ANSWER_BYTES, reason)


def half_requests() -> HeldBytes:
    """The requests that have begun to come."""
    reason = "the rest of its request does not come"
    return HeldBytes(lambda each: each.frames.owned_bytes, MAX_REQUEST_BYTES, reason)


def check_size(
    connection: Connection, max_frame_bytes: Callable[[int], int], log: RefusalLog
) -> None:
    """Hang up where a request has begun that is larger than its API allows: it is not received."""
    key, size = connection.frames.begun()
    if size > max_frame_bytes(key):
        why = f"a request of {size} bytes: with API key {key} it may not have so many"
        if log.is_news(connection.client_host, why):
            logger.info("closing %s: %s", connection.id, why)
        connection.finish(why)
