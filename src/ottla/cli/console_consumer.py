"""`ottla console-consumer`: records of topics to standard output."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    LARGEST_INT,
    add_bootstrap_server,
    add_flag,
    add_integer,
    add_repeated,
    add_unused_zookeeper,
    bootstrap_server,
    did_you_mean,
    key_values,
    one_of,
    require,
    topic_pattern,
)
from ottla.cli.output import MessageFormatter, formatter
from ottla.cli.property_files import settings_in
from ottla.config.whole_number import number_of
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping, Sequence

    from ottla import Consumer, ConsumerRecord
    from ottla.cli.terminal import Terminal

    Follow = Callable[[], None]

logger = logging.getLogger(__name__)

POLL_MS: Final = 200  # how soon Ctrl-C or a closed pipe is noticed while nothing arrives
LOOK_AGAIN_MS: Final = 30_000  # how soon new partitions are read without a group
RECORDS_AT_A_TIME: Final = 5000
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class ConsoleConsumerCommand(Command):
    """Prints the records of topics until it is stopped."""

    name = "console-consumer"
    examples = (
        "ottla console-consumer --bootstrap-server localhost:9092 --topic test --from-beginning",
        "ottla console-consumer --bootstrap-server localhost:9092 --topic test --partition 0"
        " --offset 100 --max-messages 10 --property print.key=true",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_unused_zookeeper(parser)
        _add_what_to_read(parser)
        _add_how_to_print(parser)
        _add_consumer_settings(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        check(arguments)
        properties = formatter_properties(arguments)
        formatting = formatter(arguments.formatter, properties, for_screen=terminal.shows_results)
        settings = consumer_settings(arguments)
        servers = bootstrap_server(arguments)
        reader = _Reader(arguments, formatting, terminal)
        what = f"records of {arguments.topic or arguments.include} at {servers}"
        with terminal.waiting_for(what), terminal.clients.consumer(servers, settings) as consumer:
            try:
                reader.read(consumer, position(consumer, arguments, settings))
            finally:
                terminal.note(f"Processed a total of {reader.count} messages")
        if arguments.enable_systest_events:
            terminal.print("shutdown_complete")
        return 0


def _add_what_to_read(parser: ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="NAME", help="The topic to read.")
    parser.add_argument(
        "--include",
        "--whitelist",
        dest="include",
        metavar="REGEX",
        help="Read every topic whose name the regular expression matches, instead of --topic.",
    )
    add_flag(
        parser,
        "--from-beginning",
        "Start with the earliest record where the group has no offset yet.",
    )
    parser.add_argument("--group", metavar="ID", help="Read as a member of this group.")
    add_integer(
        parser,
        "--partition",
        "N",
        "Read one partition only, outside any group.",
        least=0,
        most=LARGEST_INT,
    )
    parser.add_argument(
        "--offset",
        metavar="OFFSET",
        help="Where to start in the --partition: a number, earliest or latest (default).",
    )
    add_integer(
        parser, "--max-messages", "N", "Stop after so many records; never if N is negative."
    )
    add_integer(
        parser,
        "--timeout-ms",
        "MS",
        "Stop when no record came for so long; never if MS is negative.",
    )
    parser.add_argument(
        "--isolation-level",
        metavar="LEVEL",
        choices=("read_committed", "read_uncommitted"),
        help="read_committed leaves out records of transactions that are open or were aborted; "
        "read_uncommitted (default) shows all.",
    )


def _add_how_to_print(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--formatter",
        metavar="NAME",
        default="default",
        help="default, logging, noop (count only), offsets or groupmetadata (both for "
        "__consumer_offsets); Kafka's class names are known too.",
    )
    parser.add_argument(
        "--property",
        "--formatter-property",
        dest="property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="What is printed; may be repeated: print.timestamp, print.partition, print.offset, "
        "print.headers, print.key (all false), print.value (true), key.separator (a tab), "
        "line.separator (a line feed), headers.separator (,), null.literal (null), "
        "key.deserializer, value.deserializer, headers.deserializer.",
    )
    parser.add_argument(
        "--key-deserializer",
        metavar="NAME",
        help="How a key is printed: string, bytes, short, integer, long, float, double.",
    )
    parser.add_argument("--value-deserializer", metavar="NAME", help="The same for a value.")
    add_flag(
        parser, "--skip-message-on-error", "Go on with the next record where one cannot be printed."
    )
    add_flag(parser, "--enable-systest-events", "Print shutdown_complete at the end.")


def _add_consumer_settings(parser: ArgumentParser) -> None:
    add_repeated(
        parser,
        "--consumer-property",
        "KEY=VALUE",
        "A setting of the consumer, such as fetch.min.bytes=1; may be repeated.",
    )
    parser.add_argument(
        "--consumer.config",
        dest="consumer_config",
        metavar="FILE",
        help="Property file for the consumer; --consumer-property wins over it.",
    )


def check(arguments: Namespace) -> None:
    """The options fit each other."""
    option = one_of(arguments, ("--topic", "--include"))
    if not (arguments.topic or arguments.include):
        raise UsageError(f"{option} needs a name, not ''")
    if arguments.partition is None:
        if arguments.offset is not None:
            raise UsageError("option --offset needs --partition")
        return
    require(arguments, "--topic")
    if arguments.group:
        raise UsageError("options --group and --partition cannot be used together")
    if arguments.from_beginning and arguments.offset is not None:
        raise UsageError("options --from-beginning and --offset cannot be used together")
    start = (arguments.offset or "latest").lower()
    if start not in ("earliest", "latest") and number_of(start, 0) is None:
        raise UsageError(f"--offset takes a number, earliest or latest, not '{arguments.offset}'")


def formatter_properties(arguments: Namespace) -> dict[str, str]:
    """The formatter's properties, with the deserializers that have options of their own."""
    properties = key_values(arguments.property)
    if arguments.key_deserializer:
        properties["key.deserializer"] = arguments.key_deserializer
    if arguments.value_deserializer:
        properties["value.deserializer"] = arguments.value_deserializer
    return properties


def consumer_settings(arguments: Namespace) -> dict[str, str]:
    """The consumer's settings; without a group nothing is committed."""
    named = arguments.consumer_config
    from_file = settings_in(named)
    extra = key_values(arguments.consumer_property)
    settings = from_file | extra
    settings.pop("key.deserializer", None)
    settings.pop("value.deserializer", None)
    groups = {arguments.group, from_file.get("group.id"), extra.get("group.id")} - {None, ""}
    if len(groups) > 1:
        raise UsageError(f"several groups are given: {', '.join(sorted(groups))}")
    if groups and arguments.partition is None:
        settings["group.id"] = groups.pop()
    else:
        settings.pop("group.id", None)
        settings["enable.auto.commit"] = "false"
    wanted = "earliest" if arguments.from_beginning else "latest"
    reset = settings.setdefault("auto.offset.reset", wanted)
    if arguments.from_beginning and reset != "earliest":
        raise UsageError(f"--from-beginning contradicts auto.offset.reset={reset}")
    if arguments.isolation_level:
        settings["isolation.level"] = arguments.isolation_level
    settings.setdefault("client.id", "console-consumer")
    settings.setdefault("max.poll.records", str(RECORDS_AT_A_TIME))
    # A name that was typed wrong must not become a topic.
    settings.setdefault("allow.auto.create.topics", "false")
    return settings


def position(consumer: Consumer, arguments: Namespace, settings: Mapping[str, str]) -> Follow:
    """Begin to read the topics of the options; the returned function looks for new partitions.

    With a group the topics are subscribed to. Without one the partitions are assigned, which
    needs no agreement with other members; auto.offset.reset says where reading starts.
    """
    if arguments.partition is not None:
        _take_partition(consumer, TopicPartition(arguments.topic, arguments.partition), arguments)
        return lambda: None
    if arguments.topic:
        partitions_of(consumer, arguments.topic)  # it must be there
    if "group.id" in settings:
        if arguments.include:
            consumer.subscribe(pattern=arguments.include)
        else:
            consumer.subscribe([arguments.topic])
        return lambda: None
    consumer.assign(chosen_partitions(consumer, arguments))

    def follow() -> None:
        now = chosen_partitions(consumer, arguments)
        new = [partition for partition in now if partition not in consumer.assignment()]
        if new:
            consumer.assign(now)
            consumer.seek_to_beginning(new)

    return follow


def chosen_partitions(consumer: Consumer, arguments: Namespace) -> list[TopicPartition]:
    """All partitions of the topic, or of those that --include matches and are not internal."""
    if arguments.topic:
        return partitions_of(consumer, arguments.topic)
    pattern = topic_pattern(arguments.include)
    return [
        TopicPartition(name, info.partition)
        for name, partitions in sorted(consumer.list_topics().items())
        if name not in INTERNAL_TOPICS and pattern.fullmatch(name)
        for info in partitions
    ]


def partitions_of(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """The partitions of a topic; a CommandError with names like it where it does not exist."""
    try:
        return [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
    except KafkaError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        near = did_you_mean(topic, consumer.list_topics())
        raise CommandError(f"topic '{topic}' does not exist{near}") from None


def _take_partition(
    consumer: Consumer, topic_partition: TopicPartition, arguments: Namespace
) -> None:
    start = (arguments.offset or "latest").lower()
    if arguments.from_beginning:
        start = "earliest"
    topic, partition = topic_partition
    if topic_partition not in partitions_of(consumer, topic):
        raise CommandError(f"topic '{topic}' has no partition {partition}")
    consumer.assign([topic_partition])
    if start == "earliest":
        consumer.seek_to_beginning([topic_partition])
    elif start == "latest":
        consumer.seek_to_end([topic_partition])
    else:
        _check_offset(consumer, topic_partition, int(start))
        consumer.seek(topic_partition, int(start))


def _check_offset(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    """The offset must be in the log: auto.offset.reset would silently go elsewhere."""
    end = consumer.end_offsets([partition])[partition]
    if offset > end:
        raise CommandError(f"offset {offset} is beyond the end ({end}) of {partition}")
    start = consumer.beginning_offsets([partition])[partition]
    if offset < start:
        raise CommandError(f"offset {offset} is before the start ({start}) of {partition}")


class _Reader:
    """Polls and prints until the records, the time or the user's patience are used up."""

    def __init__(
        self, arguments: Namespace, formatting: MessageFormatter, terminal: Terminal
    ) -> None:
        self.formatting = formatting
        self.terminal = terminal
        self.max_messages = _limit(arguments.max_messages)
        self.timeout_ms = _limit(arguments.timeout_ms)
        self.skip_on_error: bool = arguments.skip_message_on_error
        self.count = 0
        self.stopped = False

    def read(self, consumer: Consumer, follow: Follow) -> None:
        """Print records until a signal comes; the signal waits for the poll that is under way."""
        before = [(each, signal.signal(each, self._stop)) for each in STOP_SIGNALS]
        try:
            quiet_since_ms = looked_ms = self.terminal.now_ms()
            while not self.stopped and self._records_left() != 0:
                records = consumer.poll(POLL_MS)
                now_ms = self.terminal.now_ms()
                if records:
                    quiet_since_ms = now_ms
                    self._print(consumer, records)
                elif self.timeout_ms is not None and now_ms - quiet_since_ms >= self.timeout_ms:
                    self._note_no_assignment(consumer)
                    return
                else:
                    self.terminal.check_reader()
                if now_ms - looked_ms >= LOOK_AGAIN_MS:
                    looked_ms = now_ms
                    follow()
        finally:
            for each, handler in before:
                signal.signal(each, handler)

    def _note_no_assignment(self, consumer: Consumer) -> None:
        """Nothing was read because the group gave out nothing yet: that is not an empty topic."""
        if not self.count and not consumer.assignment():
            self.terminal.note(f"no partition was assigned within {self.timeout_ms} ms")

    def _records_left(self) -> int | None:
        """How many more records are asked for; None for all."""
        return None if self.max_messages is None else max(0, self.max_messages - self.count)

    def _print(self, consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
        """Print as many as are wanted; the others are given back and so not committed."""
        printed = 0
        self.terminal.end_silence()
        try:
            for record in records[: self._records_left()]:
                self._write(record)
                printed += 1
            self.terminal.raw_out.flush()
        finally:
            self.count += printed
            give_back(consumer, records[printed:])

    def _write(self, record: ConsumerRecord) -> None:
        try:
            self.formatting.write(record, self.terminal.raw_out)
        except CommandError as error:
            place = f"{record.topic}-{record.partition} at offset {record.offset}"
            if not self.skip_on_error:
                hint = "--skip-message-on-error goes on with the next record"
                raise CommandError(f"{place}: {error}; {hint}") from None
            logger.error("%s: the record is left out: %s", place, error)

    def _stop(self, _signum: int, _frame: object) -> None:
        if self.stopped:  # a second one does not wait
            raise KeyboardInterrupt
        self.stopped = True


def _limit(number: int | None) -> int | None:
    """None for none, which Kafka's tool writes as -1 too."""
    return None if number is None or number < 0 else number


def give_back(consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    """Let the consumer stand in front of records that it has handed out already."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    assigned = consumer.assignment() if first else ()
    for partition, offset in first.items():
        if partition in assigned:
            consumer.seek(partition, offset)
