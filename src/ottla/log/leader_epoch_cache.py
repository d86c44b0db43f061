"""Which leader epochs wrote a log, and where each of them begins (KIP-101, KIP-279).

    epoch  start offset
        3             0      offsets 0-1499 were written by the leader of epoch 3
        5          1500      the rest by the leader of epoch 5; epoch 4 wrote nothing

Invariant: epochs and start offsets both grow. The entries are also in the file
`leader-epoch-checkpoint`, which is written with the next flush of the log: until then they can be
restored from the batches, since each one carries its epoch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.runtime import Disk
from ottla.structs import NO_EPOCH, NO_OFFSET, TopicPartition

# Small text files that keep offsets: a version, a count, and a line for each entry.
#
#     0
#     2
#     topic 0 1500
#     topic 1 42
#
# They are replaced as a whole, so that a crash leaves the old contents or the new ones.


CHECKPOINT_VERSION: Final = 0

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"


class CorruptCheckpointError(Exception):
    """A checkpoint file that does not say what it should; the text names file and line."""


def format_lines(entries: Iterable[str]) -> bytes:
    """The file with these entries."""
    lines = list(entries)
    return "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""]).encode()


def parse_lines(path: str, raw: bytes) -> list[list[str]]:
    """The words of each entry; CorruptCheckpointError unless version and count are right."""
    try:
        lines = raw.decode("ascii").splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError):
        raise CorruptCheckpointError(
            f"{path}: it does not begin with a version and a count"
        ) from None
    entries = [line.split() for line in lines[2:] if line.strip()]
    if version != CHECKPOINT_VERSION or count != len(entries):
        raise CorruptCheckpointError(
            f"{path}: version {version} (should be {CHECKPOINT_VERSION}), "
            f"{len(entries)} entries of {count}"
        )
    return entries


class OffsetCheckpoint:
    """An offset for each partition of a log directory."""

    __slots__ = ("_disk", "_last", "_written", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._last: bytes | None = None
        self._written: Mapping[TopicPartition, int] = {}

    def read(self) -> dict[TopicPartition, int] | None:
        """The offsets; CorruptCheckpointError if the file is damaged.

        None if it does not exist or is empty: Kafka makes it before it has anything to write.
        """
        try:
            raw = self._disk.read_bytes(self.path)
        except FileNotFoundError:
            return None
        if not raw:
            return None
        offsets: dict[TopicPartition, int] = {}
        for words in parse_lines(self.path, raw):
            try:
                topic, partition, offset = words
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError:
                raise CorruptCheckpointError(
                    f"{self.path}: {' '.join(words)!r} is not topic, partition and offset"
                ) from None
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file; nothing is written when it holds just these offsets already.

        In that case its size is asked for: OSError then shows a failure of an idle directory.
        """
        data = format_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        if data != self._last or not self._is_there():
            self._disk.replace(self.path, data)
            self._last = data
            self._written = offsets

    def written(self, topic_partition: TopicPartition) -> int:
        """The offset of a partition that was last written by this process; -1 if none was."""
        return self._written.get(topic_partition, -1)

    def forget(self) -> None:
        """Write the file the next time even if unchanged: only that proves that it works."""
        self._last = None

    def _is_there(self) -> bool:
        try:
            self._disk.file_size(self.path)
        except FileNotFoundError:
            return False
        return True


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
        if epoch > self.latest_epoch or not self.entries:
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
        """What the file holds once it is up to date."""
        return format_lines(f"{epoch} {offset}" for epoch, offset in self.entries)

    def _set(self, entries: list[EpochEntry]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_EPOCH
        self.is_dirty = True
