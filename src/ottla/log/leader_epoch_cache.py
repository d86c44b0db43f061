"""The leader epochs that wrote a log, and where each of them begins (KIP-101, KIP-279).

    epoch  start offset
        3             0      offsets 0-1499 were written by the leader of epoch 3
        5          1500      the rest by the leader of epoch 5; epoch 4 wrote nothing

Invariant: epochs and start offsets both grow. The entries are also in the file
`leader-epoch-checkpoint`, which is written with the next flush of the log: until then they can be
restored from the batches, since each one carries its epoch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ottla.log.offset_checkpoint import CorruptCheckpointError, format_lines, parse_lines
from ottla.runtime import Disk
from ottla.structs import NO_EPOCH, NO_OFFSET, NamedTuple


class EpochEntry(NamedTuple):
    """An epoch and the offset of the first record written in it."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The epochs of one log."""

    __slots__ = ("_disk", "entries", "is_dirty", "latest_epoch", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.entries: list[EpochEntry] = []
        self.latest_epoch = NO_EPOCH
        self.is_dirty = False

    def load(self) -> bool:
        """Read the file; False if there is none. CorruptCheckpointError if it is damaged."""
        if not self._disk.exists(self.path):
            return False
        entries: list[EpochEntry] = []
        for words in parse_lines(self.path, self._disk.read_bytes(self.path)):
            try:
                epoch, start_offset = map(int, words)
            except ValueError:
                raise CorruptCheckpointError(
                    f"{self.path}: {' '.join(words)!r} is not epoch and offset"
                ) from None
            if entries and (epoch <= entries[-1].epoch or start_offset < entries[-1].start_offset):
                raise CorruptCheckpointError(f"{self.path}: its epochs are not in order")
            entries.append(EpochEntry(epoch, start_offset))
        self._set(entries)
        self.is_dirty = False
        return True

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that an epoch begins at an offset, unless it is known to have begun before."""
        if epoch <= self.latest_epoch or epoch < 0:
            return
        # An epoch that wrote nothing is overtaken by the one that starts at the same offset.
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._set([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEntry:
        """The largest epoch up to `epoch`, and where it ends; (-1, -1) if that is not known."""
        if epoch == self.latest_epoch and epoch != NO_EPOCH:
            return EpochEntry(epoch, log_end_offset)
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if index == len(self.entries):
            return EpochEntry(NO_EPOCH, NO_OFFSET)
        end_offset = self.entries[index].start_offset
        return EpochEntry(self.entries[index - 1].epoch if index else epoch, end_offset)

    def epoch_for(self, offset: int) -> int:
        """The epoch that an offset was written in; -1 if that is not known."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[index - 1].epoch if index else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or behind an offset."""
        index = bisect_left(self.entries, end_offset, key=lambda entry: entry.start_offset)
        if index < len(self.entries):
            self._set(self.entries[:index])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end before an offset; the one that holds it begins there now."""
        index = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if index and self.entries[0].start_offset < start_offset:
            current = EpochEntry(self.entries[index - 1].epoch, start_offset)
            self._set([current, *self.entries[index:]])

    def relocate(self, path: str) -> None:
        """Keep the file elsewhere, from the next flush on."""
        self.path = path
        self.is_dirty = True

    def clear(self) -> None:
        """Forget all epochs."""
        if self.entries:
            self._set([])

    def contents(self) -> bytes:
        """The content of an up-to-date file."""
        return format_lines(f"{epoch} {offset}" for epoch, offset in self.entries)

    def _set(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_EPOCH
        self.is_dirty = True
