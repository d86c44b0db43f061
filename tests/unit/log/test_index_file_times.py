"""The time index: look-ups by timestamp, its order and its file."""

from __future__ import annotations

import pytest

from ottla.log.index_file import CorruptIndexError, TimeIndex, TimestampOffset
from ottla.testing import MemoryDisk

PATH = "/00000000000000000100.timeindex"


def new_index(disk: MemoryDisk | None = None, max_bytes: int = 120) -> TimeIndex:
    index = TimeIndex(disk or MemoryDisk(), PATH, 100, max_bytes)
    index.create()
    for timestamp_ms, offset in ((1000, 104), (2000, 111), (3000, 120)):
        index.maybe_append(timestamp_ms, offset)
    return index


@pytest.mark.parametrize(
    ("timestamp_ms", "entry"),
    [(999, (-1, 100)), (1000, (1000, 104)), (2999, (2000, 111)), (9999, (3000, 120))],
)
def test_lookup_finds_the_last_entry_at_or_before_a_time(timestamp_ms, entry):
    """Before the first entry there is only the beginning of the segment."""
    assert new_index().lookup(timestamp_ms) == entry


@pytest.mark.parametrize("timestamp_ms", [2500, 3000])
def test_maybe_append_leaves_out_what_is_not_later(timestamp_ms):
    """Only a new largest timestamp says something."""
    index = new_index()
    index.maybe_append(timestamp_ms, 130)

    assert index.last_entry() == (3000, 120)


def test_entries_are_timestamp_and_relative_offset():
    """The file is as Kafka's tools read it."""
    disk = MemoryDisk()
    new_index(disk).write_out()

    assert disk.read_bytes(PATH)[12:24].hex() == "00000000000007d00000000b"


def test_truncate_drops_entries_at_and_behind_the_offset():
    """Timestamps of dropped batches are forgotten."""
    index = new_index()
    index.truncate_to(120)

    assert list(index.entries()) == [TimestampOffset(1000, 104), TimestampOffset(2000, 111)]


def test_time_that_was_cut_off_can_come_again():
    """What the newest time is follows the entries, also when these are read from the file."""
    disk = MemoryDisk()
    index = new_index(disk)
    index.truncate_to(120)
    index.maybe_append(2500, 118)
    index.maybe_append(2500, 119)
    assert list(index.entries())[2:] == [(2500, 118)]
    index.write_out()
    again = TimeIndex(disk, PATH, 100, 120)
    again.open()
    again.maybe_append(2500, 121)
    again.maybe_append(2501, 122)

    assert again.last_entry() == (2501, 122)
    assert len(again) == 4


def test_index_is_full_one_entry_early():
    """The last place is for the entry that closes the segment."""
    for max_bytes, is_full in ((48, True), (60, False)):
        disk = MemoryDisk()
        index = new_index(disk, max_bytes)
        assert index.is_full is is_full
        index.write_out()
        index.open()
        assert index.is_full is is_full


@pytest.mark.parametrize("damage", [(12, bytes(12)), (20, b"\x7f"), (18, b"\x03\xe8")])
def test_check_order_refuses_damage_in_the_middle(damage):
    """A search in such an index could miss records."""
    position, data = damage
    disk = MemoryDisk()
    new_index(disk).write_out()
    disk.open(PATH).pwrite(data, position)
    index = TimeIndex(disk, PATH, 100, 120)
    index.open()

    with pytest.raises(CorruptIndexError, match="order"):
        index.check_order()


def test_check_order_accepts_what_was_appended():
    """A batch may bring two of the times that are noted."""
    index = new_index()
    index.maybe_append(4000, 120)
    index.check_order()
    assert index.last_entry() == (4000, 120)
