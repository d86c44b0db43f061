"""The checks of `make chaos MIX=1` tell each kind of wrong that they look for."""

from __future__ import annotations

import pytest
from direct_reads import Floor
from group_owners import GroupOwners
from ledger import CommittedView, Entry, Fate, Ledger
from small_disk import MEGABYTE, SmallDisk, reason_for_no_disks

from ottla.structs import TopicPartition

WRITER = "w"
PLACE = TopicPartition("t", 0)


def entry(transaction, number):
    return Entry(WRITER, transaction, number)


@pytest.fixture
def ledger():
    """Transactions 0 and 2 are committed, 1 is aborted, 3 is open, 4 is unknown, of two records."""
    ledger = Ledger()
    fates = [Fate.COMMITTED, Fate.ABORTED, Fate.COMMITTED, Fate.OPEN, Fate.UNKNOWN]
    for transaction, fate in enumerate(fates):
        ledger.note(WRITER, transaction, fate)
        for partition in (0, 1):
            ledger.note_sent(partition, entry(transaction, 2 * transaction + partition))
    return ledger


@pytest.fixture
def view(ledger):
    return CommittedView("reader", ledger, (0, 1))


def show(view, partition, *transactions):
    """Show the reader the record that each transaction has in a partition, one after the other."""
    for transaction in transactions:
        value = entry(transaction, 2 * transaction + partition).value
        view.note(partition, len(view.shown[partition]), value)


def wrong(view):
    return len(view.aborted), len(view.gaps), len(view.reordered)


def test_reader_of_what_is_committed_is_right(view, ledger):
    """An unknown transaction is there whole or not at all."""
    show(view, 0, 0, 2)
    show(view, 1, 0, 2)
    ledger.note(WRITER, 3, Fate.ABORTED)
    assert wrong(view) == (0, 0, 0)
    assert not list(view.wrong_at_the_end())
    show(view, 0, 4)
    assert len(list(view.wrong_at_the_end())) == 1
    show(view, 1, 4)
    assert not list(view.wrong_at_the_end())
    assert wrong(view) == (0, 0, 0)


@pytest.mark.parametrize(
    ("transactions", "counts"),
    [
        ([0, 1], (1, 0, 0)),
        ([0, 2, 3], (1, 0, 0)),
        ([2], (0, 1, 0)),
        ([0, 2, 0], (0, 0, 1)),
        ([0, 0], (0, 0, 1)),
    ],
    ids=["aborted", "open", "left out", "out of order", "twice"],
)
def test_each_wrong_poll_is_told(view, transactions, counts):
    """Of an aborted or open transaction, without an earlier one, behind a later one, or again."""
    show(view, 0, *transactions)
    assert wrong(view) == counts


def test_offset_that_comes_again_is_told(view):
    """An offset that comes twice is reported, also with another record."""
    view.note(0, 5, entry(0, 0).value)
    view.note(0, 5, entry(2, 4).value)
    assert wrong(view) == (0, 0, 1)


def test_what_is_lost_or_aborted_in_the_end_is_told(view, ledger):
    """A committed transaction without a record, and an aborted one with one."""
    ledger.note(WRITER, 3, Fate.ABORTED)
    show(view, 0, 0, 1, 2)
    show(view, 1, 0)
    assert len(list(view.wrong_at_the_end())) == 2


def test_two_owners_in_a_generation_are_told():
    """The next generation may have another owner; a member without a generation owns nothing."""
    owners = GroupOwners("group")
    owners.note_owner([PLACE], 1, "a")
    owners.note_owner([PLACE], 2, "b")
    owners.note_owner([PLACE], -1, "c")
    owners.note_owner([PLACE], 0, "d")
    owners.note_owner([PLACE], -1, "e")
    assert not owners.two_owners
    owners.note_owner([PLACE], 2, "a")
    assert len(owners.two_owners) == 1


def test_offset_that_no_member_was_given_is_told():
    """One that was given twice is none that was left out."""
    owners = GroupOwners("group")
    for offset in (0, 1, 0, 2):
        owners.note_given(PLACE, offset)
    assert not owners.gaps
    owners.note_given(PLACE, 4)
    assert len(owners.gaps) == 1


def test_number_that_falls_is_told():
    """Below an earlier one, and below what was acknowledged before it was asked for."""
    floor = Floor()
    floor.note("a", 0, 5)
    floor.note("a", floor["a"], 5)
    floor.note("b", floor["b"], 1)
    assert not floor.fallen
    floor.note("a", floor["a"], 4)
    floor.note("b", 3, 2)
    assert len(floor.fallen) == 2


def test_small_disk_is_full_until_it_is_emptied(tmp_path):
    """Nothing can be written to it but what was there; then there is room again."""
    if reason := reason_for_no_disks(tmp_path / "try"):
        pytest.skip(reason)
    disk = SmallDisk(tmp_path / "disk", 2)
    path = disk.folder / "data"
    try:
        disk.fill(0)
        with pytest.raises(OSError, match="No space left"):
            path.write_bytes(b"x" * MEGABYTE)
        disk.empty()
        path.write_bytes(b"x" * MEGABYTE)
        assert path.stat().st_size == MEGABYTE
    finally:
        disk.close()
