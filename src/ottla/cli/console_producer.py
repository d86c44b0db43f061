"""`ottla console-producer`: a record per line of standard input.

A line is text with keys and headers, or a JSON object. Bytes stay bytes: a line of text that is not
UTF-8 is sent as it is.
"""

from __future__ import annotations

import json
import logging
import os
from argparse import ArgumentParser, Namespace
from base64 import b64decode
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_flag,
    add_repeated,
    bootstrap_server,
    key_values,
    load_properties,
    moment_ms,
    require,
)
from ottla.cli.output import JSON, TEXT
from ottla.cli.terminal import Terminal
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.producer_batch import OnDelivery, RecordFuture, RecordMetadata


logger = logging.getLogger(__name__)

MAX_LOGGED_REASONS: Final = 10
FEW_RECORDS: Final = 100
CHUNK_RECORDS: Final = 5000
CHUNKS_UNDER_WAY: Final = 8

# Options whose values are producer settings: the option, the setting, and what it means.
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
    help = "Send each line of standard input as a record."
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
        reader = LineReader(key_values(arguments.property)) if as_text else JsonReader()
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

    Of a few lines, as a person types them, the outcome is told by a callback at once. Of many, as
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
    settings = load_properties(arguments.producer_config) if arguments.producer_config else {}
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


# Lines into records.


CHUNK_BYTES = 1 << 18
PLACE_FIELDS = ("topic", "partition", "offset")
"""Fields of a JSON record that say where it was read; they are not used."""
JSON_FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", *PLACE_FIELDS)

Headers = tuple[tuple[str, bytes | None], ...]

LineRecord = tuple[bytes | None, bytes | None, Headers, int | None]
"""Key, value, headers, and the timestamp in ms where the line has one."""


class LineReader:
    """Reads lines as `headers<TAB>key<TAB>value`; only the value is always there.

        parse.headers=true, parse.key=true:   h1:v1,h2:v2<TAB>key<TAB>value

    Invariant: no two separators are equal, and none is empty or equal to null.marker.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.parse_key = _is_true(properties, "parse.key")
        self.parse_headers = _is_true(properties, "parse.headers")
        self.ignore_error = _is_true(properties, "ignore.error")
        self.key_separator = properties.get("key.separator", "\t").encode()
        self.headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self.headers_separator = properties.get("headers.separator", ",").encode()
        self.headers_key_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self.null_marker = None if marker is None else marker.encode()
        self.line_number = 0
        self.is_plain = not (self.parse_key or self.parse_headers or self.null_marker)
        self._check_separators()

    def _check_separators(self) -> None:
        separators = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        for name, separator in {**separators, "key.separator": self.key_separator}.items():
            if not separator:
                raise UsageError(f"{name} must not be empty")
            if separator == self.null_marker:
                raise UsageError(f"{name} and null.marker must differ")
        if len(set(separators.values())) < len(separators):
            raise UsageError(f"{', '.join(separators)} must all differ")

    def read(self, source: BinaryIO, out: TextIO) -> Iterator[list[LineRecord]]:
        """Yield the records of the input as they arrive; on a terminal prompt for each line."""
        if source.isatty():
            return self._read_prompting(source, out)
        return self._read_chunks(source)

    def _read_prompting(self, source: BinaryIO, out: TextIO) -> Iterator[list[LineRecord]]:
        while True:
            out.write(">")
            out.flush()
            line = source.readline()
            if not line:
                out.write("\n")
                return
            yield from self.parse_lines(line)

    def _read_chunks(self, source: BinaryIO) -> Iterator[list[LineRecord]]:
        read = getattr(source, "read1", source.read)
        begun: list[bytes] = []  # pieces of a line whose end has not arrived
        while chunk := read(CHUNK_BYTES):
            lines, newline, rest = chunk.rpartition(b"\n")
            if newline:
                yield from self.parse_lines(b"".join((*begun, lines, newline)))
                begun.clear()
            begun.append(rest)
        if last := b"".join(begun):
            yield from self.parse_lines(last)

    def parse_lines(self, text: bytes) -> Iterator[list[LineRecord]]:
        """The records of whole lines, which end as Java's readLine ends them.

        Those before a line that cannot be read are given first, and then the error is raised.
        """
        lines = text.splitlines()
        if self.is_plain:
            self.line_number += len(lines)
            yield list(zip(repeat(None), lines, repeat(()), repeat(None)))
            return
        records: list[LineRecord] = []
        try:
            for line in lines:
                self.line_number += 1
                records += self.parse_line(line)
        except CommandError:
            yield records
            raise
        yield records

    def parse_line(self, line: bytes) -> Sequence[LineRecord]:
        """The record of one line."""
        headers, rest = self._cut(self.parse_headers, line, self.headers_delimiter, "headers")
        key, value = self._cut(self.parse_key, rest, self.key_separator, "key")
        return [(self._or_null(key), self._or_null(value), self._split_headers(headers), None)]

    def _cut(
        self, enabled: bool, line: bytes, separator: bytes, part: str
    ) -> tuple[bytes | None, bytes]:
        """The part in front of the separator, and the rest of the line behind it."""
        if not enabled:
            return None, line
        front, found, rest = line.partition(separator)
        if found:
            return front, rest
        if self.ignore_error:
            return None, line
        raise CommandError(
            f"line {self.line_number} has no {part}: '{_text(separator)}' is not in '{_text(line)}'"
        )

    def _split_headers(self, text: bytes | None) -> Headers:
        if text is None or text == self.null_marker:
            return ()
        return tuple(self._header(pair) for pair in text.split(self.headers_separator))

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            raise CommandError(
                f"line {self.line_number} has a header without "
                f"'{_text(self.headers_key_separator)}': '{_text(pair)}'"
            )
        if key == self.null_marker:
            raise CommandError(f"line {self.line_number} has a header whose key is null")
        return _text(key), self._or_null(value) if found else None

    def _or_null(self, value: bytes | None) -> bytes | None:
        return None if value == self.null_marker else value


class JsonReader(LineReader):
    """Reads lines as `ottla tail --format json` prints them: an object for each record.

        {"key": "k", "value": {"n": 1}, "headers": [{"key": "h", "value": "v"}]}

    A string stands for its UTF-8, null and a missing field for null, any other value for its JSON;
    `key_base64` and `value_base64` are bytes that are no text. `timestamp` is a time as in
    2026-03-02T08:00:00.000Z, or milliseconds since 1970. Blank lines are passed over.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.is_plain = False

    def parse_line(self, line: bytes) -> Sequence[LineRecord]:
        return [self._record(line)] if line.strip() else ()

    def _record(self, line: bytes) -> LineRecord:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._mistake(f"is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise self._mistake('is not a JSON object such as {"value": ...}')
        for field in found:
            if field not in JSON_FIELDS:
                raise self._mistake(f"has a field '{field}'; there are {', '.join(JSON_FIELDS)}")
        key, value = self._bytes(found, "key"), self._bytes(found, "value")
        return key, value, self._headers(found.get("headers")), self._timestamp(found)

    def _bytes(self, found: Mapping[str, Any], field: str) -> bytes | None:
        encoded = found.get(f"{field}_base64")
        if encoded is None:
            return json_bytes(found.get(field))
        try:
            return b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise self._mistake(f"has a {field}_base64 that is not base64: '{encoded}'") from None

    def _headers(self, given: Any) -> Headers:
        if given is None:
            return ()
        pairs = given if isinstance(given, list) else [given]
        for pair in pairs:
            if not isinstance(pair, dict) or not isinstance(pair.get("key"), str):
                text = json.dumps(given)
                raise self._mistake(f'has headers that are no list of {{"key": ...}}: {text}')
        return tuple((pair["key"], self._bytes(pair, "value")) for pair in pairs)

    def _timestamp(self, found: Mapping[str, Any]) -> int | None:
        given = found.get("timestamp")
        if given is None or (type(given) is int and given >= 0):
            return given
        moment = moment_ms(given, 0) if isinstance(given, str) else None
        if moment is None or moment < 0:
            raise self._mistake(
                f"has a timestamp that is neither a time such as 2026-03-02T08:00:00.000Z nor "
                f"milliseconds since 1970: {json.dumps(given)}"
            )
        return moment

    def _mistake(self, text: str) -> CommandError:
        return CommandError(f"line {self.line_number} {text}")


def json_bytes(value: Any) -> bytes | None:
    """The bytes that a value in JSON stands for: text as it is, anything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
