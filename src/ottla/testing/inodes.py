"""Files and directories of a `MemoryDisk`, with the writes that are not synced yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random


class PendingWrite(NamedTuple):
    """A change that no fsync has made durable: bytes at a position, or (data None) a new size."""

    position: int
    data: bytes | None


class Inode:
    """The contents of a file: as processes see them, and as they are after a loss of power."""

    __slots__ = ("data", "durable", "modified_ms", "pending")

    def __init__(self, data: bytes = b"", modified_ms: int = 0) -> None:
        self.modified_ms = modified_ms
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.pending: list[PendingWrite] = []

    def write(self, position: int, data: bytes) -> None:
        change = PendingWrite(position, data)
        self.pending.append(change)
        _apply(self.data, change)

    def truncate(self, size: int) -> None:
        change = PendingWrite(size, None)
        self.pending.append(change)
        _apply(self.data, change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def crash(self, chance: random.Random | None) -> None:
        if chance is not None and self.pending:
            kept = self.pending[: chance.randrange(len(self.pending) + 1)]
            if kept:
                position, data = kept[-1]
                if data is not None:
                    torn = data[: chance.randrange(len(data) + 1)]
                    kept[-1] = PendingWrite(position, torn)
            for change in kept:
                _apply(self.durable, change)
        self.pending.clear()
        self.data = bytearray(self.durable)


class Directory:
    """The entries of a directory: now, and after a crash."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}

    def sync(self) -> None:
        self.durable = dict(self.entries)

    def sync_all(self) -> None:
        self.sync()
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.sync_all()
            else:
                node.sync()

    def crash(self, chance: random.Random | None) -> None:
        if chance is not None and chance.random() < 0.5:
            self.sync()  # the kernel happened to write the directory back in time
        self.entries = dict(self.durable)
        for node in self.entries.values():
            node.crash(chance)

    def size(self) -> int:
        return sum(
            node.size() if isinstance(node, Directory) else len(node.data)
            for node in self.entries.values()
        )


def _apply(data: bytearray, change: PendingWrite) -> None:
    position, written = change
    if written is None:
        del data[position:]
    end = position + len(written or b"")
    if len(data) < end:
        data.extend(bytes(end - len(data)))
    if written:
        data[position:end] = written
