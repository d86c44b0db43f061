"""What a process of its own does for its broker."""

from __future__ import annotations

import gc

import pytest

from ottla.runtime.runtime import (
    LONG_COLLECTION_NS,
    MIDDLE_COLLECTIONS,
    THAW_NS,
    FullCollections,
)


@pytest.fixture
def collected():
    """Runs a collection, as it is told to callbacks, of so many nanoseconds after so many.

    It returns whether objects that were left are kept from the next one.
    """
    now = {"clock": 0, "cpu": 0}
    callback = FullCollections(lambda: now["clock"], lambda: now["cpu"]).on_collection
    gc.unfreeze()

    def run(took_ns: int, *, after_ns: int = 0, generation: int = 2) -> bool:
        now["clock"] += after_ns
        callback("start", {"generation": generation})
        now["cpu"] += took_ns
        callback("stop", {"generation": generation})
        return gc.get_freeze_count() > 0

    yield run
    gc.freeze()


def test_what_is_left_of_a_long_collection_is_not_looked_at_again(collected):
    """A broker with thousands of partitions would stand for 100 ms each time."""
    assert not collected(LONG_COLLECTION_NS - 1)
    assert not collected(LONG_COLLECTION_NS, generation=1)
    assert collected(LONG_COLLECTION_NS)
    assert collected(0, after_ns=THAW_NS - 1)


def test_growth_without_a_full_collection_is_not_looked_at_again(collected):
    """The full one that comes after thousands of partitions were made would be long at once."""
    for _ in range(MIDDLE_COLLECTIONS - 1):
        assert not collected(0, generation=1)
        assert not collected(0, generation=0)
    assert not collected(LONG_COLLECTION_NS - 1)  # a full one in between: growth counts anew
    for _ in range(MIDDLE_COLLECTIONS - 1):
        assert not collected(0, generation=1)
    assert collected(0, generation=1)


def test_cycles_among_it_are_found_an_hour_later(collected):
    """Cycles of connections and tasks that had not ended at that time are collected."""
    assert collected(LONG_COLLECTION_NS)
    assert not collected(0, after_ns=THAW_NS)
    assert collected(LONG_COLLECTION_NS, after_ns=1)
    assert collected(0, after_ns=THAW_NS - 2)
    assert not collected(0, after_ns=1)
