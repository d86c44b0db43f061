"""How fast a topic is consumed, with the options and lines of Kafka's consumer performance tool."""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ottla import RebalanceListener
from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import (
    LARGEST_INT,
    add_bootstrap_server,
    add_flag,
    add_integer,
    bootstrap_server,
    require,
)
from ottla.cli.producer_perf_test import MIB, POLL_MS, PRINT_METRICS_HELP, REPORT_MS, print_metrics
from ottla.cli.property_files import settings_in

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from ottla import Consumer, ConsumerRecord
    from ottla.cli.terminal import Terminal


JAVA_DATE: Final = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "{ms:03d}",
}
"""The fields of Java's SimpleDateFormat that are understood."""
JAVA_FIELD: Final = re.compile(r"([A-Za-z])\1*")
HEADER_END: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def date_format(pattern: str) -> Callable[[int], str]:
    """Writes milliseconds since 1970 as a pattern of Java's SimpleDateFormat says."""

    def field(match: re.Match[str]) -> str:
        if match[0] not in JAVA_DATE:
            known = ", ".join(JAVA_DATE)
            raise UsageError(f"--date-format takes {known}, not '{match[0]}'")
        return JAVA_DATE[match[0]]

    escaped = pattern.replace("%", "%%").replace("{", "{{").replace("}", "}}")
    translated = JAVA_FIELD.sub(field, escaped)

    def written(moment_ms: int) -> str:
        moment = datetime.fromtimestamp(moment_ms // 1000).strftime(translated)
        return moment.format(ms=moment_ms % 1000)

    return written


class ConsumerStats:
    """The consumed records: in all, and since the last line of --show-detailed-stats."""

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = self.reported_ms = self.joining_since_ms = now_ms
        self.records = self.bytes = self.join_ms = 0
        self.reported_records = self.reported_bytes = self.round_join_ms = 0

    def add(self, records: Sequence[ConsumerRecord]) -> None:
        self.records += len(records)
        self.bytes += sum(len(each.key or b"") + len(each.value or b"") for each in records)

    def joined(self, now_ms: int) -> None:
        """Partitions were assigned: the time since they were taken away was a rebalance."""
        self.join_ms += now_ms - self.joining_since_ms
        self.round_join_ms += now_ms - self.joining_since_ms

    def progress(self, now_ms: int, written: Callable[[int], str]) -> str:
        """The line about the time since the last one; counting starts again."""
        size, count = self.bytes - self.reported_bytes, self.records - self.reported_records
        elapsed_ms = now_ms - self.reported_ms
        fetch_ms = elapsed_ms - self.round_join_ms
        line = (
            f"{written(now_ms)}, 0, {self.bytes / MIB:.4f}, {per_second(size / MIB, elapsed_ms)}, "
            f"{self.records}, {per_second(count, elapsed_ms)}, {self.round_join_ms}, {fetch_ms}, "
            f"{per_second(size / MIB, fetch_ms)}, {per_second(count, fetch_ms)}"
        )
        self.reported_ms, self.round_join_ms = now_ms, 0
        self.reported_records, self.reported_bytes = self.records, self.bytes
        return line

    def total(self, now_ms: int, written: Callable[[int], str]) -> str:
        """The line about all of it."""
        elapsed_ms = now_ms - self.begun_ms
        fetch_ms = elapsed_ms - self.join_ms
        size = self.bytes / MIB
        return (
            f"{written(self.begun_ms)}, {written(now_ms)}, {size:.4f}, "
            f"{per_second(size, elapsed_ms)}, {self.records}, "
            f"{per_second(self.records, elapsed_ms)}, {self.join_ms}, {fetch_ms}, "
            f"{per_second(size, fetch_ms)}, {per_second(self.records, fetch_ms)}"
        )


def per_second(amount: float, elapsed_ms: int) -> str:
    """A rate with four places; 0 where no time has passed."""
    return f"{amount * 1000 / elapsed_ms if elapsed_ms > 0 else 0:.4f}"


class ConsumerPerfTestCommand(Command):
    """Consumes so many records of a topic as a group, and says how fast that was."""

    name = "consumer-perf-test"
    examples = (
        "ottla consumer-perf-test --bootstrap-server localhost:9092 --topic test "
        "--messages 1000000",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to read.")
        add_integer(parser, "--messages", "COUNT", "Required. How many records are read.", least=0)
        parser.add_argument(
            "--group", metavar="ID", help="The group. Default: perf-consumer-<a random number>."
        )
        add_flag(
            parser,
            "--from-latest",
            "A group without offsets starts at the end of the topic, not at its beginning.",
        )
        for option, metavar, default, least, text in (
            ("--fetch-size", "BYTES", MIB, 0, "How much of a partition one fetch asks for."),
            ("--socket-buffer-size", "BYTES", 2 * MIB, -1, "The size of the receive buffer."),
            ("--timeout", "MS", 10_000, 0, "Give up after so long without a record."),
            ("--reporting-interval", "MS", REPORT_MS, 1, "How often progress is printed."),
        ):
            add_integer(
                parser,
                option,
                metavar,
                f"{text} Default: {default}.",
                least=least,
                most=LARGEST_INT,
                default=default,
            )
        parser.add_argument("--consumer.config", metavar="FILE", help="Property file.")
        add_flag(
            parser, "--show-detailed-stats", "Print a line for each interval, and no last one."
        )
        add_flag(parser, "--hide-header", "Do not print the names of the columns.")
        add_flag(parser, "--print-metrics", PRINT_METRICS_HELP)
        parser.add_argument(
            "--date-format",
            metavar="PATTERN",
            default="yyyy-MM-dd HH:mm:ss:SSS",
            help="How times are written. Default: yyyy-MM-dd HH:mm:ss:SSS.",
        )
        for option in ("--threads", "--num-fetch-threads"):
            parser.add_argument(
                option, metavar="COUNT", help="Accepted for older scripts and ignored."
            )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--topic", "--messages")
        written = date_format(arguments.date_format)
        settings = self._settings(arguments)
        if not arguments.hide_header:
            times = "time, threadId" if arguments.show_detailed_stats else "start.time, end.time"
            terminal.print(f"{times}, {HEADER_END}")
        with terminal.clients.consumer(bootstrap_server(arguments), settings) as consumer:
            stats = ConsumerStats(terminal.now_ms())
            _consume(consumer, arguments, stats, terminal, written)
            end_ms = terminal.now_ms()
            metrics = consumer.metrics() if arguments.print_metrics else None
        if not arguments.show_detailed_stats:
            terminal.print(stats.total(end_ms, written))
        print_metrics(metrics, terminal)
        return 0

    def _settings(self, arguments: Namespace) -> dict[str, str]:
        file = vars(arguments)["consumer.config"]
        number = int.from_bytes(os.urandom(4), "big") % 100_000
        return {
            "client.id": "perf-consumer-client",
            **settings_in(file),
            "group.id": arguments.group or f"perf-consumer-{number}",
            "receive.buffer.bytes": str(arguments.socket_buffer_size),
            "max.partition.fetch.bytes": str(arguments.fetch_size),
            "auto.offset.reset": "latest" if arguments.from_latest else "earliest",
            "check.crcs": "false",
        }


def _consume(
    consumer: Consumer,
    arguments: Namespace,
    stats: ConsumerStats,
    terminal: Terminal,
    written: Callable[[int], str],
) -> None:
    """Read until all have come, or none has for the timeout."""

    class Joins(RebalanceListener):
        """Measures how long rebalances take."""

        def on_partitions_revoked(self, partitions: object) -> None:
            stats.joining_since_ms = terminal.now_ms()

        def on_partitions_assigned(self, partitions: object) -> None:
            stats.joined(terminal.now_ms())

    consumer.subscribe([arguments.topic], listener=Joins())
    consumed_ms = now_ms = terminal.now_ms()
    while stats.records < arguments.messages and now_ms - consumed_ms <= arguments.timeout:
        records = consumer.poll(POLL_MS)
        now_ms = terminal.now_ms()
        if records:
            consumed_ms = now_ms
            stats.add(records)
            is_due = now_ms - stats.reported_ms >= arguments.reporting_interval
            if arguments.show_detailed_stats and is_due:
                terminal.print(stats.progress(now_ms, written))
    if stats.records < arguments.messages:
        terminal.print(
            "WARNING: Exiting before consuming the expected number of messages: timeout "
            f"({arguments.timeout} ms) exceeded. You can use the --timeout option to increase the "
            "timeout."
        )
