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
READ_BYTES = 128 * 1024
# What a client that sends ahead may have waiting for it before no more of its requests are taken.
MAX_QUEUED_BYTES = 256 * 1024
MAX_QUEUED_PARTS = 64


class Flushed(Enum):
    """How far a flush got."""

    ALL = "everything is sent"
    PART = "the byte limit of the turn is reached"
    FULL = "the socket takes no more for now"


# A member of an enum costs a look-up through its metaclass; these are returned for every answer.
ALL, PART, FULL = Flushed


class TruncatedFileError(Exception):
    """A region of a file was promised to the peer and the file has ended before it."""


class Outgoing:
    """A queue of buffers and file regions, sent in order.

    `bytes_in_memory` is what the buffers in the queue hold; file regions take no memory.
    """

    __slots__ = ("_parts", "_region_sent", "bytes_in_memory")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        self._region_sent = 0
        self.bytes_in_memory = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def extend(self, parts: Iterable[Part]) -> None:
        """Queue the parts of one answer."""
        for part in parts:
            if not isinstance(part, FileRegion):
                self.bytes_in_memory += len(part)
            self._parts.append(part)

    def has_room(self) -> bool:
        """Whether another answer may be queued before some of this is sent."""
        return self.bytes_in_memory <= MAX_QUEUED_BYTES and len(self._parts) <= MAX_QUEUED_PARTS

    def clear(self) -> None:
        """Drop what is left."""
        self._parts.clear()
        self.bytes_in_memory = 0

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
        fd = region.file.fileno() if transport.can_sendfile else None
        if fd is not None:
            sent = transport.sendfile(fd, position, count)
        else:
            count = min(count, READ_BYTES)
            data = region.file.pread(count, position)
            sent = transport.send(data) if data else 0
        if sent == 0 < count:
            raise TruncatedFileError(f"{region.file.path} ends before position {position + count}")
        self._region_sent += sent
        if self._region_sent == region.size:
            self._region_sent = 0
            self._parts.popleft()
        return count, sent
