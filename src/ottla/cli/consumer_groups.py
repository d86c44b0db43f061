"""`ottla consumer-groups`: which groups there are, what they read, and how far they are."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    add_unused_zookeeper,
    bootstrap_server,
    command_settings,
    duration_ms,
    forbid_with,
    integers,
    one_of,
    only_with,
    require,
    timestamp_ms,
)
from ottla.cli.output import MISSING, TEXT, Row, add_format, one_line, show_rows
from ottla.cli.tail import Tail
from ottla.cli.terminal import Terminal
from ottla.cli.topic_views import with_leaders
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OFFSETS_TOPIC,
    TopicPartition,
    partition_of,
)

if TYPE_CHECKING:
    from ottla import Admin, Consumer
    from ottla.clients.admin.descriptions import GroupDescription, MemberDescription


logger = logging.getLogger(__name__)

ACTIONS: Final = ("--list", "--describe", "--delete", "--delete-offsets", "--reset-offsets")
SCENARIOS: Final = (
    "--to-datetime",
    "--by-duration",
    "--to-earliest",
    "--to-latest",
    "--shift-by",
    "--from-file",
    "--to-current",
    "--to-offset",
)


class ConsumerGroupsCommand(Command):
    """Lists, describes and deletes consumer groups, and resets or deletes their offsets."""

    name = "consumer-groups"
    help = "List, describe and delete consumer groups, and reset or delete their offsets."
    examples = (
        "ottla consumer-groups --bootstrap-server localhost:9092 --list",
        "ottla consumer-groups --bootstrap-server localhost:9092 --describe --group my-group",
        "ottla consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group my-group"
        " --topic test --to-earliest --execute",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_unused_zookeeper(parser)
        add_command_config(parser)
        _add_actions(parser)
        _add_views(parser)
        _add_reset(parser)
        _add_scenarios(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = check(arguments)
        servers = bootstrap_server(arguments)
        settings = command_settings(arguments)
        if arguments.timeout is not None:
            settings["default.api.timeout.ms"] = str(arguments.timeout)
        with terminal.admin(servers, settings) as admin:
            if action == "--list":
                return list_groups(admin, arguments, terminal)
            if action == "--describe":
                return describe_groups(admin, arguments, terminal)
            if action == "--delete":
                return delete_groups(admin, arguments, terminal)
            if action == "--delete-offsets":
                return delete_offsets(admin, arguments, terminal)
            from ottla.cli.offset_reset import reset_offsets

            return reset_offsets(admin, chosen_groups(admin, arguments), arguments, terminal)


def _add_actions(parser: ArgumentParser) -> None:
    add_flag(parser, "--list", "List the groups, an id per line.")
    add_flag(
        parser,
        "--describe",
        "Show committed offsets, log ends and lag of a group; or see --members and --state.",
    )
    add_flag(parser, "--delete", "Delete groups that have no members, with offsets.")
    add_flag(
        parser,
        "--delete-offsets",
        "Have a group forget what it has committed for a --topic that it does not read now.",
    )
    add_flag(
        parser,
        "--reset-offsets",
        "Set the offsets of a group that has no members. Needs one of --to-datetime, "
        "--by-duration, --to-earliest, --to-latest, --shift-by, --from-file, --to-current and "
        "--to-offset, and the scope: --topic or --all-topics.",
    )
    add_format(parser)
    add_repeated(parser, "--group", "ID", "The group; may be repeated.")
    add_flag(parser, "--all-groups", "Every group there is.")
    add_integer(
        parser,
        "--timeout",
        "MS",
        "How long the tool may wait for answers, in place of default.api.timeout.ms.",
    )


def _add_views(parser: ArgumentParser) -> None:
    add_flag(
        parser,
        "--offsets",
        "Describe the partitions with their offsets and lag; this is the default.",
    )
    add_flag(parser, "--members", "Describe the members of the group.")
    add_flag(
        parser,
        "--verbose",
        "Show which partitions each member has (--members), and epochs (also --state).",
    )
    parser.add_argument(
        "--state",
        metavar="STATE,...",
        nargs="?",
        const="",
        help="With --describe: the coordinator, assignor, state and number of members. With "
        "--list: the state of each group, or only groups in these states.",
    )
    parser.add_argument(
        "--type",
        metavar="TYPE,...",
        nargs="?",
        const="",
        help="With --list: the type of each group, or only groups of these types: classic, "
        "consumer.",
    )


def _add_reset(parser: ArgumentParser) -> None:
    add_repeated(
        parser,
        "--topic",
        "TOPIC[:P,P...]",
        "Reset, or delete the offsets of, this topic or these of its partitions; may be repeated.",
    )
    add_flag(parser, "--all-topics", "Reset every topic that the group has offsets of.")
    add_flag(parser, "--dry-run", "Only show what would be reset; the default.")
    add_flag(parser, "--execute", "Reset the offsets.")
    add_flag(
        parser,
        "--export",
        "Print the new offsets as CSV: topic,partition,offset, with the group in front "
        "where there are several. --from-file reads it.",
    )


def _add_scenarios(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--to-datetime",
        metavar="DATETIME",
        help="Reset to the first record since a moment, YYYY-MM-DDTHH:mm:SS.sss with an "
        "optional zone such as Z or +02:00; UTC without one.",
    )
    parser.add_argument(
        "--by-duration",
        metavar="DURATION",
        help="Reset to the first record since a duration ago, PnDTnHnMnS.",
    )
    add_flag(parser, "--to-earliest", "Reset to the earliest offset.")
    add_flag(parser, "--to-latest", "Reset to the log end.")
    add_integer(
        parser,
        "--shift-by",
        "N",
        "Move each committed offset by N, which may be negative; never out of the log.",
    )
    parser.add_argument("--from-file", metavar="FILE", help="Reset to the offsets of a CSV file.")
    add_flag(
        parser, "--to-current", "Reset to the committed offset, or the log end where there is none."
    )
    add_integer(parser, "--to-offset", "OFFSET", "Reset to an offset; never out of the log.")


def check(arguments: Namespace) -> str:
    """The action, once it is clear that the options fit it and each other."""
    action = one_of(arguments, ACTIONS)
    forbid_with(arguments, "--group", ("--all-groups", "--list"))
    if action != "--list" and not (arguments.group or arguments.all_groups):
        raise UsageError(f"option {action} needs --group or --all-groups")
    only_with(arguments, ("--members", "--offsets", "--verbose"), "--describe")
    only_with(arguments, ("--type",), "--list")
    for view in ("--members", "--offsets", "--state"):
        forbid_with(arguments, view, ("--members", "--offsets", "--state"))
    if action == "--describe" and arguments.state:
        raise UsageError(f"option --state takes no value with --describe, not '{arguments.state}'")
    forbid_with(arguments, "--state", ("--delete", "--delete-offsets", "--reset-offsets"))
    if arguments.format != TEXT and action in ("--delete", "--delete-offsets"):
        raise UsageError(f"--format {arguments.format} cannot be used with {action}")
    if arguments.format != TEXT and arguments.export:
        raise UsageError(f"--format {arguments.format} cannot be used with --export, which is CSV")
    if action == "--delete-offsets":
        require(arguments, "--group", "--topic")
    elif arguments.topic:
        only_with(arguments, ("--topic",), "--reset-offsets")
    reset_options = ("--all-topics", "--dry-run", "--execute", "--export", *SCENARIOS)
    only_with(arguments, reset_options, "--reset-offsets")
    if action == "--reset-offsets":
        _check_reset(arguments)
    return action


def _check_reset(arguments: Namespace) -> None:
    one_of(arguments, SCENARIOS)
    forbid_with(arguments, "--dry-run", ("--execute",))
    forbid_with(arguments, "--topic", ("--all-topics",))
    if not (arguments.topic or arguments.all_topics or arguments.from_file):
        raise UsageError("--reset-offsets needs a scope: --topic or --all-topics")
    if arguments.to_datetime:
        timestamp_ms(arguments.to_datetime)  # a mistake in it is told before anything else
    if arguments.by_duration:
        duration_ms(arguments.by_duration)


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


# `ottla consumer-groups --describe`: offsets and lag, members, or state, in Kafka's columns.


NUMBERS = ("partition", "current_offset", "log_end_offset", "lag", "to_read")
EPOCHS = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
NEWEST_RECORDS = 20_000
"""How many records of __consumer_offsets are searched for the topics that a group once read."""
READER_SETTINGS = {
    "client.id": "consumer-groups",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}


class PartitionRow(NamedTuple):
    """A partition of a group: what is committed, where the log ends, and who reads it."""

    topic: str = MISSING
    partition: str = MISSING
    current_offset: str = MISSING
    log_end_offset: str = MISSING
    lag: str = MISSING
    to_read: str = MISSING
    """How much lies between the committed offset, or the log start without one, and the end."""
    consumer_id: str = MISSING
    host: str = MISSING
    client_id: str = MISSING

    def values(self) -> dict[str, object]:
        """The fields with numbers as numbers; what is not known is None."""
        return {
            name: int(text) if name in NUMBERS and text != MISSING else text
            for name, text in self._asdict().items()
        } | {name: None for name, text in self._asdict().items() if text == MISSING}


def describe_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Describe each group; 1 where one of them does not exist."""
    ids = chosen_groups(admin, arguments)
    if not ids:
        return 0
    groups = admin.describe_groups(ids)
    if arguments.format != TEXT:
        return show_groups(admin, groups, arguments, terminal)
    missing = 0
    for group_id in sorted(groups):
        group = groups[group_id]
        rows = _offset_rows(admin, group, terminal) if _shows_offsets(arguments) else []
        if not rows and group.state != "Dead" and terminal.shows_results:
            rows = _rows_once_read(admin, group, arguments, terminal)
        if group.state == "Dead" and not rows:
            terminal.note(f"Error: Consumer group '{group_id}' does not exist.")
            missing += 1
            continue
        _note_state(group, terminal)
        if arguments.state is not None:
            _print_state(group, arguments.verbose, terminal)
        elif arguments.members:
            _print_members(group, arguments.verbose, terminal)
        else:
            _print_offsets(group, rows, terminal)
    return 1 if missing else 0


def show_groups(
    admin: Admin,
    groups: Mapping[str, GroupDescription],
    arguments: Namespace,
    terminal: Terminal,
) -> int:
    """The same as a table or JSON: offsets, or members, or states; 1 where a group is missing."""
    rows: list[Row] = []
    missing = 0
    for group_id, group in sorted(groups.items()):
        offsets = _offset_rows(admin, group, terminal)
        if not offsets and group.state != "Dead" and _shows_offsets(arguments):
            offsets = _rows_once_read(admin, group, arguments, terminal)
        if group.state == "Dead" and not offsets:
            terminal.note(f"Error: Consumer group '{group_id}' does not exist.")
            missing = 1
        elif arguments.state is not None:
            rows.append(_state_row(group))
        elif arguments.members:
            rows += [_member_row(group, member) for member in group.members]
        else:
            rows += [{"group": group_id} | row.values() for row in offsets]
    show_rows(rows, arguments.format, terminal)
    return missing


def _state_row(group: GroupDescription) -> Row:
    node = group.coordinator
    return {
        "group": group.group_id,
        "coordinator": f"{node.host}:{node.port}",
        "coordinator_id": node.id,
        "assignment_strategy": group.protocol,
        "state": group.state,
        "members": len(group.members),
    }


def _member_row(group: GroupDescription, member: MemberDescription) -> Row:
    return {
        "group": group.group_id,
        "consumer_id": member.member_id,
        "host": member.host,
        "client_id": member.client_id,
        "partitions": len(member.assignment),
        "assignment": assignment_text(member.assignment),
    }


def _shows_offsets(arguments: Namespace) -> bool:
    return arguments.state is None and not arguments.members


def _note_state(group: GroupDescription, terminal: Terminal) -> None:
    if group.state == "Empty":
        terminal.note(f"\nConsumer group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING:
        terminal.note(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.")


def _offset_rows(admin: Admin, group: GroupDescription, terminal: Terminal) -> list[PartitionRow]:
    """Assigned partitions by member, the one with most first; then those without a member."""
    committed = {
        partition: entry.offset
        for partition, entry in admin.list_group_offsets(group.group_id).items()
    }
    readers = {partition: member for member in group.members for partition in member.assignment}
    every = sorted({*committed, *readers})
    led = with_leaders(admin, every, terminal)
    ends = _log_offsets(admin, led, LATEST_TIMESTAMP)
    starts = _log_offsets(
        admin, [each for each in led if each not in committed], EARLIEST_TIMESTAMP
    )

    def row(partition: TopicPartition, member: MemberDescription | None) -> PartitionRow:
        places = committed.get(partition), starts.get(partition), ends.get(partition)
        return partition_row(partition, *places, member)

    busiest_first = sorted(group.members, key=lambda member: -len(member.assignment))
    rows = []
    for member in busiest_first:
        rows += [row(partition, member) for partition in sorted(member.assignment)]
    return rows + [row(partition, None) for partition in every if partition not in readers]


def _log_offsets(
    admin: Admin, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """The log starts or ends."""
    found = admin.list_offsets(dict.fromkeys(partitions, timestamp)) if partitions else {}
    return {partition: result.offset for partition, result in found.items()}


def _rows_once_read(
    admin: Admin, group: GroupDescription, arguments: Namespace, terminal: Terminal
) -> list[PartitionRow]:
    """The partitions of topics that members of a group without offsets have subscribed to."""
    settings = command_settings(arguments) | READER_SETTINGS
    with terminal.clients.consumer(bootstrap_server(arguments), settings) as consumer:
        topics = sorted(topics_once_read(consumer, group.group_id) & admin.list_topics())
    described = admin.describe_topics(topics) if topics else {}
    partitions = [
        TopicPartition(name, each.partition)
        for name in topics
        for each in sorted(described[name].partitions, key=lambda info: info.partition)
    ]
    if topics:
        terminal.remark(
            f"Group '{group.group_id}' has committed no offsets; "
            f"it has subscribed to {', '.join(topics)}."
        )
    led = with_leaders(admin, partitions, terminal)
    starts, ends = (
        _log_offsets(admin, led, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )
    return [partition_row(p, None, starts.get(p), ends.get(p), None) for p in partitions]


def topics_once_read(consumer: Consumer, group_id: str) -> set[str]:
    """What the newest records of __consumer_offsets say about a group's topics.

    No request tells what the former members of an empty group subscribed to. Compaction removes
    the records in time; then nothing is found, as without the permission to read the topic.
    """
    from ottla.cli.group_records import topics_of

    try:
        count = len(consumer.partitions_for(OFFSETS_TOPIC))
        tail = Tail(consumer, [TopicPartition(OFFSETS_TOPIC, partition_of(group_id, count))])
        return {
            topic
            for record in tail.newest_offsets(NEWEST_RECORDS)
            for topic in topics_of(group_id, record.key, record.value)
        }
    except KafkaError as error:
        logger.debug("%s cannot be read: %s", OFFSETS_TOPIC, error)
        return set()


def partition_row(
    partition: TopicPartition,
    committed: int | None,
    start: int | None,
    end: int | None,
    member: MemberDescription | None,
) -> PartitionRow:
    """One row; an unknown value is a dash."""
    known = committed is not None and committed >= 0
    first = committed if known else start
    return PartitionRow(
        topic=partition.topic,
        partition=str(partition.partition),
        current_offset=str(committed) if known else MISSING,
        log_end_offset=MISSING if end is None else str(end),
        lag=str(end - committed)
        if committed is not None and known and end is not None
        else MISSING,
        to_read=MISSING if first is None or end is None else str(max(0, end - first)),
        consumer_id=member.member_id if member else MISSING,
        host=member.host if member else MISSING,
        client_id=member.client_id if member else MISSING,
    )


def _print_offsets(group: GroupDescription, rows: list[PartitionRow], terminal: Terminal) -> None:
    if not rows:
        terminal.remark(f"Group '{group.group_id}' has committed no offsets.")
        return
    # Kafka's columns; TO-READ is for a person where LAG is not known.
    shows_rest = terminal.shows_results and any(row.lag == MISSING for row in rows)
    names = [name for name in PartitionRow._fields if shows_rest or name != "to_read"]
    widths = (
        _width([group.group_id]),
        _width([row.topic for row in rows]),
        10,
        *[15] * (len(names) - 5),
        _width([row.consumer_id for row in rows]),
        _width([row.host for row in rows]),
        0,
    )
    header = ("group", *names)
    terminal.print("\n" + columns([name.upper().replace("_", "-") for name in header], widths))
    for row in rows:
        fields = row._asdict()
        terminal.print(columns((group.group_id, *(fields[name] for name in names)), widths))


def _print_members(group: GroupDescription, verbose: bool, terminal: Terminal) -> None:
    members = group.members
    if not members:
        return
    widths = [
        _width([group.group_id]),
        _width([member.member_id for member in members]),
        _width([member.host for member in members]),
        _width([member.client_id for member in members]),
        15,
    ]
    details = [_details(group, member) if verbose else ("",) for member in members]
    header: tuple[str, ...] = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
    if verbose:
        header += ("ASSIGNMENT",) if group.group_epoch is None else EPOCHS
    else:
        header += ("",)
    widths += [_width(list(column)) for column in zip(*details, strict=True)]
    widths[-1] = 0
    terminal.print("\n" + columns(header, widths))
    for member, more in zip(members, details, strict=True):
        count = str(len(member.assignment))
        fields = (group.group_id, member.member_id, member.host, member.client_id, count, *more)
        terminal.print(columns(fields, widths))


def _details(group: GroupDescription, member: MemberDescription) -> tuple[str, ...]:
    """The partitions of a member; of one of a consumer group also epochs and target."""
    current = assignment_text(member.assignment)
    if group.group_epoch is None:
        return (current,)
    target = assignment_text(member.target_assignment or [])
    return str(member.member_epoch), current, str(group.assignment_epoch), target


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """`topic1(0,1), topic2(0)`, or a dash."""
    return ", ".join(_topic_texts(partitions)) or MISSING


def _topic_texts(partitions: Sequence[TopicPartition]) -> Iterator[str]:
    for topic, group in groupby(sorted(partitions), key=lambda partition: partition.topic):
        yield f"{topic}({','.join(str(partition.partition) for partition in group)})"


def _print_state(group: GroupDescription, verbose: bool, terminal: Terminal) -> None:
    node = group.coordinator
    coordinator = f"{node.host}:{node.port} ({node.id})"
    widths: tuple[int, ...] = (max(25, len(coordinator)), 25, 20, 15)
    header: tuple[str, ...] = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE")
    fields: tuple[str, ...] = (group.group_id, coordinator, group.protocol, group.state)
    if verbose and group.group_epoch is not None:
        widths += (15, 25)
        header += ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH")
        fields += (str(group.group_epoch), str(group.assignment_epoch))
    terminal.print("\n" + columns((*header, "#MEMBERS"), (*widths, 0)))
    terminal.print(columns((*fields, str(len(group.members))), (*widths, 0)))


def columns(fields: Sequence[str], widths: Sequence[int]) -> str:
    """Fields padded to their widths, a blank between them; the last one is not padded."""
    texts = map(one_line, fields)
    return " ".join(f"{text:<{width}}" for text, width in zip(texts, widths, strict=True))


def _width(texts: Sequence[str]) -> int:
    return max(15, *(len(text) for text in texts))
