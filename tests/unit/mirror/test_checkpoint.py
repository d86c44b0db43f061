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
