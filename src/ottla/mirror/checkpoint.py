"""Checkpoints and heartbeats: the other two records that a flow writes, and when.

A checkpoint says where a group of the source would continue at the target. Kafka's bytes (KIP-382).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from ottla.mirror.offset_sync import (
    OffsetSyncStore,
    read_string,
    read_topic_partition,
    string_bytes,
    topic_partition_bytes,
)
from ottla.structs import TopicPartition

VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")
_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")


def versioned(value: bytes, needed: int, what: str) -> bytes:
    """What follows the version of a record's value; ValueError for another version or length."""
    if len(value) < _VERSION.size + needed:
        raise ValueError(f"a {what} of {len(value)} bytes is too short")
    (version,) = _VERSION.unpack_from(value)
    if version != VERSION:
        raise ValueError(f"a {what} of version {version}, and only {VERSION} is known")
    return value[_VERSION.size :]


class Checkpoint(NamedTuple):
    """A group that has read up to `upstream` at the source continues at `downstream` at the target.

    `partition` has the names of the target.
    """

    group: str
    partition: TopicPartition
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        return string_bytes(self.group) + topic_partition_bytes(self.partition)

    def value(self) -> bytes:
        offsets = _OFFSETS.pack(self.upstream, self.downstream)
        return _VERSION.pack(VERSION) + offsets + string_bytes(self.metadata)

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> Self | None:
        """The checkpoint of a record; None for a tombstone, ValueError for other bytes."""
        if key is None or value is None:
            return None
        content = versioned(value, _OFFSETS.size + 2, "checkpoint")
        group, position = read_string(key, 0)
        partition, _ = read_topic_partition(key, position)
        metadata, _ = read_string(content, _OFFSETS.size)
        upstream, downstream = _OFFSETS.unpack_from(content)
        return cls(group, partition, upstream, downstream, metadata)

    def is_newer_than(self, emitted: Checkpoint | None) -> bool:
        """Whether it is worth emitting: never backwards, unless the group itself went back."""
        if emitted is None or self.upstream < emitted.upstream:
            return True
        return self.downstream > emitted.downstream


class Heartbeat(NamedTuple):
    """A flow from `source` to `target` was alive at `timestamp_ms`."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        return string_bytes(self.source) + string_bytes(self.target)

    def value(self) -> bytes:
        return _VERSION.pack(VERSION) + _TIMESTAMP.pack(self.timestamp_ms)

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> Self | None:
        """The heartbeat of a record; None for a tombstone, ValueError for other bytes."""
        if key is None or value is None:
            return None
        content = versioned(value, _TIMESTAMP.size, "heartbeat")
        source, position = read_string(key, 0)
        target, _ = read_string(key, position)
        return cls(source, target, *_TIMESTAMP.unpack_from(content))


class GroupCheckpoints:
    """The newest checkpoints of groups, as they were emitted."""

    def __init__(self) -> None:
        self.emitted: dict[str, dict[TopicPartition, Checkpoint]] = {}

    def add(self, checkpoint: Checkpoint) -> None:
        """Take one that was read from the topic, or emitted."""
        self.emitted.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint

    def next(
        self,
        group: str,
        committed: Mapping[TopicPartition, tuple[int, str]],
        remote: Mapping[TopicPartition, TopicPartition],
        store: OffsetSyncStore,
    ) -> list[Checkpoint]:
        """The checkpoints to emit for what a group has committed, offset and metadata.

        `remote` has the target's name of each partition of the source; others are passed over.
        """
        found = []
        known = self.emitted.get(group, {})
        for partition, (upstream, metadata) in committed.items():
            target = remote.get(partition)
            downstream = None if target is None else store.translate(partition, upstream)
            if target is None or downstream is None or downstream < 0:
                continue
            checkpoint = Checkpoint(group, target, upstream, downstream, metadata)
            if checkpoint.is_newer_than(known.get(target)):
                found.append(checkpoint)
        return found

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        """Where a group continues at the target."""
        return {p: each.downstream for p, each in self.emitted.get(group, {}).items()}


def offsets_to_sync(
    translated: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets to commit for a group at the target: only forward, partition by partition."""
    return {
        partition: offset
        for partition, offset in translated.items()
        if offset > committed.get(partition, -1)
    }
