"""`ottla replica-verification`: compares the replicas of partitions, batch by batch."""

from __future__ import annotations

import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.options import (
    LARGEST_INT,
    add_bootstrap_server,
    add_integer,
    bootstrap_server,
    topic_pattern,
)
from ottla.cli.terminal import Terminal, interruptible
from ottla.clients.partition_reader import ReplicaReader
from ottla.errors import KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.clients.partition_reader import ReplicaData

FETCH_BYTES: Final = 1_048_576
MAX_WAIT_MS: Final = 1000
REPORT_MS: Final = 30_000

Answers = Mapping[int, Mapping[TopicPartition, "ReplicaData | KafkaError"]]


class ReplicaVerification:
    """How far the replicas of each partition are known to be alike, and where they differ.

    The replicas of a partition are compared up to the high watermark, from the same offset on;
    a partition waits while one of its replicas does not answer.
    """

    def __init__(
        self,
        replicas: Mapping[TopicPartition, tuple[int, ...]],
        offsets: Mapping[TopicPartition, int],
        print_line: Callable[[str], object],
    ) -> None:
        self.replicas = replicas
        self.offsets = dict(offsets)
        self.print_line = print_line
        self.high_watermarks = dict(offsets)
        self.differences = 0

    def wanted(self) -> dict[int, dict[TopicPartition, int]]:
        """The next fetches: by broker, partitions with their offsets."""
        found: dict[int, dict[TopicPartition, int]] = {}
        for partition, brokers in self.replicas.items():
            for broker in brokers:
                found.setdefault(broker, {})[partition] = self.offsets[partition]
        return found

    def compare(self, answers: Answers) -> None:
        """Compare the responses of the brokers, and advance where they are the same."""
        for partition, brokers in self.replicas.items():
            found: dict[int, ReplicaData] = {}
            for broker in brokers:
                data = answers.get(broker, {}).get(partition)
                if data is not None and not isinstance(data, KafkaError):
                    found[broker] = data
            marks = [data.high_watermark for data in found.values()]
            self.high_watermarks[partition] = max(marks, default=self.high_watermarks[partition])
            if len(found) == len(brokers):
                self._compare_one(partition, found)

    def _compare_one(self, partition: TopicPartition, found: Mapping[int, ReplicaData]) -> None:
        """Go through the batches of all replicas at the same time, as far as all have them."""
        first, *others = found
        for batches in zip(*(data.batches for data in found.values()), strict=False):
            by_broker = dict(zip(found, batches, strict=True))
            if any(
                batch.last_offset >= found[broker].high_watermark
                for broker, batch in by_broker.items()
            ):
                return
            expected = by_broker[first]
            for broker in others:
                batch = by_broker[broker]
                if batch.last_offset != expected.last_offset:
                    self.differences += 1
                    raise CommandError(
                        f"partition {partition}: replica {first}'s offset {expected.last_offset} "
                        f"doesn't match replica {broker}'s offset {batch.last_offset}"
                    )
                if batch.crc != expected.crc:
                    self.differences += 1
                    self.print_line(
                        f"partition {partition} has unmatched checksum at offset "
                        f"{batch.last_offset}; replica {first}'s checksum {expected.crc}; "
                        f"replica {broker}'s checksum {batch.crc}"
                    )
            self.offsets[partition] = expected.next_offset

    def report(self) -> str:
        """How far the partition is behind that has most left to compare."""
        lags = {each: self.high_watermarks[each] - self.offsets[each] for each in self.replicas}
        partition = max(lags, key=lambda each: lags[each])
        return (
            f"max lag is {lags[partition]} for partition {partition} at offset "
            f"{self.offsets[partition]} among {len(lags)} partitions"
        )


class ReplicaVerificationCommand(Command):
    """Compares until it is stopped, and reports how far it has come."""

    name = "replica-verification"
    examples = (
        "ottla replica-verification --bootstrap-server localhost:9092 --topics-include 'orders.*' "
        "--time -2",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument(
            "--topics-include",
            "--topic-white-list",
            dest="topics",
            metavar="REGEX",
            default=".*",
            help="The topics, by a regular expression that matches whole names. Default: all.",
        )
        for option, metavar, default, least, text in (
            ("--fetch-size", "BYTES", FETCH_BYTES, 0, "How much of a partition one fetch brings."),
            ("--max-wait-ms", "MS", MAX_WAIT_MS, 0, "How long a fetch waits for records."),
            ("--report-interval-ms", "MS", REPORT_MS, 1, "How often a line is printed."),
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
        add_integer(
            parser,
            "--time",
            "MS",
            "Where to begin: a timestamp, -1 (latest) or -2 (earliest). Default: -1.",
            least=-2,
            default=-1,
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        servers = bootstrap_server(arguments)
        pattern = topic_pattern(arguments.topics)

        def print_line(text: str) -> None:
            terminal.print(f"{_moment(terminal.now_ms())}: {text}")
            terminal.out.flush()

        with terminal.admin(servers, {}) as admin:
            replicas = _replicas(admin, [n for n in admin.list_topics() if pattern.fullmatch(n)])
            if not replicas:
                raise CommandError(f"no topic matches '{arguments.topics}'")
            starts = _starts(admin, replicas, arguments.time)
        verification = ReplicaVerification(replicas, starts, print_line)
        is_over = threading.Event()
        settings = {
            "max.partition.fetch.bytes": str(arguments.fetch_size),
            "fetch.max.wait.ms": str(arguments.max_wait_ms),
        }
        with interruptible(is_over), ReplicaReader(servers, settings) as reader:
            print_line("verification process is started")
            _verify(verification, reader, is_over, terminal, arguments.report_interval_ms)
        return 1 if verification.differences else 0


def _verify(
    verification: ReplicaVerification,
    reader: ReplicaReader,
    is_over: threading.Event,
    terminal: Terminal,
    interval_ms: int,
) -> None:
    reported_ms = terminal.now_ms()
    while not is_over.is_set():
        verification.compare(reader.fetch(verification.wanted()))
        if terminal.now_ms() - reported_ms >= interval_ms:
            reported_ms = terminal.now_ms()
            verification.print_line(verification.report())


def _replicas(admin: Admin, topics: list[str]) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(name, each.partition): tuple(each.replicas)
        for name, topic in sorted(admin.describe_topics(sorted(topics)).items())
        for each in topic.partitions
    }


def _starts(
    admin: Admin, partitions: Mapping[TopicPartition, object], time: int
) -> dict[TopicPartition, int]:
    """The offset to begin at; the end, where no record is as new as the time."""
    found = admin.list_offsets(dict.fromkeys(partitions, time))
    late = [each for each, result in found.items() if result.offset < 0]
    ends = admin.list_offsets(dict.fromkeys(late, -1)) if late else {}
    return {each: result.offset for each, result in {**found, **ends}.items()}


def _moment(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms // 1000)
    return f"{moment:%Y-%m-%d %H:%M:%S},{now_ms % 1000:03d}"
