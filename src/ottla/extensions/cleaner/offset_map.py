"""The last offset of each key in the part of a log that has not been compacted yet.

24 bytes a key, however long it is: a digest of 16 bytes and the offset, in one flat table that
the kernel walks. When the table is full, the map ends at the offset where the next key would
begin, and the rest of the log is left for the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.record import kernel
from ottla.record.plain_compaction import ENTRY_BYTES, KeptRecords
from ottla.record.record_batch import RecordBatch

if TYPE_CHECKING:
    from typing_extensions import Buffer


class OffsetMap:
    """Keys and their last offsets. Invariant: every key from `start_offset` on, before
    `end_offset`, is known; before the start, only the last record of a key is left.
    """

    __slots__ = ("_secret", "_table", "capacity", "count", "end_offset", "start_offset")

    def __init__(self, capacity: int, slots: int, secret: bytes, start_offset: int) -> None:
        # One slot must stay free: a search ends there.
        self._table = bytearray(ENTRY_BYTES * max(slots, capacity + 1, 2))
        self._secret = secret
        self.capacity = max(1, capacity)
        self.count = 0
        self.start_offset = self.end_offset = start_offset

    @classmethod
    def within(
        cls,
        max_bytes: int,
        load_factor: float,
        wanted_count: int,
        secret: bytes,
        start_offset: int,
    ) -> OffsetMap:
        """A map for so many keys, or as many as fit into the memory."""
        max_slots = max_bytes // ENTRY_BYTES
        capacity = min(wanted_count, int(max_slots * load_factor), max_slots - 1)
        return cls(capacity, int(capacity / load_factor), secret, start_offset)

    def __len__(self) -> int:
        return self.count

    def note(self, batch: RecordBatch) -> bool:
        """Note the keys of the next batch; False if there was no room for all of them."""
        added, self.end_offset = kernel.note_keys(
            self._table,
            self._secret,
            self.capacity - self.count,
            batch,
            batch.payload(),
            self.start_offset,
        )
        self.count += added
        return self.end_offset == batch.next_offset

    def last_offset(self, key: bytes) -> int:
        """The last offset that is known of a key; -1 if none is."""
        return kernel.last_offset(self._table, self._secret, key)

    def keep(self, batch: RecordBatch, payload: Buffer, keep_tombstones: bool) -> KeptRecords:
        """The records of a batch that no later one of the same key makes superfluous."""
        return kernel.keep_records(
            self._table, self._secret, self.end_offset, batch, payload, keep_tombstones
        )
