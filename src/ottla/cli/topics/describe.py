"""`ottla topics --describe`: a line per topic and per partition, as Kafka 2.3 prints them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.terminal import Terminal
from ottla.cli.topics.topic_filter import existing_topics, matching_topics

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.clients.admin.descriptions import ConfigEntry, TopicDescription, TopicPartitionInfo

    Wanted = Callable[[TopicPartitionInfo, int], bool]


def describe_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print the topics that match, or what a report picks out of them."""
    names = _names(admin, arguments)
    if not names:
        return
    topics = admin.describe_topics(names)
    settings = _settings(admin, names)
    wanted = _wanted_partitions(admin, arguments)
    for name in names:
        own = {key: entry for key, entry in settings[name].items() if not entry.is_default}
        if wanted is None and (own or not arguments.topics_with_overrides):
            terminal.print(topic_line(topics[name], own))
        if arguments.topics_with_overrides:
            continue
        min_isr = int(settings[name]["min.insync.replicas"].value or 1)
        for partition in sorted(topics[name].partitions, key=lambda each: each.partition):
            if wanted is None or wanted(partition, min_isr):
                terminal.print(partition_line(name, partition))


def _names(admin: Admin, arguments: Namespace) -> list[str]:
    if arguments.topic is None:
        return matching_topics(admin, None, exclude_internal=arguments.exclude_internal)
    return existing_topics(
        admin,
        arguments.topic,
        if_exists=arguments.if_exists,
        exclude_internal=arguments.exclude_internal,
    )


def _settings(admin: Admin, names: list[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    from ottla.clients.admin.descriptions import ConfigResource

    described = admin.describe_configs([ConfigResource.topic(name) for name in names])
    return {resource.name: entries for resource, entries in described.items()}


def _wanted_partitions(admin: Admin, arguments: Namespace) -> Wanted | None:
    """The test of the report that was asked for; None where all partitions are shown."""
    if arguments.under_replicated_partitions:
        return lambda partition, _: len(partition.isr) < len(partition.replicas)
    if arguments.under_min_isr_partitions:
        return lambda partition, min_isr: len(partition.isr) < min_isr
    if arguments.at_min_isr_partitions:
        return lambda partition, min_isr: len(partition.isr) == min_isr
    if arguments.unavailable_partitions:
        alive = {node.id for node in admin.describe_cluster().nodes}
        return lambda partition, _: partition.leader not in alive
    return None


def topic_line(topic: TopicDescription, own_settings: Mapping[str, ConfigEntry]) -> str:
    """`Topic:t PartitionCount:3 ReplicationFactor:1 Configs:k=v`, separated by tabs."""
    settings = ",".join(f"{key}={entry.value}" for key, entry in own_settings.items())
    return (
        f"Topic:{topic.name}\tPartitionCount:{len(topic.partitions)}\t"
        f"ReplicationFactor:{len(topic.partitions[0].replicas)}\tConfigs:{settings}"
    )


def partition_line(topic: str, partition: TopicPartitionInfo) -> str:
    """The line of one partition; one without a leader says `none`."""
    leader = "none" if partition.leader < 0 else partition.leader
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}"
    )


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
