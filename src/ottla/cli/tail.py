"""`ottla tail`: the last records of a topic, for a person to read."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.console_consumer import POLL_MS, partitions_of
from ottla.cli.exact_json import exact_json, json_line
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    bootstrap_server,
    word_bytes,
)
from ottla.cli.output import visible
from ottla.cli.property_files import command_settings
from ottla.cli.table import JSON, TEXT
from ottla.cli.terminal import harmless
from ottla.cli.times import age_text, moment_ms, moment_text
from ottla.cli.topic_views import note_no_leader
from ottla.clients.consumer.polls import polls_up_to
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla import Consumer, ConsumerRecord
    from ottla.cli.terminal import Terminal

    Filter = Callable[[ConsumerRecord], bool]

LAST: Final = 10
DIM, CYAN, PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[0m"
SETTINGS: Final = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": "false",
    "client.id": "tail",
}


class Tail:
    """The end of a topic: its last records as they stood when it was made, then new ones."""

    def __init__(
        self,
        consumer: Consumer,
        partitions: list[TopicPartition],
        filters: Sequence[Filter] = (),
    ) -> None:
        self.consumer = consumer
        self.filters = filters
        consumer.assign(partitions)
        self.starts = consumer.beginning_offsets(partitions)
        self.ends = consumer.end_offsets(partitions)

    def last(self, count: int | None, since_ms: int | None) -> Iterable[ConsumerRecord]:
        """The last records that pass the filters, the oldest first; all of them for None."""
        first = self.starts if since_ms is None else self._since(since_ms)
        if count is None or self.filters:
            return newest(self.read(first), count)
        # Markers and compaction leave fewer records than offsets: look further back then.
        window = max(1, count)
        while True:
            begin = {each: max(first[each], end - window) for each, end in self.ends.items()}
            found = newest(self.read(begin), count)
            if len(found) >= count or begin == first or not count:
                return found
            window *= 4

    def newest_offsets(self, count: int) -> Iterable[ConsumerRecord]:
        """The records among the last `count` offsets of each partition."""
        return self.read({p: max(self.starts[p], end - count) for p, end in self.ends.items()})

    def follow(self, text: Callable[[ConsumerRecord], str], terminal: Terminal) -> None:
        """Print records as they come, until Ctrl-C or the end of the pipe."""
        for partition, end in self.ends.items():
            self.consumer.seek(partition, end)
        while True:
            for record in self.consumer.poll(POLL_MS):
                if self._passes(record):
                    terminal.print(text(record), is_styled=True)
            terminal.out.flush()
            terminal.check_reader()

    def _since(self, since_ms: int) -> dict[TopicPartition, int]:
        found = self.consumer.offsets_for_times(dict.fromkeys(self.ends, since_ms))
        return {each: self.ends[each] if at is None else at.offset for each, at in found.items()}

    def read(self, begin: Mapping[TopicPartition, int]) -> Iterable[ConsumerRecord]:
        """The records from these offsets to the ends that pass the filters, unordered in time."""
        for partition, offset in begin.items():
            self.consumer.seek(partition, offset)
        for records in polls_up_to(self.consumer, self.ends, POLL_MS):
            for record in records:
                end = self.ends[TopicPartition(record.topic, record.partition)]
                if record.offset < end and self._passes(record):
                    yield record

    def _passes(self, record: ConsumerRecord) -> bool:
        return all(each(record) for each in self.filters)


class TailCommand(Command):
    """Prints the last records of a topic with their time, place and key; and those that follow."""

    name = "tail"
    examples = (
        "ottla tail orders",
        "ottla tail orders -n 100 --since 1h --where customer.country=PT",
        "ottla tail orders -f --format json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC", help="The topic; it is never created.")
        add_bootstrap_server(parser)
        add_command_config(parser)
        add_integer(
            parser,
            "-n",
            "N",
            f"How many of the last records. Default: {LAST}; all with --since.",
            least=0,
        )
        add_flag(parser, "-f", "Go on with the records that come, until Ctrl-C.")
        parser.add_argument(
            "--since",
            metavar="WHEN",
            help="Only records since then: 1h, '5m ago', 2026-03-02, 2026-03-02T08:00Z.",
        )
        parser.add_argument("--key", metavar="TEXT", help="Only records with this key.")
        add_repeated(
            parser, "--header", "NAME=TEXT", "Only records with this header; may be repeated."
        )
        add_repeated(
            parser,
            "--where",
            "PATH=VALUE",
            "Only records whose JSON has this value there, as in customer.country=PT; may be "
            "repeated.",
        )
        parser.add_argument(
            "--format",
            metavar="FORMAT",
            choices=(TEXT, JSON),
            default=TEXT,
            help="text (default), or json: an object a line.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        since_ms = _since(arguments, terminal)
        filters = filters_of(arguments)
        servers = bootstrap_server(arguments)
        settings = command_settings(arguments) | SETTINGS
        with (
            terminal.waiting_for(f"records of {arguments.topic} at {servers}"),
            terminal.clients.consumer(servers, settings) as consumer,
        ):
            tail = Tail(consumer, led_partitions(consumer, arguments.topic, terminal), filters)
            count = arguments.n if arguments.n is not None else LAST if since_ms is None else None
            for record in tail.last(count, since_ms):
                terminal.print(line_of(record, arguments.format, terminal), is_styled=True)
            terminal.out.flush()
            if arguments.f:
                terminal.end_silence()
                tail.follow(lambda each: line_of(each, arguments.format, terminal), terminal)
        return 0


def led_partitions(consumer: Consumer, topic: str, terminal: Terminal) -> list[TopicPartition]:
    """The partitions of a topic that have a leader to read from; a note names each other one."""
    led = []
    for partition, each in zip(
        partitions_of(consumer, topic), consumer.partitions_for(topic), strict=True
    ):
        if each.leader >= 0:
            led.append(partition)
        else:
            note_no_leader(partition, terminal)
    return led


def _since(arguments: Namespace, terminal: Terminal) -> int | None:
    if arguments.since is None:
        return None
    moment = moment_ms(arguments.since, terminal.now_ms())
    if moment is None:
        raise UsageError(
            f"--since takes 1h, '5m ago', 2026-03-02 or 2026-03-02T08:00Z, not '{arguments.since}'"
        )
    return max(0, moment)  # before 1970 are the protocol's numbers for times that have a name


def newest(records: Iterable[ConsumerRecord], count: int | None) -> list[ConsumerRecord]:
    """The newest records by their timestamps, the oldest of them first."""
    by_partition: dict[int, deque[ConsumerRecord]] = {}
    for record in records:
        by_partition.setdefault(record.partition, deque(maxlen=count)).append(record)
    every = [record for kept in by_partition.values() for record in kept]
    every.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
    return every if count is None else every[len(every) - min(count, len(every)) :]


def filters_of(arguments: Namespace) -> list[Filter]:
    """A test for each filter that was given."""
    filters: list[Filter] = []
    if arguments.key is not None:
        filters.append(lambda record: record.key == word_bytes(arguments.key))
    if headers := [_pair("--header", text) for text in arguments.header]:
        wanted = {(name, word_bytes(value)) for name, value in headers}
        filters.append(lambda record: wanted <= set(record.headers))
    if paths := [_pair("--where", text) for text in arguments.where]:
        filters.append(
            lambda record: all(at(path.split("."), record) == value for path, value in paths)
        )
    return filters


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} takes a name and a value with = between, not '{text}'")
    return name, value


def at(keys: list[str], record: ConsumerRecord) -> str | None:
    """The value at a path of a record's JSON as text; None where there is none."""
    found = json_of(record.value)
    for key in keys:
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return None
    return found if isinstance(found, str) else json.dumps(found)


def json_of(data: bytes | None) -> Any:
    """The JSON that the bytes are; None for other bytes."""
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):  # a value may be nested to any depth
        return None


def line_of(record: ConsumerRecord, format: str, terminal: Terminal) -> str:
    """A record as a line: time, place, key and value; in colour where there is any."""
    if format == JSON:
        return harmless(json_line(fields_of(record)))
    when = when_text(record.timestamp_ms, terminal)
    place = f"{record.partition}:{record.offset}"
    key = "" if record.key is None else f"{shown(record.key)}  "
    value = shown(record.value)
    headers = "".join(f"  {shown(name.encode())}={shown(data)}" for name, data in record.headers)
    if not terminal.has_colour:
        return f"{when}  {place}  {key}{value}{headers}"
    return f"{DIM}{when}  {place}{PLAIN}  {CYAN}{key}{PLAIN}{value}{DIM}{headers}{PLAIN}"


def when_text(timestamp_ms: int, terminal: Terminal) -> str:
    """The time of a record in UTC; a person also sees its age."""
    if timestamp_ms < 0:
        return "no time"
    text = moment_text(timestamp_ms)
    if not terminal.shows_results:
        return text
    return f"{text} ({age_text(terminal.now_ms() - timestamp_ms)} ago)"


def fields_of(record: ConsumerRecord) -> dict[str, object]:
    """The record as JSON has it, which `console-producer --format json` reads.

    A value that is a JSON object or array stands as one if nothing of it is lost so, other bytes
    as text; bytes that are no UTF-8 stand in base64 in a field of their own.
    """
    try:
        parsed = None if record.value is None else exact_json(record.value)
    except (ValueError, RecursionError):
        parsed = None
    value = {"value": parsed} if isinstance(parsed, dict | list) else text_of("value", record.value)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": moment_text(record.timestamp_ms) if record.timestamp_ms >= 0 else None,
        **text_of("key", record.key),
        **value,
        "headers": [{"key": name, **text_of("value", data)} for name, data in record.headers],
    }


def text_of(field: str, data: bytes | None) -> dict[str, str | None]:
    """The bytes as a field of text, or of base64 where they are no UTF-8."""
    try:
        return {field: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {field: None, f"{field}_base64": b64encode(data or b"").decode()}


def shown(data: bytes | None) -> str:
    """Bytes as one line of text without control characters."""
    return "null" if data is None else visible(data).decode().replace("\n", "\\n")
