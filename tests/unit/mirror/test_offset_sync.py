"""Syncs: when they are due, and what the store makes of them."""

from __future__ import annotations

import pytest

from ottla.clients.mirror_records import OffsetSync
from ottla.mirror.offset_sync import OffsetSyncQueue, OffsetSyncStore
from ottla.structs import TopicPartition

PAGES = TopicPartition("pages", 3)


def store_of(*syncs, keeps_history=True, is_loaded=True):
    store = OffsetSyncStore(keeps_history=keeps_history)
    for upstream, downstream in syncs:
        store.add(OffsetSync(PAGES, upstream, downstream))
    if is_loaded:
        store.finish_loading()
    return store


def test_translation_is_exact_at_a_sync_and_one_behind_it_after():
    """What follows a sync is not known: nothing of it may be skipped."""
    store = store_of((100, 10), (200, 110))

    assert store.translate(PAGES, 200) == 110
    assert store.translate(PAGES, 201) == store.translate(PAGES, 900) == 111
    assert store.translate(PAGES, 150) == 11
    assert store.translate(PAGES, 99) == -1


def test_nothing_is_translated_before_all_was_read():
    """Half a topic would give old answers."""
    assert store_of((100, 10), is_loaded=False).translate(PAGES, 100) is None
    assert store_of((100, 10)).translate(TopicPartition("pages", 0), 100) is None


def test_partition_that_began_anew_forgets_its_syncs():
    """A rewind of the source, as after it was made again."""
    store = store_of((100, 10), (200, 110), (50, 400))

    assert store.translate(PAGES, 200) == 401
    assert store.translate(PAGES, 49) == -1


def test_copy_that_began_anew_forgets_its_syncs():
    """Offsets of the former copy are above those of this one, or beside its end."""
    store = store_of((100, 100), (200, 200), (300, 0))

    assert store.translate(PAGES, 200) == -1
    assert store.translate(PAGES, 300) == 0


def test_translation_of_before_is_false_where_the_copy_is_shorter():
    """One of the place behind the newest sync is true, and so is one that nothing is known of."""
    store = store_of((100, 0), (200, 100))

    assert store.contradicts(PAGES, 200, 200)
    assert store.contradicts(PAGES, 201, 102)
    assert not store.contradicts(PAGES, 201, 101)
    assert not store.contradicts(PAGES, 202, 202)
    assert not store.contradicts(TopicPartition("others", 0), 1, 1)


def test_without_history_only_the_newest_of_the_past_counts():
    """Old syncs could take a group back behind an unknown checkpoint (KAFKA-15905)."""
    store = store_of((100, 10), (200, 110), keeps_history=False)
    store.add(OffsetSync(PAGES, 300, 210))

    assert store.translate(PAGES, 150) == -1
    assert store.translate(PAGES, 250) == 111


def test_old_syncs_thin_out():
    """Ten thousand syncs leave some tens, near ones exact and far ones rough."""
    store = store_of(*((number, number) for number in range(10_000)))
    kept = [each.upstream for each in store.syncs(PAGES)]

    assert kept[:3] == [9999, 9998, 9996]
    assert kept[-1] == 0
    assert 10 < len(kept) < 30


def syncs_of(queue):
    return [(each.upstream, each.downstream) for each in queue.take()]


def test_first_record_is_synced_at_once_and_the_rest_with_the_commit():
    """A group can be translated soon after a flow began."""
    queue = OffsetSyncQueue(100)
    queue.on_copied(PAGES, 40, 0, 50)

    assert syncs_of(queue) == [(40, 0)]
    queue.on_commit()
    assert syncs_of(queue) == [(89, 49)]
    assert syncs_of(queue) == []


def test_sync_is_due_where_the_last_one_is_too_far_behind():
    """By offset.lag.max, within a batch as well."""
    queue = OffsetSyncQueue(10)
    queue.on_copied(PAGES, 0, 0, 30)

    assert syncs_of(queue) == [(0, 0), (11, 11), (22, 22)]
    queue.on_copied(PAGES, 30, 30, 3)
    assert syncs_of(queue) == []
    queue.on_copied(PAGES, 33, 33, 1)
    assert syncs_of(queue) == [(33, 33)]


def test_syncs_that_cannot_be_sent_thin_out():
    """The first and the last one stay; memory does not grow."""
    queue = OffsetSyncQueue(0)
    queue.on_copied(PAGES, 0, 0, 1000)
    waiting = [each.upstream for each in queue.take(1000)]

    assert (waiting[0], waiting[-1]) == (0, 999)
    assert 30 < len(waiting) <= 64
    assert waiting == sorted(waiting)


@pytest.mark.parametrize(("upstream", "downstream"), [(15, 10), (10, 3), (4, 10)])
def test_gap_and_truncation_are_synced_at_once(upstream, downstream):
    """Control records, compaction, a target that lost its end."""
    queue = OffsetSyncQueue(100)
    queue.on_copied(PAGES, 0, 0, 10)
    queue.take()
    queue.on_copied(PAGES, upstream, downstream, 1)

    assert syncs_of(queue) == [(upstream, downstream)]


def test_syncs_wait_when_many_are_under_way():
    """Those that are not taken stay, in their order."""
    queue = OffsetSyncQueue(0)
    for number in range(3):
        queue.on_copied(TopicPartition("pages", number), 0, 0, 1)

    assert len(queue.take(2)) == 2
    queue.on_copied(TopicPartition("pages", 2), 1, 1, 1)
    assert [(each.upstream, each.downstream) for each in queue.take(2)] == [(0, 0), (1, 1)]
    queue.on_copied(PAGES, 9, 9, 1)
    queue.forget({PAGES: None})
    assert queue.take() == []
