"""The file that says up to where logs of the first design are copied."""

from __future__ import annotations

from uuid import UUID

from ottla.extensions.first_design.copied_ids import CopiedId, CopiedIds
from ottla.structs import NO_UUID, TopicPartition
from ottla.testing import MemoryDisk


def test_copied_ids_are_written_and_read_and_a_damaged_file_is_left_out(caplog):
    """What is lost with it is known from headers."""
    disk = MemoryDisk()
    written = {
        TopicPartition("pages", 0): CopiedId(1250, UUID(int=1), 40),
        TopicPartition("pages", 3): CopiedId(0, UUID(int=2**128 - 1), 0),
    }
    ids = CopiedIds(disk, "/ids")
    assert ids.read() == {}
    ids.write(written)
    assert ids.read() == written
    for damaged in (b"", b"0\n1\npages 0\n", b"0\n1\npages 0 1250 x 40\n", b"\xff"):
        disk.replace("/ids", damaged)
        assert ids.read() == {}
    assert caplog.text.count("a damaged checkpoint") == 4


def test_ids_of_0_2_are_for_any_topic_that_retention_has_shortened():
    """Those lines have no topic of today."""
    disk = MemoryDisk()
    disk.replace("/ids", b"0\n1\npages 0 1250\n")
    assert CopiedIds(disk, "/ids").read() == {
        TopicPartition("pages", 0): CopiedId(1250, NO_UUID, 1)
    }
