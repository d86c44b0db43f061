"""Kafka's performance tests, with its lines: producing, consuming, and from end to end."""

from __future__ import annotations

import hashlib
import os
import re
import time
from argparse import ArgumentParser, Namespace
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_flag,
    add_integer,
    bootstrap_server,
    key_values,
    load_properties,
    one_of,
    require,
)
from ottla.cli.terminal import Terminal, with_port

if TYPE_CHECKING:
    from ottla import Consumer, ConsumerRecord, KafkaError, Producer, RecordMetadata
    from ottla.clients.client_metrics import Metrics

MIB: Final = 1024 * 1024
REPORT_MS: Final = 5000
MOST_LATENCIES: Final = 500_000
"""So many latencies are kept for the percentiles; of a longer run, every second or third one."""
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
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot read the payload file {path}: {error.strerror}") from error
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
    help = "Measure how fast records are produced, and how long each takes to be acknowledged."
    examples = (
        "ottla producer-perf-test --topic test --num-records 1000000 --record-size 100 "
        "--throughput -1 --producer-props bootstrap.servers=localhost:9092 acks=1",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to write to.")
        add_integer(parser, "--num-records", "COUNT", "Required. How many records are sent.")
        add_integer(
            parser, "--record-size", "BYTES", "The size of each record; or one of the next two."
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
        parser.add_argument(
            "--throughput",
            metavar="RATE",
            type=float,
            help="Required. About so many records a second; -1 for as many as can be.",
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
        _print_metrics(metrics, terminal)
        if stats.failure is not None:
            raise CommandError(f"{stats.failed} records were not delivered: {stats.failure}")
        return 0

    def _payloads(self, arguments: Namespace, terminal: Terminal) -> Iterator[bytes]:
        kind = one_of(arguments, ("--record-size", "--payload-file", "--payload-monotonic"))
        if kind == "--payload-file":
            return file_payloads(arguments.payload_file, arguments.payload_delimiter, terminal)
        if kind == "--payload-monotonic":
            return counted_payloads()
        if arguments.record_size <= 0:
            raise UsageError(f"--record-size must be above 0, not {arguments.record_size}")
        return text_payloads(arguments.record_size)

    def _settings(self, arguments: Namespace) -> dict[str, str]:
        file = vars(arguments)["producer.config"]
        settings = {"client.id": "perf-producer-client"}
        settings |= load_properties(file) if file else {}
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
    """Send all records; `stats` is told of each one that is acknowledged."""
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


# Consuming


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
    """What was consumed: in all, and since the last line of --show-detailed-stats."""

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
    help = "Measure how fast the records of a topic are consumed."
    examples = (
        "ottla consumer-perf-test --bootstrap-server localhost:9092 --topic test "
        "--messages 1000000",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to read.")
        add_integer(parser, "--messages", "COUNT", "Required. How many records are read.")
        parser.add_argument(
            "--group", metavar="ID", help="The group. Default: perf-consumer-<a random number>."
        )
        add_flag(
            parser,
            "--from-latest",
            "A group without offsets starts at the end of the topic, not at its beginning.",
        )
        for option, metavar, default, text in (
            ("--fetch-size", "BYTES", MIB, "How much of a partition one fetch asks for."),
            ("--socket-buffer-size", "BYTES", 2 * MIB, "The size of the socket's receive buffer."),
            ("--timeout", "MS", 10_000, "Give up after so long without a record."),
            ("--reporting-interval", "MS", REPORT_MS, "How often progress is printed."),
        ):
            parser.add_argument(
                option,
                metavar=metavar,
                type=int,
                default=default,
                help=f"{text} Default: {default}.",
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
        if arguments.reporting_interval <= 0:
            raise UsageError("--reporting-interval must be above 0")
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
        _print_metrics(metrics, terminal)
        return 0

    def _settings(self, arguments: Namespace) -> dict[str, str]:
        file = vars(arguments)["consumer.config"]
        number = int.from_bytes(os.urandom(4), "big") % 100_000
        return {
            "client.id": "perf-consumer-client",
            **(load_properties(file) if file else {}),
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
    from ottla import RebalanceListener

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


# From end to end


LATENCY_WORDS: Final = (
    ("broker_list", "HOST:PORT,...", "The brokers to ask first."),
    ("topic", "TOPIC", "The topic; it is created, with one partition, where it does not exist."),
    ("num_messages", "COUNT", "How many records are sent, one after the other."),
    ("producer_acks", "ACKS", "1 or all."),
    ("message_size", "BYTES", "The size of each record."),
)


class EndToEndLatencyCommand(Command):
    """Sends a record, waits until a consumer has it, and sends the next one."""

    name = "e2e-latency"
    help = "Measure how long a record takes from a producer to a consumer."
    examples = ("ottla e2e-latency localhost:9092 test 10000 1 20",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        for word, metavar, text in LATENCY_WORDS:
            parser.add_argument(word, metavar=metavar, help=text)
        parser.add_argument(
            "properties_file", metavar="FILE", nargs="?", help="Property file for the clients."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        count, size = (
            _positive(name, getattr(arguments, name)) for name in ("num_messages", "message_size")
        )
        if arguments.producer_acks not in ("1", "all"):
            raise UsageError("Latency testing requires synchronous acknowledgement: 1 or all")
        servers = ",".join(map(with_port, arguments.broker_list.split(",")))
        file = arguments.properties_file
        settings = load_properties(file) if file else {}
        _create_if_missing(arguments.topic, servers, settings, terminal)
        for_producer = {"linger.ms": "0", "acks": arguments.producer_acks}
        for_consumer = {"enable.auto.commit": "false", "fetch.max.wait.ms": "0"}
        with (
            terminal.clients.consumer(servers, {**settings, **for_consumer}) as consumer,
            terminal.clients.producer(servers, {**settings, **for_producer}) as producer,
        ):
            _seek_to_end(consumer, arguments.topic)
            payloads = text_payloads(size)
            taken = []
            for number in range(count):
                taken.append(_round_trip_ms(producer, consumer, arguments.topic, next(payloads)))
                if number % 1000 == 0:
                    terminal.print(f"{number}\t{taken[-1]}")
        in_order = sorted(map(int, taken))
        terminal.print(f"Avg latency: {sum(taken) / count:.4f} ms")
        terminal.print(
            "Percentiles: 50th = {}, 99th = {}, 99.9th = {}".format(
                *(percentile(in_order, share) for share in (0.5, 0.99, 0.999))
            )
        )
        return 0


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"{name} must be a number above 0, not '{text}'")
    return int(text)


def _create_if_missing(
    topic: str, servers: str, settings: Mapping[str, str], terminal: Terminal
) -> None:
    from ottla import NewTopic

    with terminal.admin(servers, settings) as admin:
        if topic not in admin.list_topics():
            terminal.print(
                f'Topic "{topic}" does not exist. '
                "Will create topic with 1 partition(s) and replication factor = 1"
            )
            admin.create_topics([NewTopic(topic, 1, 1)])


def _seek_to_end(consumer: Consumer, topic: str) -> None:
    from ottla import TopicPartition

    partitions = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
    consumer.assign(partitions)
    consumer.seek_to_end(partitions)
    for partition in partitions:
        consumer.position(partition)


def _round_trip_ms(producer: Producer, consumer: Consumer, topic: str, payload: bytes) -> float:
    """Milliseconds from the send until the consumer has the record; it must be this one alone."""
    begun = time.perf_counter_ns()
    producer.send(topic, payload).result()
    records = consumer.poll(LATENCY_POLL_MS)
    elapsed_ms = (time.perf_counter_ns() - begun) / 1_000_000
    if not records:
        raise CommandError(f"no record came within {LATENCY_POLL_MS} ms")
    if len(records) > 1 or records[0].value != payload:
        raise CommandError(f"{len(records)} records came that are not the one sent")
    return elapsed_ms


def _print_metrics(metrics: Metrics | None, terminal: Terminal) -> None:
    if metrics is not None:
        from ottla.clients.client_metrics import metric_lines

        for line in metric_lines(metrics):
            terminal.print(line)


def _now_ms() -> float:
    return time.perf_counter_ns() / 1_000_000
