"""When a checkpoint is emitted."""

from __future__ import annotations

import pytest

from ottla.clients.mirror_records import Checkpoint, OffsetSync
from ottla.mirror.checkpoint import GroupCheckpoints, offsets_to_sync
from ottla.mirror.offset_sync import OffsetSyncStore
from ottla.structs import TopicPartition

SOURCE, TARGET = TopicPartition("pages", 1), TopicPartition("a.pages", 1)


@pytest.fixture
def store():
    """Offset 100 of the source is 10 at the target, 200 is 110."""
    syncs = OffsetSyncStore()
    for upstream, downstream in ((100, 10), (200, 110)):
        syncs.add(OffsetSync(SOURCE, upstream, downstream))
    syncs.finish_loading()
    return syncs


def offsets(checkpoints):
    return [(each.upstream, each.downstream) for each in checkpoints]


def test_checkpoints_go_forward_only(store):
    """The first one, and each that is further; the same one is not written twice."""
    groups = GroupCheckpoints()
    remote = {SOURCE: TARGET}

    first = groups.next("g", {SOURCE: (150, "note")}, remote, store)
    assert first == [Checkpoint("g", TARGET, 150, 11, "note")]
    groups.add(first[0])
    assert groups.next("g", {SOURCE: (160, "")}, remote, store) == []
    assert offsets(groups.next("g", {SOURCE: (200, "")}, remote, store)) == [(200, 110)]
    assert groups.offsets("g") == {TARGET: 11}


def test_group_that_went_back_is_followed(store):
    """A reset of the source's group is one of the target's."""
    groups = GroupCheckpoints()
    groups.add(Checkpoint("g", TARGET, 200, 110))

    assert offsets(groups.next("g", {SOURCE: (100, "")}, {SOURCE: TARGET}, store)) == [(100, 10)]


def test_group_of_a_copy_that_was_made_anew_is_followed(store):
    """Its place in the former copy, above the true one, does not count."""
    groups = GroupCheckpoints()
    groups.add(Checkpoint("g", TARGET, 200, 300))

    assert offsets(groups.next("g", {SOURCE: (200, "")}, {SOURCE: TARGET}, store)) == [(200, 110)]


@pytest.mark.parametrize(
    ("upstream", "downstream", "is_false"),
    [
        (100, 10, False),
        (100, 11, True),
        (150, 110, False),
        (150, 111, True),
        (200, 110, False),
        (200, 111, True),
        (201, 111, False),
        (201, 112, True),
        (202, 999, False),
    ],
)
def test_place_in_a_former_copy_is_seen_by_the_sync_above_it(store, upstream, downstream, is_false):
    """It was seen only where it was behind the end of the new copy."""
    assert store.contradicts(SOURCE, upstream, downstream) is is_false


@pytest.mark.parametrize(
    ("until_ms", "left"), [(None, {}), (5, {}), (4, {TARGET: 30})], ids=["now", "loaded", "later"]
)
def test_places_in_a_former_copy_are_forgotten(until_ms, left):
    """Of all groups, and of that partition alone; not those that were emitted afterwards."""
    groups, other = GroupCheckpoints(), TARGET._replace(partition=2)
    groups.add(Checkpoint("g", TARGET, 20, 30), 5)
    groups.add(Checkpoint("h", other, 20, 30), 5)

    groups.forget(TARGET, until_ms)

    assert groups.offsets("g") == left
    assert groups.offsets("h") == {other: 30}


@pytest.mark.parametrize(
    ("sync", "is_remade"), [((201, 111), False), ((150, 120), False), ((201, 109), True)]
)
def test_copy_that_was_made_again_is_seen_by_its_offsets(store, sync, is_remade):
    """Not by those of the source alone, which is read again after an error."""
    assert store.add(OffsetSync(SOURCE, *sync)) is is_remade


def test_unknown_partitions_and_offsets_are_passed_over(store):
    """Topics that are not mirrored, and offsets older than all that is known."""
    groups = GroupCheckpoints()
    other = TopicPartition("other", 0)

    assert groups.next("g", {SOURCE: (99, ""), other: (5, "")}, {SOURCE: TARGET}, store) == []
    assert groups.next("g", {SOURCE: (150, "")}, {}, store) == []


def test_groups_are_moved_forward_only():
    """A group that has read further at the target is left where it is."""
    other = TopicPartition("a.pages", 0)

    assert offsets_to_sync({TARGET: 10, other: 5}, {TARGET: 10}) == {other: 5}
    assert offsets_to_sync({TARGET: 11}, {TARGET: 10}) == {TARGET: 11}
