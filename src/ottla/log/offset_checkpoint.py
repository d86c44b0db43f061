"""Checkpoints: small text files of offsets by partition, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.log.log_files import parent_of
from ottla.runtime import Disk
from ottla.structs import TopicPartition

CHECKPOINT_VERSION: Final = 0

CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


class CorruptCheckpointError(Exception):
    """A checkpoint file with wrong lines; the text names file and line."""


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

    __slots__ = ("_disk", "_last", "_written", "kept", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._last: bytes | None = None
        self._written: Mapping[TopicPartition, int] = {}
        self.kept: dict[TopicPartition, int] = {}  # of logs that are not served, but stay

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

        Its directory is synced all the same, and with it the new names of deleted logs; OSError
        then shows a failure of an idle directory.
        """
        offsets = {**self.kept, **offsets}
        data = format_lines(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        if data != self._last or not self._disk.exists(self.path):
            self._disk.replace(self.path, data)
            self._last = data
            self._written = offsets
        else:
            self._disk.fsync_dir(parent_of(self.path))

    def written(self, topic_partition: TopicPartition) -> int:
        """The offset of a partition that was last written by this process; -1 if none was."""
        return self._written.get(topic_partition, -1)

    def forget(self) -> None:
        """Write the file the next time even if unchanged: only that proves that it works."""
        self._last = None
