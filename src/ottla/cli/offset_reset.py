"""`ottla consumer-groups --reset-offsets`: plan the new offsets, show them, and commit them."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.console_consumer import POLL_MS
from ottla.cli.options import bootstrap_server, integers
from ottla.cli.output import one_line
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, Row, cell, show_rows
from ottla.cli.terminal import harmless
from ottla.cli.text_files import read_text
from ottla.cli.times import age_text, duration_ms, moment_text, timestamp_ms
from ottla.cli.topic_views import leaders_of, with_leaders
from ottla.clients.admin.descriptions import IDLE_STATES
from ottla.clients.admin.offset_reset import (
    OffsetReset,
    ResetScenario,
    new_offsets,
    timestamps,
    within_log,
)
from ottla.config.whole_number import number_of
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence

    from ottla import Admin, Consumer
    from ottla.cli.terminal import Terminal

ResetPlan = dict[str, dict[TopicPartition, int]]


def plan_as_csv(plan: ResetPlan, *, with_group: bool) -> str:
    """The lines that --export prints."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group, offsets in plan.items():
        for (topic, partition), offset in sorted(offsets.items()):
            writer.writerow([group, topic, partition, offset][0 if with_group else 1 :])
    return text.getvalue()


def read_plan(path: str, *, only_group: str | None) -> ResetPlan:
    """The plan in a file; lines without a group belong to `only_group`."""
    plan: ResetPlan = {}
    rows = csv.reader(StringIO(read_text(path), newline=""))  # a name may hold the end of a line
    row: list[str] = []
    try:
        for row in rows:
            if row:
                group, partition, offset = _parse_row(row, only_group)
                plan.setdefault(group, {})[partition] = offset
    except csv.Error as error:
        raise CommandError(f"{path}, line {rows.line_num}: {error}") from None
    except ValueError:
        expected = "topic,partition,offset" if only_group else "group,topic,partition,offset"
        raise CommandError(
            f"{path}, line {rows.line_num}: expected {expected}, found '{','.join(row)}'"
        ) from None
    return plan


def _parse_row(row: Iterable[str], only_group: str | None) -> tuple[str, TopicPartition, int]:
    *group, topic, partition, offset = (field.strip() for field in row)
    if len(group) > 1 or not (group or only_group):
        raise ValueError(row)
    owner = group[0] if group else str(only_group)
    number, place = number_of(partition), number_of(offset)
    if number is None or place is None:
        raise ValueError(row)
    return owner, TopicPartition(topic, number), place


LOG_END = "log end"
READER_SETTINGS = {
    "client.id": "consumer-groups",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
    "max.partition.fetch.bytes": "4096",  # one record of each partition is wanted
}
Offsets = dict[TopicPartition, int]
Times = dict[tuple[TopicPartition, int], int]


def reset_offsets(
    admin: Admin, groups: Sequence[str], arguments: Namespace, terminal: Terminal
) -> int:
    """Plan the offsets of each group, print the plan, and with --execute commit it."""
    states = {group_id: group.state for group_id, group in admin.describe_groups(groups).items()}
    plan: ResetPlan = {}
    before: ResetPlan = {}
    left_out = 0
    for_person = arguments.format != TEXT or terminal.shows_results
    for group in groups:
        if states[group] not in IDLE_STATES:
            terminal.note(
                "Error: Assignments can only be reset if the group "
                f"'{one_line(group)}' is inactive, but the current state is {states[group]}."
            )
            left_out += 1
            continue
        if for_person:
            before[group] = committed_offsets(admin, group)
        planner = _Planner(admin, group, arguments, terminal)
        plan[group] = planner.offsets()
        left_out += planner.skipped
        if arguments.execute and plan[group]:
            admin.alter_group_offsets(group, dict(plan[group]))
    if not (arguments.dry_run or arguments.execute):
        terminal.note("WARN: nothing is changed: this is a dry run, --execute resets the offsets.")
    if arguments.export:
        plan_text = plan_as_csv(plan, with_group=len(groups) != 1)
        terminal.out.write(harmless(plan_text) if terminal.shows_results else plan_text)
        return 1 if left_out else 0
    times = times_at(admin, plan, arguments, terminal) if for_person else {}
    rows = plan_rows(plan, before, times, terminal.now_ms())
    if arguments.format != TEXT:
        show_rows(rows, arguments.format, terminal)
    else:
        _print_plan(rows, for_person=for_person, terminal=terminal)
    return 1 if left_out else 0


def committed_offsets(admin: Admin, group: str) -> Offsets:
    """The committed offsets of the group."""
    entries = admin.list_group_offsets(group)
    return {partition: entry.offset for partition, entry in entries.items()}


def record_times(consumer: Consumer, offsets: Offsets) -> dict[TopicPartition, int]:
    """The timestamp of the first record from each offset on; none at the end of the log."""
    ends = consumer.end_offsets(list(offsets))
    unread = {each for each, offset in offsets.items() if offset < ends[each]}
    consumer.assign(sorted(unread))
    for partition in unread:
        consumer.seek(partition, offsets[partition])
    times: dict[TopicPartition, int] = {}
    while unread:
        for record in consumer.poll(POLL_MS):
            times.setdefault(TopicPartition(record.topic, record.partition), record.timestamp_ms)
        # A marker or a compacted record at the end moves the position, but gives no record.
        done = {each for each in unread if each in times or consumer.position(each) >= ends[each]}
        consumer.pause(done)
        unread -= done
    return times


def change_text(old: int, new: int) -> str:
    """The effect of a reset on the readers of a partition."""
    if old == new:
        return "stays"
    return f"{old - new} again" if new < old else f"{new - old} skipped"


def times_at(admin: Admin, plan: ResetPlan, arguments: Namespace, terminal: Terminal) -> Times:
    """The timestamps of the records at the new offsets."""
    topics = admin.list_topics()
    places = {place for offsets in plan.values() for place in offsets.items()}
    places = {place for place in places if place[0].topic in topics}
    settings = command_settings(arguments) | READER_SETTINGS
    times: Times = {}
    with terminal.clients.consumer(bootstrap_server(arguments), settings) as consumer:
        while places:
            some = dict(places)  # one offset of each partition; groups may differ
            times |= {(p, some[p]): time for p, time in record_times(consumer, some).items()}
            places -= set(some.items())
    return times


def plan_rows(plan: ResetPlan, before: ResetPlan, times: Times, now_ms: int) -> list[Row]:
    """A row for each partition: old and new offset, the difference, and the age of the record."""
    rows: list[Row] = []
    for group, offsets in plan.items():
        for each, offset in sorted(offsets.items()):
            old = before.get(group, {}).get(each)
            time = times.get((each, offset))
            rows.append(
                {
                    "group": group,
                    "topic": each.topic,
                    "partition": each.partition,
                    "new_offset": offset,
                    "old_offset": old,
                    "change": None if old is None else change_text(old, offset),
                    "record_time": None if time is None or time < 0 else moment_text(time),
                    "age": record_age(time, now_ms),
                }
            )
    return rows


def record_age(timestamp_ms: int | None, now_ms: int) -> str:
    """How old the record is that is read next."""
    if timestamp_ms is None:
        return LOG_END
    return "no time" if timestamp_ms < 0 else age_text(now_ms - timestamp_ms)


def _print_plan(rows: Sequence[Row], *, for_person: bool, terminal: Terminal) -> None:
    """Kafka's columns; a person also sees the old offset, the difference, and the age."""
    extra = f" {'OLD-OFFSET':<15} {'CHANGE':<15} AGE" if for_person else ""
    if rows:
        terminal.print(f"\n{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}{extra}")
    for row in rows:
        line = "{group:<30} {topic:<30} {partition:<10} {new_offset:<15}".format(
            **{**row, "group": one_line(str(row["group"]))}
        )
        if for_person:
            old, change = (cell(name, row[name]) for name in ("old_offset", "change"))
            line += f" {old:<15} {change:<15} {row['age']}"
        terminal.print(line)


class _Planner:
    """Finds the new offsets of one group: the partitions in the scope, then their offsets."""

    def __init__(self, admin: Admin, group: str, arguments: Namespace, terminal: Terminal) -> None:
        self.admin = admin
        self.group = group
        self.arguments = arguments
        self.terminal = terminal
        self.skipped = 0
        """How many partitions without a leader the plan leaves out."""

    def offsets(self) -> Offsets:
        """The plan, by the scenario that the options name."""
        if self.arguments.from_file is not None:
            return self._from_file(self.arguments.from_file)
        partitions, self.skipped = with_leaders(self.admin, self._scope(), self.terminal)
        reset = self._reset()
        found = {each: self._find(partitions, each) for each in timestamps(reset)}
        try:
            return new_offsets(self.group, reset, found, self._committed(), self._warn)
        except ValueError as error:
            raise CommandError(str(error)) from None

    def _reset(self) -> OffsetReset:
        """The scenario of the options."""
        arguments = self.arguments
        if arguments.to_earliest:
            return OffsetReset(ResetScenario.EARLIEST)
        if arguments.to_latest:
            return OffsetReset(ResetScenario.LATEST)
        if arguments.to_current:
            return OffsetReset(ResetScenario.CURRENT)
        if arguments.shift_by is not None:
            return OffsetReset(ResetScenario.SHIFT, arguments.shift_by)
        if arguments.to_offset is not None:
            return OffsetReset(ResetScenario.OFFSET, arguments.to_offset)
        if arguments.to_datetime is not None:
            return OffsetReset(ResetScenario.SINCE, timestamp_ms(arguments.to_datetime))
        ago_ms = duration_ms(arguments.by_duration)
        return OffsetReset(ResetScenario.SINCE, self.terminal.now_ms() - ago_ms)

    def _warn(self, text: str) -> None:
        self.terminal.note(f"WARN: {text}")

    def _scope(self) -> list[TopicPartition]:
        if self.arguments.all_topics:
            return sorted(self._committed())
        return [
            partition
            for argument in self.arguments.topic
            for partition in self._partitions_of(argument)
        ]

    def _partitions_of(self, argument: str) -> Iterable[TopicPartition]:
        """The partitions of an argument like `topic` or `topic:0,1`."""
        topic, colon, numbers = argument.partition(":")
        described = self.admin.describe_topics([topic])[topic]
        exist = sorted(partition.partition for partition in described.partitions)
        wanted = integers(numbers, "--topic") if colon else exist
        for partition in wanted:
            if partition not in exist:
                raise CommandError(f"topic '{topic}' has no partition {partition}")
        return [TopicPartition(topic, partition) for partition in wanted]

    def _committed(self) -> Offsets:
        return committed_offsets(self.admin, self.group)

    def _find(self, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
        wanted = dict.fromkeys(partitions, timestamp)
        found = self.admin.list_offsets(wanted) if wanted else {}
        return {partition: result.offset for partition, result in found.items()}

    def _from_file(self, path: str) -> Offsets:
        groups = self.arguments.group
        plan = read_plan(path, only_group=groups[0] if len(groups) == 1 else None)
        if self.group not in plan:
            raise CommandError(f"{path} has no offsets for group '{self.group}'")
        offsets = plan[self.group]
        known = leaders_of(self.admin, {each.topic for each in offsets})
        for each in offsets:
            if each not in known:
                raise CommandError(f"{path}: there is no partition {each}")
        led, self.skipped = with_leaders(self.admin, offsets, self.terminal)
        ends = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        found = {each: self._find(led, each) for each in ends}
        return within_log({each: offsets[each] for each in led}, found, self._warn)
