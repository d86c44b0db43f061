"""The disk of the machine."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from ottla.compiled import mypyc_attr
from ottla.runtime.local_file import LocalFile, sync_to_disk

if TYPE_CHECKING:
    from ottla.runtime.disk import Buffer, DiskLock, File


@mypyc_attr(allow_interpreted_subclasses=True)  # a process that is killed in a test loses its disk
class LocalDisk:
    """`Disk` on the file systems of the machine."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            fd = os.open(path, flags, 0o644)
        except OSError as error:
            if create or error.errno not in (errno.EACCES, errno.EROFS):
                raise
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return LocalFile(path, fd)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            sync_to_disk(file.fileno())
        os.replace(temporary, path)
        self.fsync_dir(os.path.dirname(path) or ".")

    def rename(self, src: str, dst: str) -> None:
        os.replace(src, dst)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        from shutil import rmtree  # it imports three libraries that compress

        if os.path.islink(path):  # what it leads to may be more than the broker's own
            os.unlink(path)
        else:
            rmtree(path)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def make_private(self, path: str) -> None:
        os.chmod(path, 0o700)
        for entry in os.scandir(path):
            if entry.is_file(follow_symlinks=False):
                os.chmod(entry.path, 0o600)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        # Not os.path: it takes every error for a file that is not there.
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def usage(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        return LocalDiskLock(path)


class LocalDiskLock:
    """A `flock` on an open file: the kernel drops it when the process dies."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise OSError(error.errno, "another process holds the lock", path) from error

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
