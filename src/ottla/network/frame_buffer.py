"""The bytes of one connection on their way to becoming frames; never a socket in sight.

A frame is a size (4 bytes, big endian) and as many bytes. A client's claim about the size is
believed only as far as bytes have come: memory is taken for at most GROWTH times the bytes received
(CVE-2022-34917 was about the opposite).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

from ottla.errors import RemoteProtocolError
from ottla.protocol.header import SIZE, SIZE_BYTES

GROWTH = 4
MIN_OWN_BYTES = 512
MIN_POOLED_BYTES = 64 * 1024
MAX_POOLED_BYTES = 4 * 1024 * 1024
NOTHING = memoryview(b"")
HEAD = struct.Struct(">ih")
"""A frame begins with its size and the key of its API."""


class BufferPool:
    """Buffers for large frames that are used again, so that the kernel need not give fresh pages.

    Invariant: `_buffers` is sorted by size, and sums up to `pooled_bytes`, which is `max_bytes`
    or less.
    """

    __slots__ = ("_buffers", "_max_bytes", "pooled_bytes")

    def __init__(self, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._buffers: list[bytearray] = []
        self.pooled_bytes = 0

    def take(self, min_bytes: int, wanted_bytes: int) -> bytearray:
        """A buffer of `min_bytes` or more; of `wanted_bytes` if one lies here."""
        if wanted_bytes >= MIN_POOLED_BYTES and self._buffers:
            index = bisect_left(self._buffers, wanted_bytes, key=len)
            index = min(index, len(self._buffers) - 1)
            if len(self._buffers[index]) >= min_bytes:
                buffer = self._buffers.pop(index)
                self.pooled_bytes -= len(buffer)
                return buffer
        if min_bytes >= MIN_POOLED_BYTES:
            min_bytes = 1 << (min_bytes - 1).bit_length()  # a power of two suits more frames
        return bytearray(min_bytes)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back that is no longer in use."""
        size = len(buffer)
        if not MIN_POOLED_BYTES <= size <= MAX_POOLED_BYTES:
            return
        if self.pooled_bytes + size <= self._max_bytes:
            insort(self._buffers, buffer, key=len)
            self.pooled_bytes += size


def lasting(part: memoryview) -> memoryview:
    """Bytes of a frame, to be kept beyond the turn in which they are valid.

    They are a copy, unless the frame is so large that its buffer is used for nothing else: a copy
    of 100 MB would take the loop for as long as a thousand requests.
    """
    whole: Any = part.obj
    return part if len(whole) > MAX_POOLED_BYTES else memoryview(bytearray(part))


class FrameBuffer:
    """The received bytes of one connection, from `_start` to `_end` of `_view`.

    They lie either in a buffer that is borrowed for the turn (`feed`) or in an own one. Only one
    frame is received into an own buffer, never a byte beyond it; so most connections, whose
    requests are small, own nothing. Frames that `next_frame` gave out are valid until `settle`.
    """

    __slots__ = ("_end", "_own", "_pool", "_start", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, pool: BufferPool) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._pool = pool
        self._own: bytearray | None = None
        self._view = NOTHING
        self._start = 0
        self._end = 0

    def is_empty(self) -> bool:
        """Whether all bytes that were received were given out as frames."""
        return self._start == self._end

    @property
    def owned_bytes(self) -> int:
        """How much memory the connection holds on to between turns."""
        return 0 if self._own is None else len(self._own)

    def feed(self, view: memoryview, start: int, end: int) -> None:
        """Bytes that were received in `view`, which may be used until `settle`."""
        self._view = view
        self._start = start
        self._end = end

    def target(self) -> memoryview:
        """Where the rest of a begun frame is received; there must be one."""
        if self._own is None or self._end == len(self._own):
            self._make_room()
        room = self._start + self._needed_bytes() - self._end
        return self._view[self._end : self._end + room]

    def fill(self, receive: Callable[[memoryview], int], max_bytes: int) -> int | None:
        """Receive up to the end of a begun frame, or for now; about `max_bytes` at most.

        Returns how many bytes have come, None at the end of the stream. Nothing is received behind
        a whole frame: that would have no room, and look like the end.
        """
        count = 0
        while count < max_bytes and not self.has_frame():
            target = self.target()
            try:
                received = receive(target)
            except BlockingIOError:
                break
            if not received:
                return None
            self._end += received
            count += received
            if received < len(target):
                break
        return count

    def has_frame(self) -> bool:
        """Whether `next_frame` would give a frame, or complain about its size."""
        available = self._end - self._start
        if available < SIZE_BYTES:
            return False
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        return available - SIZE_BYTES >= size or size > self.max_frame_bytes

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None until more bytes have come."""
        start = self._start
        available = self._end - start
        if available < SIZE_BYTES:
            return None
        size = SIZE.unpack_from(self._view, start)[0]
        if not 0 < size <= self.max_frame_bytes:
            raise RemoteProtocolError(
                f"a request of {size} bytes: it must have 1 to {self.max_frame_bytes} "
                f"(socket.request.max.bytes, or sasl.server.max.receive.size before the login)"
            )
        if available - SIZE_BYTES < size:
            return None
        start += SIZE_BYTES
        self._start = end = start + size
        return self._view[start:end]

    def settle(self) -> None:
        """The turn is over: give borrowed buffers back, keep the bytes of a partial frame."""
        if self._start != self._end:
            if self._own is None:
                self._make_room()
            return
        if self._own is not None:
            self._pool.give(self._own)
            self._own = None
        self._view = NOTHING
        self._start = self._end = 0

    def clear(self) -> None:
        """Forget everything, as the connection is closed."""
        self._start = self._end
        self.settle()

    def begun(self) -> tuple[int, int]:
        """The API key and the size of a frame that is being received; 0 and 0 while not known."""
        if self._end - self._start < HEAD.size:
            return 0, 0
        size, api_key = HEAD.unpack_from(self._view, self._start)
        return api_key, size

    def _needed_bytes(self) -> int:
        """How many bytes, from `_start` on, make the frame whole (or at least its size known)."""
        if self._end - self._start < SIZE_BYTES:
            return SIZE_BYTES
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        return SIZE_BYTES + size

    def _make_room(self) -> None:
        """Move the bytes to the start of an own buffer that has room for more of the frame."""
        available = self._end - self._start
        needed = self._needed_bytes()
        capacity = max(available, min(needed, max(GROWTH * available, MIN_OWN_BYTES)))
        buffer = self._pool.take(capacity, max(available, needed))
        view = memoryview(buffer)
        view[:available] = self._view[self._start : self._end]
        if self._own is not None:
            self._pool.give(self._own)
        self._own = buffer
        self._view = view
        self._start = 0
        self._end = available
