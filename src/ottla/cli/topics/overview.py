"""`ottla topics --list` and `--describe` with --format: sizes, ends and readers of topics."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.table import show_rows
from ottla.cli.terminal import Terminal
from ottla.cli.topics.describe import existing_topics, matching_topics
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.clients.admin.descriptions import TopicDescription

    Offsets = Mapping[TopicPartition, int]

RATE_MS: Final = 60_000
"""The time over which the rate of new records is averaged."""


def show_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print a row for each topic; described, also its contents, rate and groups."""
    names = _names(admin, arguments)
    topics = admin.describe_topics(names) if names else {}
    rows = [shape(topic) for _, topic in sorted(topics.items())]
    if arguments.describe and topics:
        sizes, starts, ends = contents(admin, topics)
        readers = committed(admin, ends)
        rates = records_per_s(admin, ends, terminal.now_ms())
        rows = [
            row | measures(topic, sizes, starts, ends, rates) | lag(topic, readers, ends)
            for row, (_, topic) in zip(rows, sorted(topics.items()), strict=True)
        ]
    show_rows(rows, arguments.format, terminal)


def _names(admin: Admin, arguments: Namespace) -> list[str]:
    hides = arguments.exclude_internal
    if arguments.topic is None or arguments.list:
        return matching_topics(admin.list_topics(), arguments.topic, exclude_internal=hides)
    if_exists = arguments.if_exists
    return existing_topics(
        admin.list_topics(), arguments.topic, if_exists=if_exists, exclude_internal=hides
    )


def shape(topic: TopicDescription) -> dict[str, Any]:
    """Partitions, replicas and kind of a topic."""
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replicas": len(topic.partitions[0].replicas),
        "internal": topic.is_internal,
    }


def contents(admin: Admin, topics: Mapping[str, TopicDescription]) -> tuple[Offsets, ...]:
    """The bytes of each partition's largest replica, its first offset and its end."""
    leaders = {
        TopicPartition(name, each.partition): each.leader
        for name, topic in topics.items()
        for each in topic.partitions
    }
    led = [partition for partition, leader in leaders.items() if leader >= 0]
    sizes: dict[TopicPartition, int] = {}
    brokers = sorted({leaders[partition] for partition in led})
    for dirs in admin.describe_log_dirs(brokers).values():
        for found in dirs.values():
            for partition, replica in found.replicas.items():
                sizes[partition] = max(replica.size_in_bytes, sizes.get(partition, 0))
    starts, ends = (
        {p: found.offset for p, found in admin.list_offsets(dict.fromkeys(led, when)).items()}
        for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )
    return sizes, starts, ends


def records_per_s(admin: Admin, ends: Offsets, now_ms: int) -> dict[TopicPartition, float]:
    """How many records a second came in during the last minute, by their timestamps.

    Records that were produced with an old timestamp are not counted.
    """
    since = admin.list_offsets(dict.fromkeys(ends, now_ms - RATE_MS))
    return {
        partition: max(0, ends[partition] - found.offset) / (RATE_MS / 1000)
        if found.offset >= 0
        else 0.0
        for partition, found in since.items()
    }


def measures(
    topic: TopicDescription,
    sizes: Offsets,
    starts: Offsets,
    ends: Offsets,
    rates: Mapping[TopicPartition, float],
) -> dict[str, Any]:
    """Offsets count records and markers alike; compaction leaves fewer records than offsets."""
    partitions: list[dict[str, Any]] = []
    for each in sorted(topic.partitions, key=lambda each: each.partition):
        partition = TopicPartition(topic.name, each.partition)
        partitions.append(
            {
                "partition": each.partition,
                "leader": each.leader if each.leader >= 0 else None,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "start_offset": starts.get(partition),
                "end_offset": ends.get(partition),
                "bytes": sizes.get(partition),
                "in_per_s": rates.get(partition),
            }
        )
    return {
        "offsets": sum(
            row["end_offset"] - row["start_offset"]
            for row in partitions
            if row["end_offset"] is not None
        ),
        "bytes": sum(row["bytes"] or 0 for row in partitions),
        "in_per_s": round(sum(row["in_per_s"] or 0.0 for row in partitions), 1),
        "in_sync": all(len(each.isr) == len(each.replicas) for each in topic.partitions),
        "partition_list": partitions,
    }


def committed(admin: Admin, ends: Offsets) -> dict[str, Offsets]:
    """What each group has committed for these partitions."""
    found: dict[str, Offsets] = {}
    for group in sorted(listed.group_id for listed in admin.list_groups()):
        offsets = {p: entry.offset for p, entry in admin.list_group_offsets(group).items()}
        found[group] = {partition: offsets[partition] for partition in offsets if partition in ends}
    return found


def lag(topic: TopicDescription, readers: Mapping[str, Offsets], ends: Offsets) -> dict[str, Any]:
    """How many groups read a topic, and how far the slowest is behind."""
    behind = {}
    for group, offsets in readers.items():
        mine = [partition for partition in offsets if partition.topic == topic.name]
        if mine:
            behind[group] = sum(max(0, ends[each] - offsets[each]) for each in mine)
    return {
        "groups": len(behind),
        "max_lag": max(behind.values(), default=None),
        "group_list": [{"group": group, "lag": count} for group, count in behind.items()],
    }
