"""A disk in memory that loses, tears and refuses as real ones do.

It keeps the promises of POSIX: bytes survive a crash once their file was synced, names once
their directory was. A crash drops the rest, or keeps a random part of it, the last write torn at
any byte.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias

from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import Buffer, DiskLock, File
from ottla.testing.inodes import Directory, Inode


@dataclass(slots=True)
class MemoryDisk:
    """`Disk` in memory, with crashes, faults by operation and path, and limited space."""

    capacity_in_bytes: int | None = None
    crash_count: int = 0
    is_cold: bool = False
    """Whether the page cache is empty."""
    root: Directory = field(default_factory=Directory)
    faults: list[Fault] = field(default_factory=list)
    on_call: OnCall | None = None
    now_ms: Callable[[], int] = SystemClock().now_ms
    """The clock of the kernel, which stamps each change."""
    locked: set[str] = field(default_factory=set)
    open_files: list[str] = field(default_factory=list)
    """The path of each file that is open, as it was when it was opened."""

    # Calls of a test

    def fail(
        self,
        operation: str,
        path_pattern: str = "*",
        *,
        error: int = errno.EIO,
        times: int = 1,
        skip: int = 0,
    ) -> Fault:
        """Let calls of a method of `Disk` or `File` fail; the path is matched as by fnmatch."""
        fault = Fault(operation, path_pattern, error, times, skip)
        self.faults.append(fault)
        return fault

    def crash(self, chance: random.Random | None = None) -> None:
        """Lose changes that were not synced: all, or with `chance` a part, the last write torn."""
        self.root.crash(chance)
        self.end_process()

    def end_process(self) -> None:
        """End the process that uses the disk: its files are closed, and nothing written is lost."""
        self.locked = set()
        self.open_files = []
        self.crash_count += 1

    def sync_all(self) -> None:
        """Make everything that is on the disk now durable."""
        self.root.sync_all()

    def contents(self, path: str) -> bytes:
        """The bytes of a file, as processes see it, without a call that could fail."""
        return bytes(self._inode(path).data)

    def fill(self, room_in_bytes: int = 0) -> None:
        """Leave so much room beside the stored bytes; `capacity_in_bytes = None` ends that."""
        self.capacity_in_bytes = self.root.size() + room_in_bytes

    def check(self, operation: str, path: str) -> int | None:
        """Raise the OSError of the fault that matches this call, if any, or that of `on_call`.

        Returns the result of `on_call`: how many bytes of a `pwrite` are written at first.
        """
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise OSError(fault.error, os.strerror(fault.error), path)
        return None if self.on_call is None else self.on_call(operation, path)

    def room_in_bytes(self) -> int:
        if self.capacity_in_bytes is None:
            return 1 << 62
        return max(0, self.capacity_in_bytes - self.root.size())

    # Disk

    def open(self, path: str, *, create: bool = False) -> File:
        self.check("open", path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self.create(path)
        return MemoryFile(self, path, node)

    def create(self, path: str) -> Inode:
        """Make an empty file; it replaces one of that name."""
        directory, name = self._parent(path)
        node = directory.entries[name] = Inode(modified_ms=self.now_ms())
        return node

    def read_bytes(self, path: str) -> bytes:
        self.check("read_bytes", path)
        return bytes(self._inode(path).data)

    def replace(self, path: str, data: Buffer) -> None:
        self.check("replace", path)
        if len(data) > self.room_in_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        directory, name = self._parent(path)
        directory.entries[name] = Inode(bytes(data), self.now_ms())
        self.check("fsync_dir", posixpath.dirname(path))  # it comes last: the new file is there
        directory.sync()

    def rename(self, src: str, dst: str) -> None:
        self.check("rename", src)
        node = self._node(src)
        old_directory, old_name = self._parent(src)
        new_directory, new_name = self._parent(dst)
        target = new_directory.entries.get(new_name)
        if isinstance(target, Directory) and target.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), dst)
        del old_directory.entries[old_name]
        new_directory.entries[new_name] = node

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        self._inode(path)
        directory, name = self._parent(path)
        del directory.entries[name]

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)
        self._directory(path)
        parent, name = self._parent(path)
        del parent.entries[name]

    def make_private(self, path: str) -> None:
        self.check("make_private", path)
        self._directory(path)  # it has no users

    def make_dirs(self, path: str) -> None:
        self.check("make_dirs", path)
        directory = self.root
        for name in _names(path):
            node = directory.entries.setdefault(name, Directory())
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def list_dir(self, path: str) -> list[str]:
        self.check("list_dir", path)
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        self.check("is_dir", path)
        return isinstance(self._find(path), Directory)

    def file_size(self, path: str) -> int:
        self.check("file_size", path)
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        self.check("modified_ms", path)
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self.check("set_modified_ms", path)
        self._inode(path).modified_ms = time_ms

    def usage(self, path: str) -> tuple[int, int]:
        self.check("usage", path)
        room = self.room_in_bytes()
        return self.root.size() + int(room), int(room)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)
        self._directory(path).sync()

    def lock(self, path: str) -> DiskLock:
        self.check("lock", path)
        self.open(path, create=True).close()
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", path)
        self.locked.add(path)
        return MemoryDiskLock(self.locked, path)

    def _find(self, path: str) -> Inode | Directory | None:
        return self._at(_names(path))

    def _at(self, names: tuple[str, ...]) -> Inode | Directory | None:
        node: Inode | Directory | None = self.root
        for name in names:
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _node(self, path: str) -> Inode | Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        names = _names(path)
        directory = self._at(names[:-1])
        if not names or not isinstance(directory, Directory):
            return self._directory(posixpath.dirname(posixpath.normpath(path))), ""
        return directory, names[-1]


OnCall: TypeAlias = Callable[[str, str], int | None]
"""Asked before each call of a disk and of its files, with the name of the method and the path.

It may raise an OSError, which is then that of the call. For a `pwrite` it may return how many bytes
are written at first, as a kernel does that is short of room: it is asked again for the rest.
"""


@dataclass(slots=True)
class Fault:
    """The next `times` calls of `operation` on a matching path fail, after `skip` that do not."""

    operation: str
    path_pattern: str
    error: int
    times: int
    skip: int

    def strikes(self, operation: str, path: str) -> bool:
        """Whether this call fails; counts it."""
        if self.times <= 0 or operation != self.operation:
            return False
        if not fnmatchcase(path, self.path_pattern):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class MemoryFile:
    """An open file of a `MemoryDisk`; unusable after a crash, which ends the process."""

    __slots__ = ("_closed", "_disk", "_inode", "_life", "path")

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._life = disk.crash_count
        self._closed = False
        disk.open_files.append(path)

    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, length: int, position: int) -> bytes:
        self._check("pread")
        return bytes(self._inode.data[position : position + length])

    def pwrite(self, data: Buffer, position: int) -> None:
        content = bytes(data)
        short = self._check("pwrite")
        while short is not None and 0 < short < len(content):
            self._write(content[:short], position)
            content, position = content[short:], position + short
            short = self._check("pwrite")
        self._write(content, position)

    def _write(self, content: bytes, position: int) -> None:
        growth = position + len(content) - len(self._inode.data)
        room = self._disk.room_in_bytes()
        if growth > room:
            # As the kernel does: a short write of the bytes that fit, then the error.
            self._inode.write(position, content[: max(0, len(content) - (growth - room))])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._inode.write(position, content)
        self._inode.modified_ms = self._disk.now_ms()

    def truncate(self, size: int) -> None:
        self._check("truncate")
        self._inode.truncate(size)
        self._inode.modified_ms = self._disk.now_ms()

    def fsync(self) -> None:
        self._check("fsync")
        self._inode.sync()

    def is_cached(self, length: int, position: int) -> bool:
        return not self._disk.is_cold

    def read_ahead(self, length: int, position: int) -> None:
        self._check("read_ahead")

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._life == self._disk.crash_count:
                self._disk.open_files.remove(self.path)

    def _check(self, operation: str) -> int | None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        if self._life != self._disk.crash_count:
            raise OSError(errno.EIO, "the file was opened before the crash", self.path)
        return self._disk.check(operation, self.path)


class MemoryDiskLock:
    """A lock of a `MemoryDisk`; a crash drops it."""

    __slots__ = ("_locked", "_path")

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


@lru_cache(16_384)
def _names(path: str) -> tuple[str, ...]:
    """The names in a path; the same paths are asked for again and again."""
    return tuple(name for name in posixpath.normpath(path).split("/") if name not in ("", "."))
