"""Offsets of partitions, their JSON, and the ranges that tasks read.

The JSON is that of Spark's Kafka source, `{"topic":{"0":23,"1":45}}`, so that offsets can be copied
from one to the other. The progress of a stream also has the leader epochs up to which its logs were
read, and which topics of these names they belong to:
`{"topic":{"0":23,"1":45},"leader epochs":{"topic":{"0":4,"1":7}},"topic ids":{"topic":"6f1c..."}}`.

A task costs some 30 ms, however little it reads. So a partition is one task, unless it must be
cut, and partitions with few records are put together.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ottla.structs import TopicPartition

Offsets = dict[TopicPartition, int]
Epochs = dict[TopicPartition, int]
TopicIds = dict[str, str]
JsonNumbers = dict[str, dict[str, int]]
JsonReach = dict[str, Any]
EARLIEST = -2
LATEST = -1
# No topic has a space in its name.
EPOCHS = "leader epochs"
TOPIC_IDS = "topic ids"
MAX_PARTITION = 2**31 - 1
OFFSETS_FORM = 'JSON like {"topic":{"0":23,"1":45}}'
ASSIGNMENT_FORM = 'JSON like {"topic":[0,1]}'


class OffsetsError(ValueError):
    """Text that does not hold offsets; the message shows the right form."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition from `start` up to, and without, `end`."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


class Reach(NamedTuple):
    """How far partitions are read: the next offset of each, and its leader epoch then.

    A topic is known by its id: one that was deleted and created again has another. Epochs and ids
    are missing where brokers do not return them, and in older checkpoints.
    """

    offsets: Offsets
    epochs: Epochs
    topic_ids: TopicIds

    @classmethod
    def from_json_object(cls, kept: Mapping[str, Any]) -> Reach:
        """The value that Spark has kept in its checkpoint."""
        offsets = {name: found for name, found in kept.items() if name not in (EPOCHS, TOPIC_IDS)}
        return cls(
            from_json_object(offsets),
            from_json_object(kept.get(EPOCHS, {})),
            dict(kept.get(TOPIC_IDS, {})),
        )

    def to_json_object(self) -> JsonReach:
        """The value that Spark keeps in its checkpoint, and shows in the progress of a query."""
        further = {EPOCHS: to_json_object(self.epochs), TOPIC_IDS: dict(self.topic_ids)}
        return {
            **to_json_object(self.offsets),
            **{name: found for name, found in further.items() if found},
        }

    def others(self, topic_ids: Mapping[str, str]) -> list[str]:
        """The topics that are not those of these ids any longer, sorted."""
        known = self.topic_ids
        return sorted(name for name in known if topic_ids.get(name, known[name]) != known[name])

    def without(self, topics: Collection[str]) -> Reach:
        """The same, as if nothing were known of these topics."""
        return Reach(
            {each: found for each, found in self.offsets.items() if each.topic not in topics},
            {each: found for each, found in self.epochs.items() if each.topic not in topics},
            {name: found for name, found in self.topic_ids.items() if name not in topics},
        )


def parse_reach(text: str) -> Reach:
    """Offsets, with or without epochs and ids; raises OffsetsError where it is anything else."""
    found = _object(text, OFFSETS_FORM)
    epochs, ids = found.pop(EPOCHS, {}), found.pop(TOPIC_IDS, {})
    if not isinstance(epochs, dict) or not isinstance(ids, dict):
        raise OffsetsError(OFFSETS_FORM)
    if not all(isinstance(each, str) for each in ids.values()):
        raise OffsetsError(f"{OFFSETS_FORM}, and ids of topics are text")
    return Reach(_numbers(found, EARLIEST), _numbers(epochs, 0), ids)


def parse_offsets(text: str, lowest: int = EARLIEST) -> Offsets:
    """Numbers for partitions; raises OffsetsError where it is anything else."""
    return _numbers(_object(text, OFFSETS_FORM), lowest)


def _numbers(topics: Mapping[str, Any], lowest: int) -> Offsets:
    found: Offsets = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise OffsetsError(OFFSETS_FORM)
        for partition, number in partitions.items():
            if not partition.isdecimal() or int(partition) > MAX_PARTITION:
                raise OffsetsError(f"{OFFSETS_FORM}, and {partition!r} is no partition")
            if type(number) is not int or not lowest <= number < 2**63:
                raise OffsetsError(
                    f"{OFFSETS_FORM}, and {json.dumps(number)} of {topic}-{partition} is not a "
                    f"whole number from {lowest} up"
                )
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assignment(text: str) -> list[TopicPartition]:
    """The partitions that `assign` names, sorted."""
    found = set()
    for topic, partitions in _object(text, ASSIGNMENT_FORM).items():
        if not isinstance(partitions, list):
            raise OffsetsError(ASSIGNMENT_FORM)
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= MAX_PARTITION:
                raise OffsetsError(
                    f"{ASSIGNMENT_FORM}, and {json.dumps(partition)} of {topic} is no partition"
                )
            found.add(TopicPartition(topic, partition))
    if not found:
        raise OffsetsError(f"{ASSIGNMENT_FORM} with at least one partition")
    return sorted(found)


def _object(text: str, form: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise OffsetsError(form) from None
    if not isinstance(value, dict):
        raise OffsetsError(form)
    return value


def to_json_object(offsets: Mapping[TopicPartition, int]) -> JsonNumbers:
    """Numbers of partitions, by topic and partition."""
    topics: JsonNumbers = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json_object(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json_object`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def limited(start: Offsets, end: Offsets, max_offsets: int) -> Offsets:
    """The end of a micro-batch of about `max_offsets`, in proportion to each partition's records.

    A partition with any records advances by at least one, so that none waits indefinitely.
    """
    sizes = {partition: max(0, end[partition] - start.get(partition, 0)) for partition in end}
    total = sum(sizes.values())
    if total <= max_offsets:
        return end
    stops: Offsets = {}
    left = max_offsets
    for partition in sorted(sizes, key=lambda each: (sizes[each], each)):
        size = sizes[partition]
        share = 0 if total == 0 else -(-left * size // total)
        taken = min(size, max(share, 1 if size else 0))
        stops[partition] = start.get(partition, 0) + taken
        total -= size
        left = max(0, left - taken)
    return {
        partition: stops[partition] if sizes[partition] else end[partition] for partition in end
    }


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that each partition still has."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last record of each partition."""


@dataclass(frozen=True, slots=True)
class ByOffset:
    """An offset for each partition; -2 stands for the earliest, -1 for the latest.

    `epochs` are those of the logs in which the partitions were read up to there, and `topic_ids`
    those of their topics, where known.
    """

    option: str
    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """A timestamp for each partition; `when_none` is for those without newer records.

    It is `error` or `latest`.
    """

    option: str
    timestamps_ms: Mapping[TopicPartition, int]
    when_none: str


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """One timestamp for all partitions."""

    timestamp_ms: int
    when_none: str


def reach_of(bound: Bound, offsets: Offsets) -> Reach:
    """The offsets that a bound means, with the leader epochs and the ids that it names."""
    if not isinstance(bound, ByOffset):
        return Reach(offsets, {}, {})
    return Reach(offsets, dict(bound.epochs), dict(bound.topic_ids))


Bound: TypeAlias = Earliest | Latest | ByOffset | ByTimestamp | GlobalTimestamp
"""Where reading begins or ends, as the user said it; offsets are looked up when a query runs."""
