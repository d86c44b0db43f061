"""Offset checkpoints: their text, and files that are not what they should be."""

from __future__ import annotations

import pytest

from ottla.log.offset_checkpoint import CorruptCheckpointError, OffsetCheckpoint
from ottla.structs import TopicPartition
from ottla.testing import MemoryDisk

PATH = "/recovery-point-offset-checkpoint"
OFFSETS = {TopicPartition("a.b-c", 0): 1500, TopicPartition("t", 12): 0}


def test_written_offsets_are_read_back():
    """The text is Kafka's."""
    disk = MemoryDisk()
    OffsetCheckpoint(disk, PATH).write(OFFSETS)

    assert disk.read_bytes(PATH) == b"0\n2\na.b-c 0 1500\nt 12 0\n"
    assert OffsetCheckpoint(disk, PATH).read() == OFFSETS


def test_missing_file_has_no_offsets():
    """A new directory has no checkpoints."""
    assert OffsetCheckpoint(MemoryDisk(), PATH).read() is None


def test_empty_file_has_no_offsets():
    """Kafka leaves one in a directory where it has compacted nothing yet."""
    disk = MemoryDisk()
    disk.replace(PATH, b"")

    assert OffsetCheckpoint(disk, PATH).read() is None


def test_same_offsets_are_not_written_again():
    """An idle broker does not write to its disk."""
    disk = MemoryDisk()
    checkpoint = OffsetCheckpoint(disk, PATH)
    checkpoint.write(OFFSETS)
    disk.fail("replace")
    checkpoint.write(OFFSETS)

    with pytest.raises(OSError, match="error"):
        checkpoint.write({})


@pytest.mark.parametrize(
    "raw",
    [
        b"0\n",
        b"\xff\xfe",
        b"1\n1\nt 0 5\n",
        b"0\n2\nt 0 5\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt x 5\n",
        bytes(30),
    ],
)
def test_damaged_file_is_refused(raw):
    """Wrong version, wrong count, or lines that say something else."""
    disk = MemoryDisk()
    disk.replace(PATH, raw)

    with pytest.raises(CorruptCheckpointError, match="recovery-point"):
        OffsetCheckpoint(disk, PATH).read()
