"""Bytes from a server on their way to becoming responses; never a socket in sight.

Each frame gets memory of its own, so that a response may keep views of it for as long as it
likes. A large frame is received straight into that memory; only its first bytes, and small
frames, are copied out of the buffer that all share.
"""

from __future__ import annotations

from ottla.errors import RemoteProtocolError
from ottla.protocol.header import SIZE, SIZE_BYTES

SHARED_BYTES = 32 * 1024
# A size that is no size (another protocol on the port) must not take memory ahead of the bytes.
FIRST_FRAME_BYTES = 4 * 1024 * 1024


class ResponseReader:
    """Give received bytes to `buffer`, say how many to `received`, get whole frames back."""

    __slots__ = ("_end", "_filled", "_frame", "_shared", "_size", "max_bytes")

    def __init__(self, max_bytes: int = 2**31 - 1) -> None:
        self.max_bytes = max_bytes
        """The largest frame that is accepted; a larger size is a RemoteProtocolError."""
        self._shared = memoryview(bytearray(SHARED_BYTES))
        self._end = 0
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0

    @property
    def beginning(self) -> bytes:
        """The first bytes that could not be split into frames."""
        return bytes(self._shared[:SIZE_BYTES])

    def buffer(self) -> memoryview:
        """Where the next bytes must be received."""
        if self._frame is None:
            return self._shared[self._end :]
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that `count` more bytes have made whole."""
        if self._frame is None:
            self._end += count
            return self._split()
        self._filled += count
        if self._filled < len(self._frame):
            return []
        if self._filled < self._size:
            self._allocate(2 * self._filled, memoryview(self._frame))
            return []
        frame = memoryview(self._frame)
        self._frame = None
        return [frame]

    def _split(self) -> list[memoryview]:
        """Take whole frames out of the shared buffer, and move the rest to where it belongs."""
        frames = []
        start = 0
        while self._end - start >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(self._shared, start)
            if not 0 <= size <= self.max_bytes:
                raise RemoteProtocolError(f"a response of {size} bytes")
            body = start + SIZE_BYTES
            if size > self._end - body:
                if size > SHARED_BYTES - SIZE_BYTES:
                    self._size = size
                    self._allocate(FIRST_FRAME_BYTES, self._shared[body : self._end])
                    start = self._end
                break
            start = body + size
            frames.append(memoryview(bytes(self._shared[body:start])))
        rest = bytes(self._shared[start : self._end])
        self._shared[: len(rest)] = rest
        self._end = len(rest)
        return frames

    def _allocate(self, max_bytes: int, beginning: memoryview) -> None:
        frame = bytearray(min(self._size, max_bytes))
        memoryview(frame)[: len(beginning)] = beginning
        self._filled = len(beginning)
        self._frame = frame
