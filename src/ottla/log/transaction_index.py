"""The transaction index of a segment: the aborted transactions that end in it.

An entry is 34 bytes: version (int16, 0), producer id, first offset, last offset (of the abort
marker) and the last stable offset when the marker was written. The file exists only where there
is such a transaction. Invariant: entries are in the order of their last offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from operator import attrgetter
from struct import Struct
from typing import Final

from ottla.log.index_file import CorruptIndexError
from ottla.runtime import Disk
from ottla.structs import NamedTuple

ENTRY: Final = Struct(">hqqqq")
TRANSACTION_INDEX_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """One aborted transaction, which a reader of committed records has to leave out."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, read from the file when first asked for."""

    __slots__ = ("_disk", "_entries", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTxn] | None = None

    def append(self, aborted: AbortedTxn) -> None:
        """Add a transaction that ends behind all others here."""
        with closing(self._disk.open(self.path, create=True)) as file:
            file.pwrite(ENTRY.pack(TRANSACTION_INDEX_VERSION, *aborted), file.size())
        if self._entries is not None:
            self._entries.append(aborted)

    def entries(self) -> list[AbortedTxn]:
        """Every aborted transaction; CorruptIndexError if the file cannot be an index."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def entries_from(self, offset: int) -> list[AbortedTxn]:
        """The transactions that end at or behind an offset."""
        entries = self.entries()
        return entries[bisect_left(entries, offset, key=attrgetter("last_offset")) :]

    def written_bytes(self) -> int:
        """How large the file is."""
        try:
            return self._disk.file_size(self.path)
        except FileNotFoundError:
            return 0

    def release(self) -> None:
        """Free the memory of entries that can be read again."""
        self._entries = None

    def _read(self) -> list[AbortedTxn]:
        if not self._disk.exists(self.path):
            return []
        raw = self._disk.read_bytes(self.path)
        if len(raw) % ENTRY.size:
            raise CorruptIndexError(
                f"{self.path} has {len(raw)} bytes, which are no whole entries of {ENTRY.size}"
            )
        found: list[AbortedTxn] = []
        for version, *numbers in ENTRY.iter_unpack(raw):
            aborted = AbortedTxn(*numbers)
            if version != TRANSACTION_INDEX_VERSION or aborted.last_offset < self.base_offset:
                raise CorruptIndexError(
                    f"{self.path}: version {version} of {aborted} is not one that belongs "
                    f"to the segment at offset {self.base_offset}"
                )
            found.append(aborted)
        return found

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that end at or behind an offset."""
        if not self._disk.exists(self.path):
            return
        count = sum(aborted.last_offset < offset for aborted in self.entries())
        file = self._disk.open(self.path)
        try:
            file.truncate(count * ENTRY.size)
        finally:
            file.close()
            self._entries = None

    def reset(self) -> None:
        """Forget all entries, because the segment is about to be scanned for them."""
        self._entries = None
        if self._disk.exists(self.path):
            self._disk.unlink(self.path)
