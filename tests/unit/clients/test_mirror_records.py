"""The records of a mirror's own topics have Kafka's bytes."""

from __future__ import annotations

import pytest

from ottla.clients.mirror_records import Checkpoint, Heartbeat, OffsetSync
from ottla.structs import TopicPartition

PAGES, TARGET = TopicPartition("pages", 3), TopicPartition("a.pages", 1)


def test_bytes_of_a_sync_are_kafkas():
    """A string with its length, an int32; two int64 without a version."""
    sync = OffsetSync(PAGES, 258, 7)

    assert sync.key() == b"\x00\x05pages\x00\x00\x00\x03"
    assert sync.value() == b"\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x00\x00\x00\x07"
    assert OffsetSync.of(sync.key(), sync.value()) == sync
    assert OffsetSync.of(sync.key(), None) is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\x00\x05pa", b"\x00" * 16), (b"", b"\x00" * 16), (b"\x00\x00", b"1")]
)
def test_other_bytes_are_refused(key, value):
    """Somebody else's record is an error, not a wrong offset."""
    with pytest.raises(ValueError, match="byte"):
        OffsetSync.of(key, value)


def test_bytes_of_a_checkpoint_are_kafkas():
    """Key: group, topic, partition; value: version, two offsets, metadata."""
    checkpoint = Checkpoint("g", TARGET, 258, 7, "m")

    assert checkpoint.key() == b"\x00\x01g\x00\x07a.pages\x00\x00\x00\x01"
    assert checkpoint.value() == (
        b"\x00\x00" + b"\x00" * 6 + b"\x01\x02" + b"\x00" * 7 + b"\x07" + b"\x00\x01m"
    )
    assert Checkpoint.of(checkpoint.key(), checkpoint.value()) == checkpoint
    assert Checkpoint.of(checkpoint.key(), None) is None


@pytest.mark.parametrize(
    ("upstream", "downstream", "is_newer"),
    [(20, 8, False), (20, 9, True), (21, 8, False), (21, 7, False), (20, 7, False), (19, 3, True)],
)
def test_checkpoint_goes_back_only_with_its_group(upstream, downstream, is_newer):
    """An offset that was translated less exactly is not worth another record."""
    emitted = Checkpoint("g", TARGET, 20, 8)
    following = Checkpoint("g", TARGET, upstream, downstream)

    assert following.is_newer_than(emitted) is is_newer
    assert following.is_newer_than(None)


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
