"""Kafka's performance tests, with its lines: producing, consuming, and from end to end."""

from __future__ import annotations

import hashlib
import os
import re
import time
from array import array
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import add_flag, add_fraction, add_integer, key_values, one_of, require
from ottla.cli.property_files import settings_in
from ottla.cli.terminal import Terminal, with_port
from ottla.cli.text_files import read_text
from ottla.clients.client_metrics import metric_lines

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Sequence

    from ottla import KafkaError, Producer, RecordMetadata
    from ottla.clients.client_metrics import Metrics

MIB: Final = 1024 * 1024
REPORT_MS: Final = 5000
MOST_LATENCIES: Final = 500_000
"""So many latencies are kept for the percentiles; of a longer run, every second or third one."""
MOST_BYTES: Final = 256 * MIB
PAYLOAD_BYTES: Final = 4 * MIB
PAYLOAD_STEP: Final = 7919
"""Payloads are pieces of one text, each so many bytes after the last one, so that they differ."""
LETTERS: Final = bytes(65 + number % 26 for number in range(256))
TRANSACTION_MS: Final = 3000
SHORTEST_SLEEP_S: Final = 0.002
POLL_MS: Final = 100
LATENCY_POLL_MS: Final = 60_000
PRINT_METRICS_HELP: Final = "Print what the client has measured of itself, at the end."


class Throttle:
    """Holds a loop back so that it makes about `rate` turns a second; -1 is as fast as it can."""

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.now = now
        self.begun = now()

    def wait(self, done: int, sleep: Callable[[float], object] = time.sleep) -> None:
        """Sleep, if `done` turns are more than there should be by now."""
        if self.rate > 0:
            ahead = done / self.rate - (self.now() - self.begun)
            if ahead >= SHORTEST_SLEEP_S:
                sleep(ahead)


class ProducerStats:
    """Counts, bytes and latencies of records that were sent: in all, and of the last 5 seconds.

    Records are reported by one thread at a time; times are milliseconds of any clock.
    """

    def __init__(self, records: int, now_ms: float, print_line: Callable[[str], object]) -> None:
        self.print_line = print_line
        self.begun_ms = self.window_begun_ms = now_ms
        self.sampling = max(1, records // min(records, MOST_LATENCIES)) if records else 1
        self.latencies = array("q")
        self.count = self.bytes = self.total_latency = self.max_latency = 0
        self.window_count = self.window_bytes = self.window_latency = self.window_max = 0
        self.failure: KafkaError | None = None
        self.failed = 0

    def record(self, latency_ms: int, size: int, now_ms: float) -> None:
        """One more record has been acknowledged."""
        if self.count % self.sampling == 0:
            self.latencies.append(latency_ms)
        self.count += 1
        self.bytes += size
        self.total_latency += latency_ms
        self.max_latency = max(self.max_latency, latency_ms)
        self.window_count += 1
        self.window_bytes += size
        self.window_latency += latency_ms
        self.window_max = max(self.window_max, latency_ms)
        if now_ms - self.window_begun_ms >= REPORT_MS:
            self.print_line(
                sent_line(self.window_count, self.window_bytes, now_ms - self.window_begun_ms)
                + f", {self.window_latency / self.window_count:.1f} ms avg latency, "
                f"{self.window_max:.1f} ms max latency."
            )
            self.window_begun_ms = now_ms
            self.window_count = self.window_bytes = self.window_latency = self.window_max = 0

    def total(self, now_ms: float) -> str:
        """The line about all records."""
        latencies = sorted(self.latencies)
        return (
            sent_line(self.count, self.bytes, now_ms - self.begun_ms)
            + f", {self.total_latency / max(1, self.count):.2f} ms avg latency, "
            f"{float(self.max_latency):.2f} ms max latency, "
            + ", ".join(
                f"{percentile(latencies, share / 100)} ms {share}th" for share in (50, 95, 99, 99.9)
            )
            + "."
        )


def sent_line(count: int, size: int, elapsed_ms: float) -> str:
    """`100 records sent, 50.0 records/sec (0.01 MB/sec)`."""
    seconds = max(elapsed_ms, 1) / 1000
    return (
        f"{count} records sent, {count / seconds:.1f} records/sec "
        f"({size / MIB / seconds:.2f} MB/sec)"
    )


def percentile(sorted_values: Sequence[int], share: float) -> int:
    """The value below which this share of the values lies; 0 where there are none."""
    index = min(int(share * len(sorted_values)), len(sorted_values) - 1)
    return sorted_values[index] if sorted_values else 0


def text_payloads(size: int) -> Iterator[bytes]:
    """Payloads of random capital letters, the same in each run, without end."""
    length = max(PAYLOAD_BYTES, 2 * size)
    text = hashlib.shake_256(b"ottla").digest(length).translate(LETTERS)
    place, last = 0, length - size
    while True:
        yield text[place : place + size]
        place += PAYLOAD_STEP
        if place > last:
            place -= last


def counted_payloads() -> Iterator[bytes]:
    """0, 1, 2, ... as text."""
    number = 0
    while True:
        yield b"%d" % number
        number += 1


def file_payloads(name: str, delimiter: str, terminal: Terminal) -> Iterator[bytes]:
    """The pieces of a file, one after the other, again and again."""
    path = Path(name).absolute()
    terminal.print(f"Reading payloads from: {path}")
    text = read_text(str(path), "the payload file")
    if not text:
        raise CommandError(f"the payload file {path} is empty")
    pieces = re.split(delimiter, text)
    while pieces and not pieces[-1]:
        pieces.pop()
    terminal.print(f"Number of messages read: {len(pieces)}")
    return cycle([piece.encode() for piece in pieces])


class ProducerPerfTestCommand(Command):
    """Sends records as fast as it can, or at a rate, and measures until they are acknowledged."""

    name = "producer-perf-test"
    examples = (
        "ottla producer-perf-test --topic test --num-records 1000000 --record-size 100 "
        "--throughput -1 --producer-props bootstrap.servers=localhost:9092 acks=1",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to write to.")
        add_integer(
            parser, "--num-records", "COUNT", "Required. How many records are sent.", least=0
        )
        add_integer(
            parser,
            "--record-size",
            "BYTES",
            "The size of each record; or one of the next two.",
            least=1,
            most=MOST_BYTES,
        )
        parser.add_argument(
            "--payload-file",
            metavar="FILE",
            help="A file of UTF-8 text whose pieces are the records, one after the other.",
        )
        add_flag(parser, "--payload-monotonic", "The records are the numbers 0, 1, 2, ...")
        parser.add_argument(
            "--payload-delimiter",
            metavar="REGEX",
            default="\\n",
            help="What stands between the pieces of the file. Default: the end of a line.",
        )
        add_fraction(
            parser,
            "--throughput",
            "RATE",
            "Required. About so many records a second; -1 for as many as can be.",
        )
        parser.add_argument(
            "--producer-props",
            metavar="KEY=VALUE",
            nargs="+",
            default=[],
            help="Settings of the producer, bootstrap.servers among them; they win over the file.",
        )
        parser.add_argument("--producer.config", metavar="FILE", help="Property file of them.")
        parser.add_argument(
            "--transactional-id", metavar="ID", help="Send in transactions, under this id."
        )
        add_integer(
            parser,
            "--transaction-duration-ms",
            "MS",
            f"Commit a transaction after so long. Default with an id: {TRANSACTION_MS}.",
            least=1,
        )
        add_flag(parser, "--print-metrics", PRINT_METRICS_HELP)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--topic", "--num-records", "--throughput")
        payloads = self._payloads(arguments, terminal)
        settings = self._settings(arguments)
        servers = ",".join(map(with_port, settings["bootstrap.servers"].split(",")))
        duration_ms = arguments.transaction_duration_ms or TRANSACTION_MS
        with terminal.clients.producer(servers, settings) as producer:
            stats = ProducerStats(arguments.num_records, _now_ms(), terminal.print)
            if "transactional.id" in settings:
                producer.init_transactions()
                _send_in_transactions(producer, arguments, payloads, stats, duration_ms)
            else:
                _send(producer, arguments, payloads, stats)
            producer.flush()
            metrics = producer.metrics() if arguments.print_metrics else None
        terminal.print(stats.total(_now_ms()))
        print_metrics(metrics, terminal)
        if stats.failure is not None:
            raise CommandError(f"{stats.failed} records were not delivered: {stats.failure}")
        return 0

    def _payloads(self, arguments: Namespace, terminal: Terminal) -> Iterator[bytes]:
        kind = one_of(arguments, ("--record-size", "--payload-file", "--payload-monotonic"))
        if kind == "--payload-file":
            return file_payloads(arguments.payload_file, arguments.payload_delimiter, terminal)
        if kind == "--payload-monotonic":
            return counted_payloads()
        return text_payloads(arguments.record_size)

    def _settings(self, arguments: Namespace) -> dict[str, str]:
        file = vars(arguments)["producer.config"]
        settings = {"client.id": "perf-producer-client"}
        settings |= settings_in(file)
        settings |= key_values(arguments.producer_props)
        if arguments.transactional_id:
            settings["transactional.id"] = arguments.transactional_id
        elif arguments.transaction_duration_ms and "transactional.id" not in settings:
            settings["transactional.id"] = f"performance-producer-{os.urandom(16).hex()}"
        if not settings.get("bootstrap.servers"):
            raise UsageError("--producer-props needs bootstrap.servers=HOST:PORT,...")
        return settings


def _send(
    producer: Producer, arguments: Namespace, payloads: Iterator[bytes], stats: ProducerStats
) -> None:
    """Send all records; `stats` counts each one that is acknowledged."""
    throttle = Throttle(arguments.throughput)
    for number in range(1, arguments.num_records + 1):
        _send_one(producer, arguments.topic, next(payloads), stats)
        throttle.wait(number)


def _send_in_transactions(
    producer: Producer,
    arguments: Namespace,
    payloads: Iterator[bytes],
    stats: ProducerStats,
    duration_ms: int,
) -> None:
    throttle = Throttle(arguments.throughput)
    begun_ms = None
    for number in range(1, arguments.num_records + 1):
        if begun_ms is None:
            producer.begin_transaction()
            begun_ms = _now_ms()
        _send_one(producer, arguments.topic, next(payloads), stats)
        if _now_ms() - begun_ms >= duration_ms:
            producer.commit_transaction()
            begun_ms = None
        throttle.wait(number)
    if begun_ms is not None:
        producer.commit_transaction()


def _send_one(producer: Producer, topic: str, payload: bytes, stats: ProducerStats) -> None:
    told = partial(_delivered, stats, _now_ms(), len(payload))
    producer.send(topic, payload, on_delivery=told)


def _delivered(
    stats: ProducerStats,
    sent_ms: float,
    size: int,
    _metadata: RecordMetadata | None,
    error: KafkaError | None,
) -> None:
    if error is None:
        now_ms = _now_ms()
        stats.record(int(now_ms - sent_ms), size, now_ms)
    else:
        stats.failed += 1
        stats.failure = error


def print_metrics(metrics: Metrics | None, terminal: Terminal) -> None:
    if metrics is not None:
        for line in metric_lines(metrics):
            terminal.print(line)


def _now_ms() -> float:
    return time.perf_counter_ns() / 1_000_000
