"""The base of the offset index and the time index: fixed-size entries that only grow at the end.

The entries are kept in memory as they lie in the file and are written out when the segment is
closed, flushed or checkpointed, not one by one: after a crash the indexes of every segment that was
not known to be flushed are rebuilt anyway. The entries of a closed segment are read when first
looked up and may be dropped again.
"""

from __future__ import annotations

from contextlib import closing
from struct import Struct
from typing import ClassVar

from ottla.runtime import Disk


class CorruptIndexError(Exception):
    """An index that does not fit its segment; it can be rebuilt from the log."""


class IndexFile:
    """Entries of one index. Invariant: `_entries[:_written]` is the content of the file."""

    __slots__ = (
        "_count",
        "_disk",
        "_entries",
        "_newest",
        "_written",
        "base_offset",
        "is_full",
        "max_entries",
        "path",
    )

    ENTRY: ClassVar[Struct]
    KEPT_FREE: ClassVar[int] = 0
    """The entries that are left free where the index counts as full."""

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._entries: bytearray | None = None
        self._written = 0
        self._newest: int | None = None
        """What the last entry begins with, where that was asked for since entries were cut."""
        self._set_count(0)

    def create(self) -> None:
        """Begin an empty index; its file is made at once, because a missing one means damage."""
        self._entries = bytearray()
        self._set_count(0)
        self._write_from(0)

    def open(self) -> None:
        """Take the file as it is, without reading it; CorruptIndexError where it cannot be one."""
        try:
            size = self._disk.file_size(self.path)
        except FileNotFoundError:
            raise CorruptIndexError(f"{self.path} is missing") from None
        if size % self.ENTRY.size:
            raise CorruptIndexError(
                f"{self.path} has {size} bytes, which are no whole entries of {self.ENTRY.size}"
            )
        self._entries = None
        self._written = size
        self._set_count(size // self.ENTRY.size)

    def __len__(self) -> int:
        return self._count

    @property
    def written_bytes(self) -> int:
        """How many bytes are in the file."""
        return self._written

    def raw_entries(self) -> bytearray:
        """All entries as they lie in the file, read if they are not in memory."""
        if self._entries is None:
            self._entries = bytearray(self._disk.read_bytes(self.path)[: self._written])
        return self._entries

    def entry(self, index: int) -> tuple[int, ...]:
        """The numbers of one entry, as stored. Asking for the last one does not load the others."""
        if index == self._count - 1 and self._entries is None:
            return self.ENTRY.unpack(self._read_last())
        return self.ENTRY.unpack_from(self.raw_entries(), index * self.ENTRY.size)

    def write_out(self) -> None:
        """Write the entries that only memory has."""
        if self._entries is not None and len(self._entries) > self._written:
            self._write_from(self._written)

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries, in memory and in the file."""
        if count >= self._count:
            return
        size = count * self.ENTRY.size
        del self.raw_entries()[size:]
        self._set_count(count)
        if size < self._written:
            self._write_from(size)

    def release(self) -> None:
        """Free the memory; entries that are not in the file yet stay."""
        if self._entries is not None and len(self._entries) == self._written:
            self._entries = None

    def _append(self, *numbers: int) -> None:
        entries = self._entries
        if entries is None:
            entries = self.raw_entries()
        entries += self.ENTRY.pack(*numbers)
        self._count += 1
        self.is_full = self._count >= self.max_entries - self.KEPT_FREE

    def _set_count(self, count: int) -> None:
        self._count = count
        self._newest = None
        # Asked with every append, and another answer only after an entry that was added or cut.
        self.is_full = count >= self.max_entries - self.KEPT_FREE

    def _read_last(self) -> bytes:
        with closing(self._disk.open(self.path)) as file:
            return file.pread(self.ENTRY.size, self._written - self.ENTRY.size)

    def _write_from(self, position: int) -> None:
        entries = self.raw_entries()
        with closing(self._disk.open(self.path, create=True)) as file:
            if file.size() > position:
                file.truncate(position)
            if len(entries) > position:
                file.pwrite(bytes(entries[position:]), position)
        self._written = len(entries)
