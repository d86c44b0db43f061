"""The time index: look-ups by timestamp, its order and its file."""

from __future__ import annotations

import pytest

from ottla.log.index_file import CorruptIndexError
from ottla.log.time_index import ENTRIES_IN_A_SLICE, TimeIndex, TimestampOffset
from ottla.runtime.scheduler import at_once
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
        at_once(index.check_order())


def test_check_order_accepts_what_was_appended():
    """A batch may bring two of the times that are noted."""
    index = new_index()
    index.maybe_append(4000, 120)
    at_once(index.check_order())
    assert index.last_entry() == (4000, 120)


@pytest.mark.parametrize("count", [1, ENTRIES_IN_A_SLICE, ENTRIES_IN_A_SLICE + 1, 25_000])
def test_order_is_checked_in_slices_and_once(count):
    """A search does not look at a quarter of a million entries each time, nor in one step."""
    index = TimeIndex(MemoryDisk(), PATH, 100, 10**6)
    index.create()
    for number in range(count):
        index.maybe_append(1000 + number, 100 + number)

    assert len(list(index.check_order())) == (count - 1) // ENTRIES_IN_A_SLICE
    assert not list(index.check_order())
    index.write_out()
    index.release()
    assert len(list(index.check_order())) == (count - 1) // ENTRIES_IN_A_SLICE


@pytest.mark.parametrize("place", [1, ENTRIES_IN_A_SLICE, ENTRIES_IN_A_SLICE + 1])
def test_damage_at_the_border_of_a_slice_is_seen(place):
    """The first entry of a slice is compared with the one before it as well."""
    disk = MemoryDisk()
    index = TimeIndex(disk, PATH, 100, 10**6)
    index.create()
    for number in range(ENTRIES_IN_A_SLICE + 2):
        index.maybe_append(1000 + number, 100 + number)
    index.write_out()
    disk.open(PATH).pwrite(TimeIndex.ENTRY.pack(0, 0), place * TimeIndex.ENTRY.size)
    index.release()

    with pytest.raises(CorruptIndexError, match="order"):
        at_once(index.check_order())


def test_index_that_is_cut_in_a_pause_of_the_check_is_checked_to_its_new_end():
    """The entries that follow the cut are looked at like all others."""
    index = TimeIndex(MemoryDisk(), PATH, 100, 10**6)
    index.create()
    for number in range(2 * ENTRIES_IN_A_SLICE):
        index.maybe_append(1000 + number, 100 + number)
    check = index.check_order()
    next(check)
    index.truncate_to(103)
    index.maybe_append(5000, 110)

    assert not list(check)
    assert list(index.entries())[-2:] == [(1002, 102), (5000, 110)]
