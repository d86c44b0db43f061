"""`ottla consumer-groups --describe`: offsets and lag, members, or state, in Kafka's columns."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.cli.command_error import answers
from ottla.cli.consumer_group_listing import shown_groups
from ottla.cli.group_records import topics_of
from ottla.cli.options import bootstrap_server
from ottla.cli.output import one_line
from ottla.cli.property_files import command_settings
from ottla.cli.table import MISSING, TEXT, Row, show_rows
from ottla.cli.tail import Tail
from ottla.cli.topic_views import with_leaders
from ottla.clients.admin.descriptions import REBALANCING_STATES
from ottla.errors import KafkaError
from ottla.structs import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OFFSETS_TOPIC,
    NamedTuple,
    TopicPartition,
    partition_of,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from ottla import Admin, Consumer
    from ottla.cli.terminal import Terminal
    from ottla.clients.admin.descriptions import GroupDescription, MemberDescription


logger = logging.getLogger(__name__)
NUMBERS = ("partition", "current_offset", "log_end_offset", "lag", "to_read")
EPOCHS = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
NEWEST_RECORDS = 20_000
"""How many records of __consumer_offsets are searched for the topics that a group once read."""
READER_SETTINGS = {
    "client.id": "consumer-groups",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}


class PartitionRow(NamedTuple):
    """A partition of a group: its committed offset, the end of its log, and its reader."""

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
        """The fields with numbers as numbers; an unknown one is None."""
        return {
            name: int(text) if name in NUMBERS and text != MISSING else text
            for name, text in self._asdict().items()
        } | {name: None for name, text in self._asdict().items() if text == MISSING}


def describe_groups(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Describe each group; 1 where one of them does not exist, or cannot be described."""
    ids, status = shown_groups(admin, arguments, terminal)
    if not ids:
        return status
    groups, failed = answers(admin.describe_groups, ids)
    for group_id, error in failed.items():
        terminal.note(f"Error: Consumer group '{one_line(group_id)}' is not described: {error}")
    if arguments.format != TEXT:
        missing = show_groups(admin, groups, arguments, terminal)
        return 1 if missing or failed or status else 0
    missing = status + len(failed)
    for group_id, group in groups.items():
        rows = _offset_rows(admin, group, terminal) if _shows_offsets(arguments) else []
        if not rows and group.state != "Dead" and terminal.shows_results:
            rows = _rows_once_read(admin, group, arguments, terminal)
        if group.state == "Dead" and not rows:
            terminal.note(f"Error: Consumer group '{one_line(group_id)}' does not exist.")
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
            terminal.note(f"Error: Consumer group '{one_line(group_id)}' does not exist.")
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
        terminal.note(f"\nConsumer group '{one_line(group.group_id)}' has no active members.")
    elif group.state in REBALANCING_STATES:
        terminal.note(f"\nWarning: Consumer group '{one_line(group.group_id)}' is rebalancing.")


def _offset_rows(admin: Admin, group: GroupDescription, terminal: Terminal) -> list[PartitionRow]:
    """Assigned partitions by member, the one with most first; then those without a member."""
    committed = {
        partition: entry.offset
        for partition, entry in admin.list_group_offsets(group.group_id).items()
    }
    readers = {partition: member for member in group.members for partition in member.assignment}
    every = sorted({*committed, *readers})
    led, _ = with_leaders(admin, every, terminal)
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
    led, _ = with_leaders(admin, partitions, terminal)
    starts, ends = (
        _log_offsets(admin, led, when) for when in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    )
    return [partition_row(p, None, starts.get(p), ends.get(p), None) for p in partitions]


def topics_once_read(consumer: Consumer, group_id: str) -> set[str]:
    """The topics of a group, according to the newest records of __consumer_offsets.

    No request returns the subscriptions of an empty group's former members. Compaction removes
    the records in time; then nothing is found, as without the permission to read the topic.
    """
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
