"""Small text files that keep offsets: a version, a count, and a line for each entry.

    0
    2
    topic 0 1500
    topic 1 42

They are replaced as a whole, so that a crash leaves the old contents or the new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.runtime import Disk
from ottla.structs import TopicPartition

VERSION: Final = 0

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"


class CorruptCheckpointError(Exception):
    """A checkpoint file that does not say what it should; the text names file and line."""


def format_lines(entries: Iterable[str]) -> bytes:
    """The file with these entries."""
    lines = list(entries)
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


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
    if version != VERSION or count != len(entries):
        raise CorruptCheckpointError(
            f"{path}: version {version} (should be {VERSION}), {len(entries)} entries of {count}"
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

    def read(self) -> dict[TopicPartition, int]:
        """The offsets; none if the file does not exist. CorruptCheckpointError if it is damaged."""
        try:
            raw = self._disk.read_bytes(self.path)
        except FileNotFoundError:
            return {}
        offsets: dict[TopicPartition, int] = {}
        if not raw:  # Kafka makes the file before it has anything to write
            return offsets
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

        Then it is looked at, so that OSError tells of a directory that nobody writes to otherwise.
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
        """Write the file anew the next time, whatever it holds: only that proves that it can be."""
        self._last = None

    def _is_there(self) -> bool:
        try:
            self._disk.file_size(self.path)
        except FileNotFoundError:
            return False
        return True
