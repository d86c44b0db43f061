"""`ottla consumer-groups --delete` and `--delete-offsets`: groups and offsets are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.consumer_group_listing import chosen_groups
from ottla.cli.options import integers
from ottla.cli.output import one_line
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal


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
    """The partitions of `topic` or `topic:0,1`; partitions that are named may no longer exist."""
    topic, colon, numbers = argument.partition(":")
    if colon:
        return [TopicPartition(topic, number) for number in integers(numbers, "--topic")]
    described = admin.describe_topics([topic])[topic]
    return sorted(TopicPartition(topic, each.partition) for each in described.partitions)


def _print_status(group: str, status: Status, terminal: Terminal) -> None:
    errors = [error for error in status.values() if error is not None]
    subscribed = [each for each in errors if each.error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    if not errors:
        terminal.print(f"Request succeeded for deleting offsets from group {one_line(group)}.")
    elif subscribed:
        terminal.note(
            f"Error: group '{one_line(group)}' reads the topic now; its members have to go first."
        )
    else:
        terminal.note(f"Error: {errors[0].message}")
    terminal.print(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for (topic, partition), error in sorted(status.items(), key=lambda entry: entry[0]):
        shown = "Successful" if error is None else f"Error: {error.error.name}"
        terminal.print(f"{topic:<30} {partition:<15} {shown:<15}")


def delete_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Delete the groups; those that could not be are listed with the reason."""
    groups = chosen_groups(admin, arguments)
    failed: dict[str, KafkaError] = {}
    for group in groups:
        try:
            admin.delete_groups([group])
        except KafkaError as error:
            failed[group] = error
    deleted = quoted([one_line(group) for group in groups if group not in failed])
    if not failed:
        terminal.print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return 0
    terminal.note("Error: Deletion of some consumer groups failed:")
    for group, reason in failed.items():
        terminal.note(f"* Group '{one_line(group)}' could not be deleted due to: {reason}")
    if deleted:
        terminal.print(f"These consumer groups were deleted successfully: {deleted}")
    return 1


def quoted(names: list[str]) -> str:
    """Names as `'a', 'b'`."""
    return ", ".join(f"'{name}'" for name in names)
