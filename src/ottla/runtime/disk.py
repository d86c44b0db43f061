"""Files and directories as the broker sees them: positioned reads and writes, and atomic swaps.

All file calls of the broker's rooms go through `Disk`, so that a test can put a disk in memory
under them that tears writes, fills up and breaks. It is as durable as POSIX promises, and no more:
bytes after `fsync` of the file, names after `fsync_dir` of the directory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Protocol, TypeAlias

from ottla.errors import ConfigError
from ottla.structs import Value

Buffer: TypeAlias = bytes | bytearray | memoryview


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

    def make_private(self, path: str) -> None:
        """Keep the directory and the files in it from all users but the one that runs this."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is anything of this name; OSError where that cannot be found out."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether there is a directory of this name; OSError where that cannot be found out."""
        ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written to, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Let a copy count as written when its source was."""
        ...

    def fsync_dir(self, path: str) -> None: ...

    def usage(self, path: str) -> tuple[int, int]:
        """How many bytes the volume of a path has, and how many of them are free for us."""
        ...

    def lock(self, path: str) -> DiskLock:
        """Lock `path`, which is created if need be; OSError when another process holds it."""
        ...


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
        """Whether sending these bytes needs no wait for the disk, as far as a quick look shows."""
        ...

    def read_ahead(self, length: int, position: int) -> None:
        """Bring these bytes into the page cache, and begin with some that follow them."""
        ...

    def fileno(self) -> int | None:
        """The descriptor for `sendfile`; None when there is none, because the disk is simulated."""
        ...

    def close(self) -> None: ...


class FileRegion(Value):
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


def claim_shared_folder(path: str, key: str) -> None:
    """Make a folder below a place that all users write to so that it is this user's alone.

    In other places nothing is done. ConfigError, with the setting's `key`, as `claim_folder`.
    """
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(parent) and os.stat(parent).st_mode & stat.S_IWOTH:
        claim_folder(path, key)


def claim_folder(path: str, key: str) -> None:
    """Make a folder for this user alone, unless it is there.

    ConfigError where another user has it or may write to it: files that this user writes there
    might be links to others of its own.
    """
    with contextlib.suppress(FileExistsError):
        os.makedirs(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{key}={path}: must be a folder, and no link to one")
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{key}={path}: belongs to the user with id {found.st_uid}; name another folder"
        )
    if found.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{key}={path}: every user may write to it; chmod 700 it")
