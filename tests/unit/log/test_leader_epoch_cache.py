"""The leader epoch cache: assignment, the end of an epoch, truncation and the file."""

from __future__ import annotations

import pytest

from ottla.log.leader_epoch_cache import LeaderEpochCache
from ottla.log.offset_checkpoint import CorruptCheckpointError
from ottla.testing import MemoryDisk

PATH = "/leader-epoch-checkpoint"


def new_cache(disk: MemoryDisk | None = None, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(disk or MemoryDisk(), PATH)
    for epoch, start_offset in entries or ((3, 0), (5, 1500), (6, 2000)):
        cache.assign(epoch, start_offset)
    return cache


@pytest.mark.parametrize("epoch", [-1, 4, 6])
def test_assign_ignores_epochs_that_are_not_newer(epoch):
    """Every batch names its epoch; only the first of a new one counts."""
    cache = new_cache()
    cache.assign(epoch, 3000)

    assert cache.entries == [(3, 0), (5, 1500), (6, 2000)]


def test_assign_replaces_an_epoch_that_wrote_nothing():
    """Two leaders in a row without a record: the later one counts."""
    cache = new_cache()
    cache.assign(9, 2000)

    assert cache.entries == [(3, 0), (5, 1500), (9, 2000)]
    assert cache.latest_epoch == 9


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (6, (6, 2600)),
        (5, (5, 2000)),
        (4, (3, 1500)),
        (3, (3, 1500)),
        (2, (2, 0)),
        (7, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_end_offset_is_where_the_next_epoch_begins(epoch, answer):
    """The current epoch ends at the log's end, an unknown newer one nowhere (KIP-101)."""
    cache = new_cache()

    if epoch == -1:
        cache.clear()
    assert cache.end_offset_for(epoch, 2600) == answer


@pytest.mark.parametrize(("offset", "epoch"), [(0, 3), (1499, 3), (1500, 5), (9999, 6)])
def test_epoch_for_an_offset_is_the_one_it_was_written_in(offset, epoch):
    """The last epoch that begins at or before it."""
    assert new_cache().epoch_for(offset) == epoch


def test_epoch_before_the_first_one_is_not_known():
    """The log may begin before its epochs were kept."""
    assert new_cache(None, (5, 10)).epoch_for(9) == -1


def test_truncate_from_end_drops_epochs_at_and_behind_an_offset():
    """Nothing of them is left in the log."""
    cache = new_cache()
    cache.truncate_from_end(1500)

    assert cache.entries == [(3, 0)]
    assert cache.latest_epoch == 3


@pytest.mark.parametrize(
    ("offset", "entries"),
    [
        (0, [(3, 0), (5, 1500), (6, 2000)]),
        (10, [(3, 10), (5, 1500), (6, 2000)]),
        (1500, [(5, 1500), (6, 2000)]),
        (2500, [(6, 2500)]),
    ],
)
def test_truncate_from_start_moves_the_first_epoch_to_the_new_start(offset, entries):
    """The epoch that holds the new start begins there now."""
    cache = new_cache()
    cache.truncate_from_start(offset)

    assert cache.entries == entries


def test_contents_are_loaded_back():
    """The file is a version, a count and a line for each epoch."""
    disk = MemoryDisk()
    disk.replace(PATH, new_cache().contents())
    cache = LeaderEpochCache(disk, PATH)

    assert disk.read_bytes(PATH) == b"0\n3\n3 0\n5 1500\n6 2000\n"
    assert cache.load()
    assert cache.entries == new_cache().entries
    assert not cache.is_dirty


def test_missing_file_is_not_loaded():
    """The caller can find the epochs in the batches."""
    assert not LeaderEpochCache(MemoryDisk(), PATH).load()


@pytest.mark.parametrize("raw", [b"", b"0\n1\n5\n", b"0\n2\n5 10\n4 20\n", b"0\n2\n5 10\n6 9\n"])
def test_damaged_file_is_refused(raw):
    """Epochs and offsets must grow."""
    disk = MemoryDisk()
    disk.replace(PATH, raw)

    with pytest.raises(CorruptCheckpointError):
        LeaderEpochCache(disk, PATH).load()
