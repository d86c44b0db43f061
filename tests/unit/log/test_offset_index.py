"""The offset index: look-ups, truncation, what is on disk, and files that are damaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.log.index_file import CorruptIndexError
from ottla.log.offset_index import OffsetIndex, OffsetPosition
from ottla.testing import MemoryDisk

PATH = "/00000000000000000100.index"


def new_index(disk: MemoryDisk, max_bytes: int = 80) -> OffsetIndex:
    index = OffsetIndex(disk, PATH, 100, max_bytes)
    index.create()
    for offset, position in ((104, 4200), (111, 8500), (120, 13000)):
        index.append(offset, position)
    return index


@pytest.mark.parametrize(
    ("offset", "entry"),
    [(100, (100, 0)), (103, (100, 0)), (104, (104, 4200)), (110, (104, 4200)), (999, (120, 13000))],
)
def test_lookup_finds_the_last_entry_at_or_before_an_offset(offset, entry):
    """An offset before the first entry belongs to the beginning of the segment."""
    assert new_index(MemoryDisk()).lookup(offset) == entry


@pytest.mark.parametrize(
    ("position", "entry"), [(0, (100, 0)), (4200, (104, 4200)), (8499, (104, 4200))]
)
def test_lookup_position_finds_the_last_entry_that_begins_by_then(position, entry):
    """Positions are searched as offsets are."""
    assert new_index(MemoryDisk()).lookup_position(position) == entry


def test_lookup_before_goes_back_a_number_of_entries():
    """It ends at the beginning of the segment."""
    index = new_index(MemoryDisk())

    assert index.lookup_before(13000, 1) == (111, 8500)
    assert index.lookup_before(13000, 7) == (100, 0)


def test_entries_are_big_endian_offset_and_position():
    """The file is as Kafka's tools read it."""
    disk = MemoryDisk()
    new_index(disk).write_out()

    assert disk.read_bytes(PATH)[:16].hex() == "00000004000010680000000b00002134"


def test_opened_index_has_the_entries_that_were_written_out():
    """Nothing is read before it is looked up."""
    disk = MemoryDisk()
    new_index(disk).write_out()
    index = OffsetIndex(disk, PATH, 100, 80)
    index.open()

    assert index.last_entry() == (120, 13000)
    assert index._entries is None
    assert list(index.entries())[1] == OffsetPosition(111, 8500)


def test_append_after_opening_goes_behind_the_old_entries():
    """What is on disk is loaded first."""
    disk = MemoryDisk()
    new_index(disk).write_out()
    index = OffsetIndex(disk, PATH, 100, 80)
    index.open()
    index.append(130, 20000)
    index.write_out()

    assert [entry.offset for entry in index.entries()] == [104, 111, 120, 130]
    assert disk.file_size(PATH) == 32


def test_truncate_drops_entries_at_and_behind_the_offset_from_the_file_too():
    """An entry of the last dropped batch would point behind the end."""
    disk = MemoryDisk()
    index = new_index(disk)
    index.write_out()
    index.truncate_to(111)

    assert index.last_entry() == (104, 4200)
    assert disk.file_size(PATH) == 8


def test_release_keeps_entries_that_are_not_in_the_file_yet():
    """Memory is given back only for what can be read again."""
    index = new_index(MemoryDisk())
    index.release()
    assert index.last_entry() == (120, 13000)
    index.write_out()
    index.release()

    assert index._entries is None
    assert index.lookup(111) == (111, 8500)


def test_index_is_full_after_its_size_in_entries():
    """The limit is segment.index.bytes."""
    assert new_index(MemoryDisk(), max_bytes=24 + 7).is_full
    assert not new_index(MemoryDisk(), max_bytes=32).is_full


@pytest.mark.parametrize("size", [1, 7, 9])
def test_open_refuses_a_torn_file(size):
    """Entries have eight bytes."""
    disk = MemoryDisk()
    disk.open(PATH, create=True).pwrite(bytes(size), 0)

    with pytest.raises(CorruptIndexError, match=f"{size} bytes"):
        OffsetIndex(disk, PATH, 100, 80).open()


def test_open_refuses_a_missing_file():
    """Every segment has its index from the beginning."""
    with pytest.raises(CorruptIndexError, match="missing"):
        OffsetIndex(MemoryDisk(), PATH, 100, 80).open()


@pytest.mark.parametrize("size_in_bytes", [0, 13000])
def test_check_refuses_a_last_entry_behind_the_segment(size_in_bytes):
    """The batch of the last entry must begin inside the file."""
    index = new_index(MemoryDisk())

    with pytest.raises(CorruptIndexError, match="position 13000"):
        index.check(size_in_bytes)


def test_check_refuses_zeros():
    """No entry is at position 0."""
    disk = MemoryDisk()
    disk.open(PATH, create=True).pwrite(bytes(16), 0)
    index = OffsetIndex(disk, PATH, 100, 80)
    index.open()

    with pytest.raises(CorruptIndexError):
        index.check(5000)


def test_check_refuses_an_entry_of_the_first_offset():
    """Only the first batch can hold it, and that one has no entry."""
    index = OffsetIndex(MemoryDisk(), PATH, 100, 80)
    index.create()
    index.append(100, 4200)

    with pytest.raises(CorruptIndexError, match="offset 100 is at position 4200"):
        index.check(5000)
    index.truncate_to(100)
    index.append(101, 4200)
    index.check(4201)


def test_file_is_touched_for_what_is_new_and_left_closed():
    """Thousands of indexes are created, written out and cut: each call of the disk counts."""
    disk = MemoryDisk()
    calls: list[str] = []
    disk.on_call = lambda name, path: calls.append(name)

    def calls_of(step: Callable[[], object]) -> list[str]:
        calls.clear()
        step()
        return list(calls)

    index = OffsetIndex(disk, PATH, 100, 80)
    assert calls_of(index.create) == ["open"]
    index.append(104, 4200)
    index.append(111, 8500)
    assert calls_of(index.write_out) == ["open", "pwrite"]
    assert calls_of(index.write_out) == []
    index.append(120, 13000)
    assert calls_of(lambda: index.truncate_to(120)) == []
    assert calls_of(lambda: index.truncate_to(111)) == ["open", "truncate"]
    index.release()
    assert calls_of(lambda: index.truncate_to(105)) == ["open", "pread"]
    assert calls_of(index.last_entry) == ["open", "pread"]
    assert disk.open_files == []


def test_index_that_was_not_opened_has_no_entries():
    """Nothing is read of it before it is known whether the file is sound."""
    index = OffsetIndex(MemoryDisk(), PATH, 100, 80)

    assert (len(index), index.is_full, index.written_bytes) == (0, False, 0)
    assert OffsetIndex(MemoryDisk(), PATH, 100, 7).is_full


def test_index_that_is_opened_again_is_as_its_file():
    """What was in memory only is gone, as after a crash."""
    disk = MemoryDisk()
    index = new_index(disk)
    index.write_out()
    index.append(130, 20000)
    index.open()

    assert [entry.offset for entry in index.entries()] == [104, 111, 120]
    assert index.last_entry() == (120, 13000)
