"""The deletion of a group: tombstones on their way into the log, some of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.coordinator.group.group import Group
from ottla.coordinator.group.group_records import offset_key, tombstones
from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.structs import TopicPartition

Doomed = TopicPartition | bytes
"""What is to be deleted of a group: the offset of a partition, or the record of a key."""

OnStored = Callable[[ErrorCode], object]

TOMBSTONES_PER_BATCH: Final = 1000
TOMBSTONE_BYTES_PER_BATCH: Final = 256 * 1024
"""A group's id, which is in each key, may have 32 thousand letters."""


class Deletion:
    """Offsets and records of one group; each gets a tombstone.

    A batch waits for the one before it. Offsets that are committed meanwhile stay: its record
    stands before the tombstones that are still to come. `on_end` is called once, with True when the
    log has all of them; `on_stored` gets the answer, which may be known sooner. The list is
    the deletion's from now on, and is used up: a copy of half a million takes long.
    """

    def __init__(
        self,
        group: Group,
        doomed: list[Doomed],
        on_stored: OnStored,
        on_end: Callable[[bool], object],
    ) -> None:
        self.group = group
        self.on_stored = on_stored
        doomed.reverse()
        self._doomed = doomed  # used up, as very many are not freed in one step
        self._on_end: Callable[[bool], object] | None = on_end
        self._is_spared = False
        self._committed = group.offsets.begin_deletion()

    @property
    def is_written_out(self) -> bool:
        """Whether no batch comes after those that were made."""
        return not self._doomed

    def next_batch(self, now_ms: int) -> tuple[list[Doomed], bytes]:
        """The keys that the next batch deletes, and the batch with their tombstones."""
        batch: list[Doomed] = []
        keys: list[bytes] = []
        size = 0
        while self._doomed and len(batch) < TOMBSTONES_PER_BATCH:
            each = self._doomed[-1]
            if each in self._committed:
                self._is_spared = True
            else:
                key = each if isinstance(each, bytes) else offset_key(self.group.group_id, each)
                size += len(key)
                if batch and size > TOMBSTONE_BYTES_PER_BATCH:
                    break
                batch.append(each)
                keys.append(key)
            self._doomed.pop()
        return batch, build_batch(tombstones(keys, now_ms))

    def end(self, *, is_written: bool) -> None:
        """The log has all tombstones, or some of them are not going to be written."""
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            self.group.offsets.end_deletion(self._committed)
            on_end(is_written and not self._is_spared)
