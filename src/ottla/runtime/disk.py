"""Files and directories as the broker sees them: positioned reads and writes, and atomic swaps.

All file calls of the broker's rooms go through `Disk`, so that a test can put a disk in memory
under them that tears writes, fills up and breaks. What counts as durable is what POSIX promises
and no more: bytes after `fsync` of the file, names after `fsync_dir` of the directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """An open file without a position of its own.

    `close` belongs to the loop's thread; the other calls may also run on a background thread, and
    a call that is under way there when the file is closed still ends on the right file.
    """

    @property
    def path(self) -> str:
        """Where the file was when it was opened."""
        ...

    def size(self) -> int:
        """How long the file is: tracked, not asked of the kernel."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """`length` bytes at `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of `data`, or raise OSError."""
        ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None: ...

    def is_cached(self, length: int, position: int) -> bool:
        """Whether sending these bytes needs no wait for the disk, as far as can be told quickly."""
        ...

    def read_ahead(self, length: int, position: int) -> None:
        """Bring these bytes into the page cache, and begin with some that follow them."""
        ...

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None when there is none, because the disk is simulated."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class FileRegion:
    """A part of a file that can be sent without being read into memory."""

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        """The bytes of the region; fewer when the file ends inside it."""
        return self.file.pread(self.size, self.position)


class DiskLock(Protocol):
    """An exclusive lock on a path, held until it is released or the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system calls that the broker needs; all raise OSError as `os` does."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing, or only for reading where writing is not permitted."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def replace(self, path: str, data: Buffer) -> None:
        """Swap the contents of the file: after a crash there is the old or the new, whole."""
        ...

    def rename(self, src: str, dst: str) -> None:
        """Rename a file or a directory; a file at `dst` is replaced."""
        ...

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def make_dirs(self, path: str) -> None:
        """Make the directory and those above it where they are missing."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def fsync_dir(self, path: str) -> None: ...

    def usage(self, path: str) -> tuple[int, int]:
        """How many bytes the volume of a path has, and how many of them are free for us."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Lock `path`, which is created if need be; OSError when another process holds it."""
        ...
