"""`ottla consumer-groups --delete-offsets`: have a group forget what it has committed."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.options import integers
from ottla.cli.terminal import Terminal
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin

Status = dict[TopicPartition, KafkaError | None]


def delete_offsets(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Delete the offsets and print how it went, by partition; 1 unless all are deleted."""
    failed = 0
    for group in arguments.group:
        partitions = [
            partition
            for argument in arguments.topic
            for partition in partitions_of(admin, argument)
        ]
        status: Status = dict.fromkeys(partitions)
        try:
            admin.delete_group_offsets(group, partitions)
        except KafkaError as error:
            status.update(getattr(error, "results", dict.fromkeys(partitions, error)))
        _print_status(group, status, terminal)
        failed += any(status.values())
    return 1 if failed else 0


def partitions_of(admin: Admin, argument: str) -> list[TopicPartition]:
    """The partitions of `topic` or `topic:0,1`; those that are named need not exist any more."""
    topic, colon, numbers = argument.partition(":")
    if colon:
        return [TopicPartition(topic, number) for number in integers(numbers, "--topic")]
    described = admin.describe_topics([topic])[topic]
    return sorted(TopicPartition(topic, each.partition) for each in described.partitions)


def _print_status(group: str, status: Status, terminal: Terminal) -> None:
    errors = [error for error in status.values() if error is not None]
    subscribed = [each for each in errors if each.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    if not errors:
        terminal.print(f"Request succeeded for deleting offsets from group {group}.")
    elif subscribed:
        terminal.note(f"Error: group '{group}' reads the topic now; its members have to go first.")
    else:
        terminal.note(f"Error: {errors[0].message}")
    terminal.print(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for (topic, partition), error in sorted(status.items(), key=lambda entry: entry[0]):
        shown = "Successful" if error is None else f"Error: {error.error.name}"
        terminal.print(f"{topic:<30} {partition:<15} {shown:<15}")
