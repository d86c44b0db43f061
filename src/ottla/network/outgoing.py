"""Answers on their way to a peer that reads as fast as it likes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import TypeAlias

from ottla.network.transport import Transport
from ottla.runtime import Buffer, FileRegion

Part: TypeAlias = Buffer | FileRegion

# The kernel takes no more buffers in one call.
MAX_BUFFERS_PER_CALL = min(os.sysconf("SC_IOV_MAX"), 1024)
# The bytes that may wait for a client that sends ahead before no more of its requests are taken.
MAX_QUEUED_BYTES = 256 * 1024
MAX_QUEUED_PARTS = 64
# A region of a file that is not larger is sent together with the bytes around it, in one call
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


ALL, PART, FULL, COLD = Flushed
"""A member of an enum costs a look-up through its metaclass; these are returned for every
answer."""


class NotCachedError(Exception):
    """The next bytes of a file cannot be sent without waiting for the disk."""


class TruncatedFileError(Exception):
    """A region of a file was promised to the peer and the file has ended before it."""


class Outgoing:
    """A queue of buffers and file regions, sent in order.

    `bytes_in_memory` is the size of the buffers in the queue; file regions take no memory, but
    small ones are read and become buffers. `is_reading` says that a job in the background reads the
    next part.
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
        """Drop the rest."""
        self._parts.clear()
        self._region_sent = self._region_cached = 0
        self.bytes_in_memory = 0

    def next_in_file(self) -> FileRegion | None:
        """The part of the first file region in the queue to read before sending can continue."""
        region = self._parts[0] if self._parts else None
        if not isinstance(region, FileRegion):
            return None
        size = min(region.size - self._region_sent, READ_AHEAD_BYTES)
        return FileRegion(region.file, region.position + self._region_sent, size)

    def note_cached(self, length: int) -> None:
        """Note that so much of the next part has been read, and need not be again."""
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
