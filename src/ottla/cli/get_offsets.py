"""`ottla get-offsets`: the offsets of partitions at a time, as `topic:partition:offset`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, answers
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    bootstrap_server,
    forbid_with,
    integers,
    topic_pattern,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, add_format, show_rows
from ottla.cli.times import moment_ms, moment_text
from ottla.cli.topic_views import note_no_leader
from ottla.config.whole_number import number_of
from ottla.structs import INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal

TIMES: Final = {"latest": -1, "earliest": -2, "max-timestamp": -3}
LIKELY_MS: Final = 100_000_000_000
"""A number below this (1973) is more likely a year, or seconds, than a timestamp in ms."""
_RULE: Final = re.compile(r"([^:,]*)(?::(?:(\d+)|(\d+)?-(\d+)?)?)?")

PartitionFilter = Callable[[TopicPartition], bool]


class GetOffsetsCommand(Command):
    """Prints the offsets at which partitions start or end, or those at a time."""

    name = "get-offsets"
    examples = (
        "ottla get-offsets --broker-list localhost:9092 --topic test",
        "ottla get-offsets --bootstrap-server localhost:9092 --topic-partitions 'test:0-2,web.*'"
        " --time earliest",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_command_config(parser)
        parser.add_argument(
            "--topic",
            metavar="REGEX",
            help="The topic, or a regular expression that matches whole names; all where missing.",
        )
        parser.add_argument("--partitions", metavar="P,P", help="The partitions; all if missing.")
        parser.add_argument(
            "--topic-partitions",
            metavar="RULE,RULE",
            help="Topics with partitions instead of --topic and --partitions: topic, topic:1, "
            "topic:0-3 (without the 3), topic:5-, topic:-3; the topic is a regular expression.",
        )
        parser.add_argument(
            "--time",
            metavar="TIME",
            default="latest",
            help="-1 or latest (default), -2 or earliest, -3 or max-timestamp, or a moment: the "
            "first record that is not older. A moment is milliseconds since 1970, a date or time "
            "such as 2026-03-02 or 2026-03-02T08:00Z (UTC without a zone), or '1h ago' (s, m, h, "
            "d).",
        )
        add_format(parser)
        add_flag(parser, "--exclude-internal-topics", "Leave out internal topics.")
        parser.add_argument(
            "--offsets", metavar="COUNT", help="Accepted for older scripts and ignored."
        )
        parser.add_argument(
            "--max-wait-ms", metavar="MS", help="Accepted for older scripts and ignored."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        forbid_with(arguments, "--topic-partitions", ("--topic", "--partitions"))
        timestamp = parse_time(arguments.time, terminal)
        wanted = partition_filter(arguments)
        servers = bootstrap_server(arguments)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            partitions, skipped = matching_partitions(admin, arguments, wanted, terminal)
            status = print_offsets(admin, partitions, timestamp, arguments.format, terminal)
            return 1 if skipped else status


def parse_time(text: str, terminal: Terminal) -> int:
    """A timestamp, or the protocol's number for a time that has a name."""
    if text in TIMES:
        return TIMES[text]
    timestamp = number_of(text)
    if timestamp is None:
        moment = moment_ms(text, terminal.now_ms())
        if moment is None or moment < 0:
            raise UsageError(
                f"--time takes milliseconds since 1970, a date such as 2026-03-02, '1h ago', or "
                f"one of {', '.join(TIMES)}, not '{text}'"
            )
        return moment
    if timestamp < 0 and timestamp not in TIMES.values():
        raise UsageError(f"--time takes milliseconds or one of {', '.join(TIMES)}, not '{text}'")
    if 0 <= timestamp < LIKELY_MS:
        terminal.note(f"--time {text} is {moment_text(timestamp)}, in milliseconds since 1970")
    return timestamp


def partition_filter(arguments: Namespace) -> PartitionFilter:
    """The test whether a partition is asked for."""
    if arguments.topic_partitions:
        rules = [parse_rule(rule) for rule in arguments.topic_partitions.split(",")]
        return lambda partition: any(rule(partition) for rule in rules)
    pattern = topic_pattern(arguments.topic or ".*")
    numbers = integers(arguments.partitions, "--partitions") if arguments.partitions else None
    return lambda partition: (
        pattern.fullmatch(partition.topic) is not None
        and (numbers is None or partition.partition in numbers)
    )


def parse_rule(rule: str) -> PartitionFilter:
    """`topic`, `topic:1`, `topic:0-3`, `topic:5-` or `topic:-3`; the upper bound is left out."""
    match = _RULE.fullmatch(rule.strip())
    if match is None or any(number and number_of(number) is None for number in match.groups()[1:]):
        raise UsageError(f"--topic-partitions takes rules like topic:0-3, not '{rule}'")
    topic, only, lower, upper = match.groups()
    pattern = topic_pattern(topic or ".*")
    first = int(only or lower or 0)
    end = first + 1 if only else int(upper) if upper else None

    def wanted(partition: TopicPartition) -> bool:
        return (
            pattern.fullmatch(partition.topic) is not None
            and partition.partition >= first
            and (end is None or partition.partition < end)
        )

    return wanted


def matching_partitions(
    admin: Admin, arguments: Namespace, wanted: PartitionFilter, terminal: Terminal
) -> tuple[list[TopicPartition], int]:
    """The partitions that are asked for and have a leader to ask, and how many have none."""
    topics = admin.list_topics()
    if arguments.exclude_internal_topics:
        topics -= INTERNAL_TOPICS
    found, skipped = [], 0
    for name, topic in sorted(admin.describe_topics(sorted(topics)).items()):
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition)
            if not wanted(partition):
                continue
            if each.leader < 0:
                note_no_leader(partition, terminal)
                skipped += 1
            else:
                found.append(partition)
    if not found:
        raise CommandError(_nothing(arguments))
    return sorted(found), skipped


def _nothing(arguments: Namespace) -> str:
    if arguments.topic and not arguments.partitions:
        return f"topic '{arguments.topic}' does not exist"
    return "no partition matches what was asked for"


def print_offsets(
    admin: Admin,
    partitions: list[TopicPartition],
    timestamp: int,
    format: str,
    terminal: Terminal,
) -> int:
    """Print a line per partition, without an offset where no record is new enough."""
    results, failed = answers(
        lambda wanted: admin.list_offsets(dict.fromkeys(wanted, timestamp)), partitions
    )
    for partition, reason in failed.items():
        terminal.note(f"Error: no offset of partition {partition}: {reason}")
    if format != TEXT:
        rows = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": found.offset if found.offset >= 0 else None,
            }
            for partition, found in sorted(results.items())
        ]
        show_rows(rows, format, terminal)
        return 1 if failed else 0
    for partition in sorted(results):
        offset = results[partition].offset
        shown = offset if offset >= 0 else ""
        terminal.print(f"{partition.topic}:{partition.partition}:{shown}")
    return 1 if failed else 0
