"""The records of a mirror's own topics: offset syncs, checkpoints and heartbeats (KIP-382).

They have Kafka's bytes, so that MirrorMaker 2 reads those of Ottla, and the other way round.
"""

from __future__ import annotations

import struct
from typing import Final, Self

from ottla.structs import NamedTuple, TopicPartition

HEARTBEATS: Final = "heartbeats"
"""The topic in which each flow says that it is alive."""
VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_TIMESTAMP: Final = struct.Struct(">q")


def string_bytes(text: str) -> bytes:
    """A STRING of the protocol: an int16 with the length, then UTF-8."""
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """A STRING and the position after it; ValueError if the bytes end before."""
    try:
        (length,) = _INT16.unpack_from(data, position)
    except struct.error:
        raise ValueError(f"no string at byte {position} of {len(data)}") from None
    end = position + _INT16.size + length
    if length < 0 or end > len(data):
        raise ValueError(f"a string of {length} bytes at byte {position} of {len(data)}")
    return data[position + _INT16.size : end].decode(), end


def topic_partition_bytes(partition: TopicPartition) -> bytes:
    return string_bytes(partition.topic) + _INT32.pack(partition.partition)


def read_topic_partition(data: bytes, position: int) -> tuple[TopicPartition, int]:
    """Topic and partition, and the position after them; ValueError if the bytes end before."""
    topic, position = read_string(data, position)
    if position + _INT32.size > len(data):
        raise ValueError(f"no partition at byte {position} of {len(data)}")
    (number,) = _INT32.unpack_from(data, position)
    return TopicPartition(topic, number), position + _INT32.size


class OffsetSync(NamedTuple):
    """A record with the offset `upstream` was written at the offset `downstream`.

    `partition` has the names of the source.
    """

    partition: TopicPartition
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return topic_partition_bytes(self.partition)

    def value(self) -> bytes:
        return _OFFSETS.pack(self.upstream, self.downstream)

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> Self | None:
        """The sync of a record; None for a tombstone, ValueError for other bytes."""
        if key is None or value is None:
            return None
        if len(value) < _OFFSETS.size:
            raise ValueError(f"a sync of {len(value)} bytes, not {_OFFSETS.size}")
        partition, _ = read_topic_partition(key, 0)
        return cls(partition, *_OFFSETS.unpack_from(value))


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
