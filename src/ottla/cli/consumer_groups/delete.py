"""`ottla consumer-groups`: `--list`, `--delete` and `--delete-offsets`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import UsageError
from ottla.cli.options import integers
from ottla.cli.table import TEXT, show_rows
from ottla.cli.terminal import Terminal
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin


# `ottla consumer-groups --list`.


STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES: Final = ("classic", "consumer")


def list_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Print the ids of the groups; with --state and --type also what they are."""
    states = group_states(arguments.state) if arguments.state else ()
    types = group_types(arguments.type) if arguments.type else ()
    groups = sorted(admin.list_groups(states, types), key=lambda group: group.group_id)
    if arguments.format != TEXT:
        rows = [
            {"group": group.group_id, "type": group.type, "state": group.state} for group in groups
        ]
        show_rows(rows, arguments.format, terminal)
        return 0
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    with_type, with_state = arguments.type is not None, arguments.state is not None
    if not with_type and not with_state:
        width = 0
    else:
        _print_row(terminal, width, "GROUP", "TYPE" * with_type, "STATE" * with_state)
    for group in groups:
        _print_row(
            terminal,
            width,
            group.group_id,
            group.type.capitalize() if with_type else "",
            group.state if with_state else "",
        )
    return 0


def _print_row(terminal: Terminal, width: int, group_id: str, type_: str, state: str) -> None:
    fields = [f"{group_id:<{width}}"] + [f"{field:<20}" for field in (type_, state) if field]
    terminal.print(" ".join(fields))


def group_types(text: str) -> tuple[str, ...]:
    """The types of a list like `classic,consumer`."""
    wanted = tuple(part.strip().lower() for part in text.split(","))
    for name in wanted:
        if name not in TYPES:
            raise UsageError(f"there is no group type '{name}'; there are {', '.join(TYPES)}")
    return wanted


def group_states(text: str) -> tuple[str, ...]:
    """The states of a list like `stable,empty`, spelled as the protocol spells them."""
    known = {state.lower(): state for state in STATES}
    wanted = [part.strip().lower() for part in text.split(",")]
    for state in wanted:
        if state not in known:
            raise UsageError(f"there is no group state '{state}'; there are {', '.join(STATES)}")
    return tuple(known[state] for state in wanted)


def chosen_groups(admin: Admin, arguments: Namespace) -> list[str]:
    """The groups that --group or --all-groups name."""
    if arguments.all_groups:
        return sorted(group.group_id for group in admin.list_groups())
    return list(dict.fromkeys(arguments.group))


# `ottla consumer-groups --delete-offsets`: have a group forget what it has committed.


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
        terminal.print(f"Request succeeded for deleting offsets from group {group}.")
    elif subscribed:
        terminal.note(f"Error: group '{group}' reads the topic now; its members have to go first.")
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
    deleted = quoted([group for group in groups if group not in failed])
    if not failed:
        terminal.print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return 0
    terminal.note("Error: Deletion of some consumer groups failed:")
    for group, reason in failed.items():
        terminal.note(f"* Group '{group}' could not be deleted due to: {reason}")
    if deleted:
        terminal.print(f"These consumer groups were deleted successfully: {deleted}")
    return 1


def quoted(names: list[str]) -> str:
    """Names as `'a', 'b'`."""
    return ", ".join(f"'{name}'" for name in names)
