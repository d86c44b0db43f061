"""`ottla topics --list` and `--describe`: lines as Kafka 2.3 prints them, or rows with --format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command_error import CommandError, answers, listed
from ottla.cli.options import did_you_mean, topic_pattern
from ottla.cli.table import show_rows
from ottla.clients.admin.descriptions import ConfigResource
from ottla.structs import (
    EARLIEST_TIMESTAMP,
    INTERNAL_TOPICS,
    LATEST_TIMESTAMP,
    OFFSETS_TOPIC,
    NamedTuple,
    TopicPartition,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ottla import Admin
    from ottla.cli.terminal import Terminal
    from ottla.cli.zookeeper_topics import ZooKeeperTopics
    from ottla.clients.admin.descriptions import ConfigEntry, TopicDescription, TopicPartitionInfo

    PartitionFilter = Callable[[TopicPartitionInfo, int], bool]
    Offsets = Mapping[TopicPartition, int]


def matching_topics(
    topics: Collection[str], expression: str | None, *, exclude_internal: bool
) -> list[str]:
    """The names, in order, of the topics that the expression matches as a whole."""
    names = sorted(topics)
    if exclude_internal:
        names = [name for name in names if name not in INTERNAL_TOPICS]
    if expression is None:
        return names
    pattern = topic_pattern(expression)
    return [name for name in names if pattern.fullmatch(name)]


def existing_topics(
    topics: Collection[str],
    expression: str,
    *,
    if_exists: bool,
    exclude_internal: bool = False,
) -> list[str]:
    """`matching_topics`; raises CommandError where there are none, unless `if_exists`."""
    names = matching_topics(topics, expression, exclude_internal=exclude_internal)
    if not names and not if_exists:
        near = did_you_mean(expression, topics)
        raise CommandError(f"topic '{expression}' does not exist{near}")
    return names


NONE: Final = "none"


class Described(NamedTuple):
    """A topic with its settings, as it is printed."""

    topic: TopicDescription
    settings: Mapping[str, str | None]
    min_isr: int = 1
    is_marked: bool = False
    """Whether it waits for its deletion; brokers do not tell."""
    no_leader: str = NONE


def describe_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print the topics that match, or the partitions that a report selects."""
    names = _names(admin.list_topics(), arguments)
    if not names:
        return
    topics = admin.describe_topics(names)
    wanted = _wanted_partitions(arguments, lambda: _live_brokers(admin))
    of_min_isr = arguments.under_min_isr_partitions or arguments.at_min_isr_partitions
    # No report waits for settings that it does not show: brokers read them from the registry.
    settings = _settings(admin, names) if wanted is None or of_min_isr else {}
    shown = 0
    for name in names:
        entries = settings.get(name, {})
        own = {key: each.value for key, each in entries.items() if not each.is_default}
        min_isr = int(entries["min.insync.replicas"].value or 1) if entries else 1
        shown += _print(Described(topics[name], own, min_isr), wanted, arguments, terminal)
    if wanted is not None and not shown:
        count = sum(len(topic.partitions) for topic in topics.values())
        terminal.remark(f"none of {count} partition{'s' * (count > 1)}")


def describe_nodes(nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal) -> None:
    """Print the topics of ZooKeeper's nodes, with the settings of their own only."""
    topics = nodes.describe_topics(_names(nodes.list_topics(), arguments))
    marked = nodes.marked_for_deletion()
    wanted = _wanted_partitions(arguments, nodes.live_brokers)
    for name, topic in topics.items():
        own = nodes.settings(name)
        shown = Described(topic, own, is_marked=name in marked, no_leader="-1")
        _print(shown, wanted, arguments, terminal)


def _print(
    shown: Described, wanted: PartitionFilter | None, arguments: Namespace, terminal: Terminal
) -> int:
    """Print the topic and the wanted partitions; return the number of these."""
    if wanted is None and (shown.settings or not arguments.topics_with_overrides):
        terminal.print(topic_line(shown))
    if arguments.topics_with_overrides:
        return 0
    count = 0
    for partition in sorted(shown.topic.partitions, key=lambda each: each.partition):
        if wanted is None or wanted(partition, shown.min_isr):
            count += 1
            line = partition_line(shown.topic.name, partition, shown.no_leader)
            # Where the line of the topic is printed, it says so already.
            is_told = wanted is not None and shown.is_marked
            terminal.print(f"{line}\tMarkedForDeletion: true" if is_told else line)
    return count


def _names(topics: Collection[str], arguments: Namespace) -> list[str]:
    if arguments.topic is None:
        return matching_topics(topics, None, exclude_internal=arguments.exclude_internal)
    return existing_topics(
        topics,
        arguments.topic,
        if_exists=arguments.if_exists,
        exclude_internal=arguments.exclude_internal,
    )


def _settings(admin: Admin, names: list[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    described = admin.describe_configs([ConfigResource.topic(name) for name in names])
    return {resource.name: entries for resource, entries in described.items()}


def _live_brokers(admin: Admin) -> set[int]:
    return {node.id for node in admin.describe_cluster().nodes}


def _wanted_partitions(
    arguments: Namespace, live_brokers: Callable[[], set[int]]
) -> PartitionFilter | None:
    """The test of the report that was asked for; None where all partitions are shown."""
    if arguments.under_replicated_partitions:
        return lambda partition, _: len(partition.isr) < len(partition.replicas)
    if arguments.under_min_isr_partitions:
        return lambda partition, min_isr: len(partition.isr) < min_isr
    if arguments.at_min_isr_partitions:
        return lambda partition, min_isr: len(partition.isr) == min_isr
    if arguments.unavailable_partitions:
        alive = live_brokers()
        return lambda partition, _: partition.leader not in alive
    return None


def topic_line(shown: Described) -> str:
    """`Topic:t PartitionCount:3 ReplicationFactor:1 Configs:k=v`, separated by tabs."""
    topic = shown.topic
    settings = ",".join(f"{key}={value}" for key, value in shown.settings.items())
    return (
        f"Topic:{topic.name}\tPartitionCount:{len(topic.partitions)}\t"
        f"ReplicationFactor:{len(topic.partitions[0].replicas)}\tConfigs:{settings}"
        + ("\tMarkedForDeletion:true" if shown.is_marked else "")
    )


def partition_line(topic: str, partition: TopicPartitionInfo, no_leader: str) -> str:
    """The line of one partition; `no_leader` stands in it where it has none."""
    has_state = partition.leader_epoch >= 0
    leader = partition.leader if partition.leader >= 0 else no_leader if has_state else NONE
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
    )


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def list_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print a topic name per line."""
    for name in matching_topics(
        admin.list_topics(), arguments.topic, exclude_internal=arguments.exclude_internal
    ):
        terminal.print(name)


def list_nodes(nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal) -> None:
    """Print the names in ZooKeeper, which also has topics that wait for deletion."""
    marked = nodes.marked_for_deletion()
    for name in matching_topics(
        nodes.list_topics(), arguments.topic, exclude_internal=arguments.exclude_internal
    ):
        terminal.print(f"{name} - marked for deletion" if name in marked else name)


RATE_MS: Final = 60_000
"""The time over which the rate of new records is averaged."""


def show_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Print a row for each topic; described, also its contents, rate and groups.

    1 where a broker has not answered; then what it leads, and its groups, are not in the rows.
    """
    names = _named_topics(admin, arguments)
    topics = admin.describe_topics(names) if names else {}
    rows = [shape(topic) for _, topic in sorted(topics.items())]
    status = 0
    if arguments.describe and topics:
        sizes, silent = sizes_of(admin, topics, terminal)
        starts, ends = ends_of(admin, topics, silent)
        readers, status = committed(admin, ends, terminal)
        status = max(status, len(silent) > 0)
        rates = records_per_s(admin, ends, terminal.now_ms())
        rows = [
            row | measures(topic, sizes, starts, ends, rates) | lag(topic, readers, ends)
            for row, (_, topic) in zip(rows, sorted(topics.items()), strict=True)
        ]
    show_rows(rows, arguments.format, terminal)
    return int(status)


def _named_topics(admin: Admin, arguments: Namespace) -> list[str]:
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


def led_of(topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, int]:
    """The leaders of the partitions that have one."""
    return {
        TopicPartition(name, each.partition): each.leader
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader >= 0
    }


def sizes_of(
    admin: Admin, topics: Mapping[str, TopicDescription], terminal: Terminal
) -> tuple[Offsets, set[int]]:
    """The bytes of each partition's largest replica, and the brokers that do not answer."""
    described, failed = answers(admin.describe_log_dirs, sorted(set(led_of(topics).values())))
    sizes: dict[TopicPartition, int] = {}
    for dirs in described.values():
        for found in dirs.values():
            for partition, replica in found.replicas.items():
                sizes[partition] = max(replica.size_in_bytes, sizes.get(partition, 0))
    for broker, error in failed.items():
        terminal.note(f"Error: nothing is known of what broker {broker} leads: {error}")
    return sizes, set(failed)


def ends_of(
    admin: Admin, topics: Mapping[str, TopicDescription], silent: Collection[int]
) -> tuple[Offsets, ...]:
    """The first offset of each partition and its end, but of those that silent brokers lead."""
    led = [partition for partition, leader in led_of(topics).items() if leader not in silent]
    return tuple(
        {p: found.offset for p, found in admin.list_offsets(dict.fromkeys(led, when)).items()}
        for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )


def with_leaders(
    admin: Admin, partitions: Collection[TopicPartition], terminal: Terminal
) -> tuple[list[TopicPartition], int]:
    """Those that have a leader to ask, in order, and how many are skipped: a note names each.

    To ask about the others would take until default.api.timeout.ms is over. A partition of a topic
    that was deleted is left out without a note.
    """
    leaders = leaders_of(admin, {partition.topic for partition in partitions})
    led, skipped = [], 0
    for partition in sorted(set(partitions) & leaders.keys()):
        if leaders[partition] >= 0:
            led.append(partition)
        else:
            note_no_leader(partition, terminal)
            skipped += 1
    return led, skipped


def leaders_of(admin: Admin, topics: Collection[str]) -> dict[TopicPartition, int]:
    """The leader of each partition of those topics that exist, -1 where there is none."""
    found = sorted(admin.list_topics().intersection(topics)) if topics else []
    return {
        TopicPartition(name, each.partition): each.leader
        for name, topic in (admin.describe_topics(found) if found else {}).items()
        for each in topic.partitions
    }


def note_no_coordinators(admin: Admin, topic: str, what: str, terminal: Terminal) -> int:
    """1 where partitions of such a topic have no leader: no broker lists what is theirs."""
    leaders = leaders_of(admin, {topic})
    missing = [str(each.partition) for each, leader in sorted(leaders.items()) if leader < 0]
    if missing:
        which = ", ".join(missing)
        terminal.note(
            f"Error: partitions {which} of {topic} have no leader: {what} of theirs are not listed"
        )
    return 1 if missing else 0


def note_no_leader(partition: TopicPartition, terminal: Terminal) -> None:
    """Say that a partition cannot be asked about now."""
    terminal.note(f"Error: partition {partition} does not have a leader. It is skipped.")


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


def committed(admin: Admin, ends: Offsets, terminal: Terminal) -> tuple[dict[str, Offsets], int]:
    """The offsets that each group has committed for these partitions, and the status."""
    found: dict[str, Offsets] = {}
    groups, status = listed(admin.list_groups, "groups", terminal.note)
    status = max(status, note_no_coordinators(admin, OFFSETS_TOPIC, "groups", terminal))
    for group in sorted({each.group_id for each in groups}):
        offsets = {p: entry.offset for p, entry in admin.list_group_offsets(group).items()}
        found[group] = {partition: offsets[partition] for partition in offsets if partition in ends}
    return found, status


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
