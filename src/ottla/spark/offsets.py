"""Offsets of partitions, their JSON, and the ranges that tasks read.

The JSON is that of Spark's Kafka source, `{"topic":{"0":23,"1":45}}`, so that offsets can be copied
from one to the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.structs import TopicPartition

Offsets = dict[TopicPartition, int]
EARLIEST = -2
LATEST = -1
MAX_PARTITION = 2**31 - 1
OFFSETS_FORM = 'JSON like {"topic":{"0":23,"1":45}}'
ASSIGNMENT_FORM = 'JSON like {"topic":[0,1]}'


class OffsetsError(ValueError):
    """Text that does not hold offsets; the message says what it must be."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition from `start` up to, and without, `end`."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def parse_offsets(text: str, lowest: int = EARLIEST) -> Offsets:
    """Numbers for partitions; raises OffsetsError where it is anything else."""
    found: Offsets = {}
    for topic, partitions in _object(text, OFFSETS_FORM).items():
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


def to_json_object(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them in its checkpoint."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json_object(topics: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What `to_json_object` made."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


def limited(start: Offsets, end: Offsets, max_offsets: int) -> Offsets:
    """The end of a micro-batch of about `max_offsets`, shared out by what each partition holds.

    A partition that has anything gets on by one at least, so that none waits for ever.
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
