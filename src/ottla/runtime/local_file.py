"""A file of the machine, read and written at positions, by the loop and by other threads."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.runtime.disk import Buffer

# The kernel moves at most 0x7ffff000 bytes per call; staying far below keeps one call short.
MAX_BYTES_PER_CALL = 1 << 30
# The kernel reads ahead in pieces of this size by default, so that a piece is in the page cache, or
# is not, as a whole.
CACHE_PIECE_BYTES = 128 * 1024
# Bytes that are read ahead go into the same few pages over and over: they are never read there.
SCRATCH_BYTES = 32 * 1024
READ_BYTES = 16 * SCRATCH_BYTES
# Sequential readers will soon want the bytes that follow.
AHEAD_BYTES = 2 * 1024 * 1024
# Bytes that this process has just written are still in the page cache.
HOT_TAIL_BYTES = 64 * 1024


class LocalFile:
    """A file of the machine. Invariant: the descriptor is closed once, after the last call on it.

    Background threads may be inside `fsync` or `pread` when the loop closes the file. If the
    descriptor were closed under them, its number could be given to another file in the same
    moment. So each call notes that it is under way; append and pop of a list are atomic, which
    makes them all the lock that is needed.
    """

    __slots__ = ("_calls", "_closed", "_descriptors", "_fd", "_opened_size", "_size", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._descriptors = [fd]  # the call that pops it closes it
        self._calls: list[None] = []
        self._closed = False
        self._size = self._opened_size = os.fstat(fd).st_size

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r}, size={self._size})"

    def size(self) -> int:
        return self._size

    def pread(self, length: int, position: int) -> bytes:
        self._calls.append(None)
        try:
            self._check_open()
            data = os.pread(self._fd, min(length, MAX_BYTES_PER_CALL), position)
            if len(data) < length:
                data = self._read_on(data, length, position)
            return data
        finally:
            self._end_call()

    def pwrite(self, data: Buffer, position: int) -> None:
        self._calls.append(None)
        try:
            self._check_open()
            length = data.nbytes if isinstance(data, memoryview) else len(data)
            written = os.pwrite(self._fd, data, position)
            if written < length:
                self._write_on(memoryview(data).cast("B")[written:], position + written)
            self._size = max(self._size, position + length)
        finally:
            self._end_call()

    def truncate(self, size: int) -> None:
        self._calls.append(None)
        try:
            self._check_open()
            os.ftruncate(self._fd, size)
            self._size = size
        finally:
            self._end_call()

    def fsync(self) -> None:
        self._calls.append(None)
        try:
            self._check_open()
            sync_to_disk(self._fd)
        finally:
            self._end_call()

    def is_cached(self, length: int, position: int) -> bool:
        if position >= self._opened_size and position >= self._size - HOT_TAIL_BYTES:
            return True
        self._check_open()
        if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "preadv"):
            return True  # the system cannot tell
        probe = (bytearray(1),)
        last = position + length - 1
        try:
            for place in range(position, last, CACHE_PIECE_BYTES):
                os.preadv(self._fd, probe, place, os.RWF_NOWAIT)
            os.preadv(self._fd, probe, last, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # the file system cannot tell
            return True
        return True

    def read_ahead(self, length: int, position: int) -> None:
        self._calls.append(None)
        try:
            self._check_open()
            end = position + length
            if hasattr(os, "posix_fadvise"):
                # Piece by piece: of more than that the kernel would leave the rest out.
                for piece in range(position, end + AHEAD_BYTES, CACHE_PIECE_BYTES):
                    os.posix_fadvise(self._fd, piece, CACHE_PIECE_BYTES, os.POSIX_FADV_WILLNEED)
            scratch = (bytearray(SCRATCH_BYTES),) * (READ_BYTES // SCRATCH_BYTES)
            while position < end and hasattr(os, "preadv"):
                wanted = -(-(end - position) // SCRATCH_BYTES)
                count = os.preadv(self._fd, scratch[:wanted], position)
                if not count:
                    return
                position += count
        finally:
            self._end_call()

    def fileno(self) -> int | None:
        self._check_open()
        return self._fd

    def close(self) -> None:
        self._closed = True
        self._close_if_unused()

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)

    def _end_call(self) -> None:
        self._calls.pop()
        if self._closed:
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._calls:
            return
        try:
            fd = self._descriptors.pop()
        except IndexError:  # another thread was faster
            return
        os.close(fd)

    def _read_on(self, data: bytes, length: int, position: int) -> bytes:
        """The rest of a read that came back short; a read of nothing is the end of the file."""
        parts = [data]
        done = len(data)
        while data and done < length:
            data = os.pread(self._fd, min(length - done, MAX_BYTES_PER_CALL), position + done)
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def _write_on(self, rest: memoryview, position: int) -> None:
        """The rest of a write that came back short: it ends, or the kernel says why it cannot."""
        while rest:
            written = os.pwrite(self._fd, rest, position)
            rest = rest[written:]
            position += written


def sync_to_disk(fd: int) -> None:
    """fsync; on macOS also out of the disk's own cache, as far as the file system can."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        try:
            fcntl.fcntl(fd, full_sync)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
        else:
            return
    os.fsync(fd)
