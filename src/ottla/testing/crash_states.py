"""Every state that a crash can leave a disk in, made from a record of all changes to the disk.

`RecordingDisk` notes each change that a run makes. `crash_state` repeats the first so many of them
on a disk of its own, and then ends the process (written bytes are kept) or the power: bytes
that were not synced are lost, or the kernel had happened to write back some, in any order between
files, with the last write torn at any byte, or with its size on the disk and its bytes not.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from ottla.runtime.disk import Buffer, File
from ottla.testing.inodes import Directory, Inode, PendingWrite
from ottla.testing.memory_disk import MemoryDisk, MemoryFile

WRITE_BACK_CHANCE = 0.1
HOLE_CHANCE = 0.2


class DiskChange(NamedTuple):
    """A change of a disk: a method of `Disk` or `File`, with the number of the file if any."""

    operation: str
    path: str
    number: int = -1
    position: int = 0
    data: bytes = b""
    target: str = ""


class RecordingFile(MemoryFile):
    """An open file whose changes are noted."""

    __slots__ = ("_number", "_recorder")

    def __init__(self, disk: RecordingDisk, path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        self._recorder = disk
        self._number = disk.number_of(inode)

    def _write(self, content: bytes, position: int) -> None:
        super()._write(content, position)
        self._note("pwrite", position, content)

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._note("truncate", size)

    def fsync(self) -> None:
        super().fsync()
        self._note("fsync")

    def _note(self, operation: str, position: int = 0, data: bytes = b"") -> None:
        self._recorder.trace.append(DiskChange(operation, self.path, self._number, position, data))


@dataclass(slots=True)
class RecordingDisk(MemoryDisk):
    """A disk in memory that notes all changes in the order in which they were made.

    An operation that a real disk does in several steps is done and noted in several.
    """

    trace: list[DiskChange] = field(default_factory=list)
    _inodes: list[Inode] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def number_of(self, inode: Inode) -> int:
        """The number that a file has in the trace."""
        return self._numbers[id(inode)]

    def open(self, path: str, *, create: bool = False) -> File:
        is_new = create and not self.exists(path)
        MemoryDisk.open(self, path, create=create)
        inode = self._inode(path)
        if is_new:
            self._numbers[id(inode)] = len(self._inodes)
            self.trace.append(DiskChange("create", path, len(self._inodes)))
            self._inodes.append(inode)
        return RecordingFile(self, path, inode)

    def replace(self, path: str, data: Buffer) -> None:
        self.check("replace", path)
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.fsync()
        self.rename(temporary, path)
        self.fsync_dir(posixpath.dirname(path))

    def rename(self, src: str, dst: str) -> None:
        MemoryDisk.rename(self, src, dst)
        self.trace.append(DiskChange("rename", src, target=dst))

    def unlink(self, path: str) -> None:
        MemoryDisk.unlink(self, path)
        self.trace.append(DiskChange("unlink", path))

    def remove_tree(self, path: str) -> None:
        for name in self.list_dir(path):
            inner = f"{path}/{name}"
            (self.remove_tree if self.is_dir(inner) else self.unlink)(inner)
        MemoryDisk.remove_tree(self, path)
        self.trace.append(DiskChange("remove_tree", path))

    def make_dirs(self, path: str) -> None:
        is_new = not self.is_dir(path)
        MemoryDisk.make_dirs(self, path)
        if is_new:
            self.trace.append(DiskChange("make_dirs", path))

    def fsync_dir(self, path: str) -> None:
        MemoryDisk.fsync_dir(self, path)
        self.trace.append(DiskChange("fsync_dir", path))

    def lose_power(self, seed: int) -> None:
        """Crash in the middle of the trace, which continues on the disk that the crash has left."""
        MemoryDisk.crash(self, random.Random(seed))
        self.trace.append(DiskChange("crash", "/", seed))


class Fate(Enum):
    """The fate of bytes that were not synced."""

    KEPT = "kept"
    LOST = "lost"
    TORN = "torn"


class CrashPoint(NamedTuple):
    """A crash: the number of changes before it, the fate of unsynced data, and the seed."""

    length: int
    fate: Fate
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.length}-{self.fate.value}-{self.seed}"


def crash_points(length: int, torn: int) -> Iterator[CrashPoint]:
    """All prefixes of a trace with unsynced data kept, lost, and torn in some ways."""
    for prefix in range(length + 1):
        yield CrashPoint(prefix, Fate.KEPT)
        yield CrashPoint(prefix, Fate.LOST)
        for seed in range(torn):
            yield CrashPoint(prefix, Fate.TORN, seed)


def crash_state(trace: Sequence[DiskChange], point: CrashPoint) -> MemoryDisk:
    """The disk as the next process finds it."""
    replay = _Replay()
    chance = random.Random(f"{point.length} {point.seed}")
    changes = trace[: point.length]
    last_crash = max((i for i, c in enumerate(changes) if c.operation == "crash"), default=-1)
    for index, change in enumerate(changes):
        replay.apply(change)
        if point.fate is Fate.TORN and index > last_crash and chance.random() < WRITE_BACK_CHANCE:
            replay.write_back(chance)
    disk = replay.disk
    if point.fate is Fate.KEPT:
        disk.locked.clear()
        return disk
    if point.fate is Fate.TORN:
        _punch_holes(disk.root, chance)
    disk.crash(chance if point.fate is Fate.TORN else None)
    return disk


def fingerprint(disk: MemoryDisk) -> bytes:
    """A digest that is the same for disks with the same names and contents."""
    digest = blake2b(digest_size=16)
    for path, inode in _files(disk.root, ""):
        contents = b"/" if inode is None else bytes(inode.data)
        digest.update(b"%d %d %s" % (len(path), len(contents), path.encode()) + contents)
    return digest.digest()


def _files(directory: Directory, path: str) -> Iterator[tuple[str, Inode | None]]:
    """All files and (without an inode) directories below one."""
    for name, node in sorted(directory.entries.items()):
        inner = f"{path}/{name}"
        if isinstance(node, Directory):
            yield inner, None
            yield from _files(node, inner)
        else:
            yield inner, node


def _punch_holes(root: Directory, chance: random.Random) -> None:
    """Zero some pending writes: the size of the file reached the disk before the bytes."""
    for _, inode in _files(root, ""):
        if inode is not None and inode.pending and chance.random() < HOLE_CHANCE:
            index = chance.randrange(len(inode.pending))
            position, data = inode.pending[index]
            if data is not None:
                inode.pending[index] = PendingWrite(position, bytes(len(data)))


class _Replay:
    """Repeats recorded changes on a disk of its own."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.inodes: list[Inode] = []
        self.apply_by_operation: dict[str, Callable[[DiskChange], object]] = {
            "create": self._create,
            "pwrite": lambda c: self.inodes[c.number].write(c.position, c.data),
            "truncate": lambda c: self.inodes[c.number].truncate(c.position),
            "fsync": lambda c: self.inodes[c.number].sync(),
            "rename": lambda c: self.disk.rename(c.path, c.target),
            "unlink": lambda c: self.disk.unlink(c.path),
            "remove_tree": lambda c: self.disk.remove_tree(c.path),
            "make_dirs": lambda c: self.disk.make_dirs(c.path),
            "fsync_dir": lambda c: self.disk.fsync_dir(c.path),
            "crash": lambda c: self.disk.crash(random.Random(c.number)),
        }

    def apply(self, change: DiskChange) -> None:
        self.apply_by_operation[change.operation](change)

    def _create(self, change: DiskChange) -> None:
        assert change.number == len(self.inodes), "files are created in the order of the record"
        self.inodes.append(self.disk.create(change.path))

    def write_back(self, chance: random.Random) -> None:
        """Sync a random file or directory, as the kernel may at any time."""
        files = list(_files(self.disk.root, ""))
        if not files:
            return
        path, inode = chance.choice(files)
        if inode is None:
            self.disk.fsync_dir(path)
        else:
            inode.sync()
