"""The transaction index: its file, truncation and damage."""

from __future__ import annotations

import pytest

from ottla.log.index_file import CorruptIndexError
from ottla.log.transaction_index import AbortedTxn, TransactionIndex
from ottla.testing import MemoryDisk

PATH = "/00000000000000000010.txnindex"
FIRST = AbortedTxn(7, 10, 15, 12)
SECOND = AbortedTxn(8, 12, 20, 21)


def new_index(disk: MemoryDisk) -> TransactionIndex:
    index = TransactionIndex(disk, PATH, 10)
    index.append(FIRST)
    index.append(SECOND)
    return index


def test_no_file_is_made_without_an_aborted_transaction():
    """Most segments never have one."""
    disk = MemoryDisk()

    assert TransactionIndex(disk, PATH, 10).entries() == []
    assert not disk.exists(PATH)


def test_entries_are_read_back_in_order():
    """Each has 34 bytes: version, producer id and three offsets."""
    disk = MemoryDisk()
    index = new_index(disk)

    assert index.entries() == [FIRST, SECOND]
    assert disk.read_bytes(PATH)[:34].hex() == (
        "00000000000000000007000000000000000a000000000000000f000000000000000c"
    )


@pytest.mark.parametrize(
    ("offset", "left"), [(21, [FIRST, SECOND]), (20, [FIRST]), (16, [FIRST]), (15, [])]
)
def test_truncate_drops_transactions_that_end_at_or_behind_an_offset(offset, left):
    """Their abort marker is gone."""
    disk = MemoryDisk()
    index = new_index(disk)
    index.truncate_to(offset)
    assert disk.open_files == []

    assert index.entries() == left
    assert index.written_bytes() == 34 * len(left)


def test_reset_removes_the_file():
    """The segment is scanned for its markers again."""
    disk = MemoryDisk()
    index = new_index(disk)
    assert index.entries() == [FIRST, SECOND]
    index.reset()

    assert not disk.exists(PATH)
    assert index.entries() == []


def test_transaction_that_is_added_is_told_of_to_the_next_reader():
    """Whether the entries before it were read already or not."""
    disk = MemoryDisk()
    index = new_index(disk)
    before = list(index.entries())
    third = AbortedTxn(9, 20, 30, 31)
    index.append(third)

    assert before == [FIRST, SECOND]
    assert index.entries() == TransactionIndex(disk, PATH, 10).entries() == [*before, third]


@pytest.mark.parametrize("data", [bytes(33), b"\x00\x01" + bytes(32), bytes(34)])
def test_damaged_file_is_refused(data):
    """A wrong size, a wrong version, or offsets of another segment."""
    disk = MemoryDisk()
    disk.open(PATH, create=True).pwrite(data, 0)

    with pytest.raises(CorruptIndexError):
        TransactionIndex(disk, PATH, 10).entries()
