"""`ottla console-producer`: a record per line of standard input.

A line is text with keys and headers, or a JSON object. Bytes stay bytes: a line of text that is not
UTF-8 is sent as it is.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import TYPE_CHECKING, BinaryIO, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.line_reader import JsonLineReader, LineReader, LineRecord
from ottla.cli.options import (
    add_bootstrap_server,
    add_flag,
    add_repeated,
    bootstrap_server,
    key_values,
    require,
)
from ottla.cli.property_files import settings_in
from ottla.cli.table import JSON, TEXT
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal
    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.producer_batch import OnDelivery, RecordFuture, RecordMetadata


logger = logging.getLogger(__name__)

MAX_LOGGED_REASONS: Final = 10
FEW_RECORDS: Final = 100
CHUNK_RECORDS: Final = 5000
CHUNKS_UNDER_WAY: Final = 8

# Options whose values are producer settings: the option, the setting, and its meaning.
PRODUCER_OPTIONS: Final = (
    ("--request-required-acks", "acks", "How many replicas must have a record: 0, 1 or all (-1)."),
    ("--request-timeout-ms", "request.timeout.ms", "How long to wait for an answer."),
    ("--message-send-max-retries", "retries", "How often a failed request is sent again."),
    ("--retry-backoff-ms", "retry.backoff.ms", "How long to wait before a retry."),
    ("--timeout", "linger.ms", "How long a record may wait in ms for others to share its batch."),
    ("--max-block-ms", "max.block.ms", "How long sending may wait for memory and metadata."),
    ("--max-memory-bytes", "buffer.memory", "Memory for records that wait to be sent."),
    ("--max-partition-memory-bytes", "batch.size", "How large a batch may become in bytes."),
    ("--socket-buffer-size", "send.buffer.bytes", "The size of the socket's send buffer."),
    ("--metadata-expiry-ms", "metadata.max.age.ms", "How long metadata is taken as fresh."),
)


class ConsoleProducerCommand(Command):
    """Sends each line of standard input as a record."""

    name = "console-producer"
    examples = (
        "ottla console-producer --broker-list localhost:9092 --topic test",
        "ottla console-producer --bootstrap-server localhost:9092 --topic test"
        " --property parse.key=true --property key.separator=: < records.txt",
        "ottla tail test -n 100 --format json | ottla console-producer --topic copy --format json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument("--topic", metavar="NAME", help="Required. The topic to send to.")
        add_repeated(
            parser,
            "--property",
            "KEY=VALUE",
            "How a line is read; may be repeated: parse.key=true, key.separator=TEXT (a "
            "tab), parse.headers=true, headers.delimiter=TEXT (a tab), headers.separator=TEXT "
            "(,), headers.key.separator=TEXT (:), null.marker=TEXT, ignore.error=true.",
        )
        parser.add_argument(
            "--format",
            metavar="FORMAT",
            choices=(TEXT, JSON),
            default=TEXT,
            help="text (default): a line is a value, or what --property says; json: a line is an "
            "object with key, value, headers and timestamp, as `ottla tail --format json` prints "
            "it. The partition follows from the key.",
        )
        add_repeated(
            parser,
            "--producer-property",
            "KEY=VALUE",
            "A setting of the producer, such as linger.ms=100; may be repeated.",
        )
        parser.add_argument(
            "--producer.config",
            dest="producer_config",
            metavar="FILE",
            help="Property file for the producer; --producer-property wins over it.",
        )
        parser.add_argument(
            "--compression-codec",
            metavar="CODEC",
            nargs="?",
            const="gzip",
            help="none, gzip, snappy, lz4 or zstd; gzip where no name follows.",
        )
        add_flag(parser, "--sync", "Wait for the answer to each record in turn.")
        for option, setting, meaning in PRODUCER_OPTIONS:
            parser.add_argument(option, metavar="N", help=f"{meaning} (Setting {setting}.)")
        parser.add_argument(
            "--batch-size",
            metavar="N",
            help="Records in a batch, as older tools counted; accepted, batches fill by size.",
        )
        parser.add_argument(
            "--line-reader",
            metavar="CLASS",
            help="Kafka's LineMessageReader, by any name; the only reader there is.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--topic")
        if arguments.format == JSON and arguments.property:
            raise UsageError("option --property cannot be used with --format json")
        as_text = arguments.format == TEXT
        reader = LineReader(key_values(arguments.property)) if as_text else JsonLineReader()
        settings = producer_settings(arguments)
        servers = bootstrap_server(arguments)
        with terminal.clients.producer(servers, settings) as producer:
            sender = _Sender(producer, arguments.topic, arguments.sync)
            begun_ms = terminal.now_ms()
            with terminal.progress(f"to {arguments.topic}") as progress:
                try:
                    for records in reader.read(terminal.source, terminal.out):
                        sender.send(records)
                        progress.show(sender.count, share_read(terminal.source))
                except CommandError as error:
                    sender.finish()
                    raise CommandError(f"{error}; {sender.sent} before it were sent") from None
            with terminal.waiting_for(f"{servers} to take the records"):
                sender.finish()
            ended_ms = terminal.now_ms()
        # Only now has the last callback been called: the producer's thread has ended.
        if not terminal.source.isatty() and not sender.failures:
            seconds = (ended_ms - begun_ms) / 1000
            terminal.remark(f"{sender.count} records to {arguments.topic} in {seconds:.1f} s")
        return sender.report(terminal)


class _Sender:
    """Sends records and keeps the reasons of those that failed, logging each when it first occurs.

    Of a few lines, as a person types them, a callback reports the outcome at once. Of many, as
    they come from a file, futures are looked at later: that is more than twice as fast.
    """

    def __init__(self, producer: Producer, topic: str, sync: bool) -> None:
        self.producer = producer
        self.topic = topic
        self.few = 0 if sync else FEW_RECORDS
        self.chunks_under_way = 0 if sync else CHUNKS_UNDER_WAY
        self.under_way: deque[list[RecordFuture]] = deque()
        self.count = 0
        self.failures: list[str] = []  # appended to by the I/O thread too
        self.logged: set[str] = set()

    def send(self, records: list[LineRecord]) -> None:
        self.count += len(records)
        if len(records) <= self.few:
            for record in records:
                self._queue(record, self._on_delivery)
            return
        size = CHUNK_RECORDS if self.chunks_under_way else 1
        for start in range(0, len(records), size):
            futures = [self._queue(record) for record in records[start : start + size]]
            self.under_way.append([future for future in futures if future is not None])
            self._look_back(self.chunks_under_way)

    def _queue(
        self, record: LineRecord, on_delivery: OnDelivery | None = None
    ) -> RecordFuture | None:
        key, value, headers, timestamp_ms = record
        try:
            return self.producer.send(
                self.topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                on_delivery=on_delivery,
            )
        except KafkaError as error:
            if error.error is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            self._on_delivery(None, error)
            return None

    def _look_back(self, keep: int) -> None:
        """Wait until no more than `keep` chunks are without an outcome."""
        while len(self.under_way) > keep:
            for future in self.under_way.popleft():
                error = future.exception()
                if error is not None:
                    self._on_delivery(None, error)

    def _on_delivery(self, _metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        if error is None:
            return
        reason = str(error)
        self.failures.append(reason)
        if reason not in self.logged and len(self.logged) < MAX_LOGGED_REASONS:
            self.logged.add(reason)
            logger.error("a record for topic %s was not sent: %s", self.topic, reason)

    def finish(self) -> None:
        """Wait until all records have arrived or have failed."""
        self.producer.flush()
        self._look_back(0)

    @property
    def sent(self) -> int:
        """How many records have arrived, once all have an outcome."""
        return self.count - len(self.failures)

    def report(self, terminal: Terminal) -> int:
        """Say how many records were not sent, if any; the exit status."""
        if not self.failures:
            return 0
        terminal.note(f"{len(self.failures)} records for topic {self.topic} were not sent")
        return 1


def share_read(source: BinaryIO) -> float | None:
    """How much of a file has been read; None for a pipe, whose end is not known."""
    try:
        size = os.fstat(source.fileno()).st_size
        return source.tell() / size if size else None
    except OSError:
        return None


def producer_settings(arguments: Namespace) -> dict[str, str]:
    """The producer's settings: the file, then --producer-property, then options of their own."""
    named = arguments.producer_config
    settings = settings_in(named)
    settings |= key_values(arguments.producer_property)
    settings.pop("key.serializer", None)
    settings.pop("value.serializer", None)
    settings.setdefault("client.id", "console-producer")
    if arguments.compression_codec:
        settings["compression.type"] = arguments.compression_codec
    for option, setting, _ in PRODUCER_OPTIONS:
        value = getattr(arguments, option.lstrip("-").replace("-", "_"))
        if value is not None:
            settings[setting] = value
    return settings
