"""Checkpoints and heartbeats: their bytes, and when a checkpoint is emitted."""

from __future__ import annotations

import pytest

from ottla.mirror.checkpoint import Checkpoint, GroupCheckpoints, Heartbeat, offsets_to_sync
from ottla.mirror.offset_sync import OffsetSync, OffsetSyncStore
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


def test_bytes_of_a_checkpoint_are_kafkas():
    """Key: group, topic, partition; value: version, two offsets, metadata."""
    checkpoint = Checkpoint("g", TARGET, 258, 7, "m")

    assert checkpoint.key() == b"\x00\x01g\x00\x07a.pages\x00\x00\x00\x01"
    assert checkpoint.value() == (
        b"\x00\x00" + b"\x00" * 6 + b"\x01\x02" + b"\x00" * 7 + b"\x07" + b"\x00\x01m"
    )
    assert Checkpoint.of(checkpoint.key(), checkpoint.value()) == checkpoint
    assert Checkpoint.of(checkpoint.key(), None) is None


def test_bytes_of_a_heartbeat_are_kafkas():
    """Key: both aliases; value: version and time."""
    beat = Heartbeat("a", "b", 258)

    assert beat.key() == b"\x00\x01a\x00\x01b"
    assert beat.value() == b"\x00\x00" + b"\x00" * 6 + b"\x01\x02"
    assert Heartbeat.of(beat.key(), beat.value()) == beat
    assert Heartbeat.of(None, beat.value()) is None


@pytest.mark.parametrize(
    ("value", "words"), [(b"\x00\x01" + b"\x00" * 18, "version 1"), (b"\x00\x00\x00", "too short")]
)
def test_other_versions_are_refused(value, words):
    """What a later Kafka writes is an error, not a wrong offset."""
    with pytest.raises(ValueError, match=words):
        Checkpoint.of(Checkpoint("g", TARGET, 0, 0).key(), value)
    with pytest.raises(ValueError, match=words):
        Heartbeat.of(Heartbeat("a", "b", 0).key(), value)


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
