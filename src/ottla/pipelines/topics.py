"""The topics of a pipeline: created, filled and deleted.

A log is published in transactions, and each of them has a record in LOGS_TOPIC that says how far it
has come. So the next run continues behind the last line that counts, however a run has ended. The
same holds for a `RowsFile`, whose rows become JSON objects with the columns of a topic.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla import (
    Admin,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from ottla.pipelines.access_log import (
    DAMAGED,
    LOG_START,
    LONGEST_LINE,
    NO_OBJECT,
    TOO_LONG,
    AccessLog,
    DamagedError,
    LogError,
    LogLedger,
    Position,
    trimmed,
)
from ottla.pipelines.pipeline import (
    KEY_SEPARATOR,
    Event,
    Feed,
    FeedRequest,
    Input,
    Pipeline,
    columns_of,
)

if TYPE_CHECKING:
    from ottla.clients.producer.producer_batch import RecordFuture

MAX_FUTURES = 50_000
PACE_S = 0.05


def create_topics(servers: str, pipeline: Pipeline) -> list[str]:
    """Create those topics of the pipeline that do not exist; returns their names."""
    outputs = {
        output.topic: NewTopic(output.topic, output.partitions, configs=output.settings)
        for output in pipeline.outputs
        if not output.is_table
    }
    inputs = {
        source.topic: NewTopic(
            source.topic,
            source.partitions,
            configs={"cleanup.policy": "compact"} if source.is_table or source.is_compacted else {},
        )
        for source in pipeline.fed_topics
    }
    with Admin(servers) as admin:
        there = admin.list_topics()
        missing = [new for name, new in {**inputs, **outputs}.items() if name not in there]
        admin.create_topics(missing)
    return [new.name for new in missing]


def delete_outputs(servers: str, pipeline: Pipeline) -> list[str]:
    """Delete the outputs that exist; returns their names."""
    with Admin(servers) as admin:
        there = admin.list_topics()
        names = [each.topic for each in pipeline.outputs if each.topic in there]
        admin.delete_topics(names)
    return names


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast events are published, and until when; `on_event` hears of each one."""

    per_second: float | None = None
    is_over: Callable[[], bool] = lambda: False
    on_event: Callable[[], object] = lambda: None

    def keep(self, number: int, started_s: float) -> bool:
        """Wait until it is time for an event; False where it is over."""
        while self.per_second and number > (time.monotonic() - started_s) * self.per_second:
            if self.is_over():
                return False
            time.sleep(PACE_S)
        return not self.is_over()


def publish(
    servers: str,
    events: Iterable[Event],
    pace: Pace | None = None,
) -> Mapping[str, int]:
    """Publish events, no faster than asked; returns how many each topic has acknowledged."""
    counts: dict[str, int] = {}
    pace = pace or Pace()
    futures: deque[RecordFuture] = deque()
    started_s = time.monotonic()
    with Producer(servers, acks="all", linger_ms=20, batch_size=256 * 1024) as producer:
        for number, event in enumerate(events):
            if not pace.keep(number, started_s):
                break
            pace.on_event()
            futures.append(producer.send(event.topic, event.value, key=event.key))
            counts[event.topic] = counts.get(event.topic, 0) + 1
            if len(futures) >= MAX_FUTURES:
                futures.popleft().result()
        producer.flush()
        for future in futures:
            future.result()
    return counts


# A file of rows: CSV, or JSON objects.

CSV, JSON_OBJECTS = "CSV", "JSON"
DELIMITERS: Final = ",;\t|"
NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
NUMBERS: Final = re.compile(
    r"(tinyint|byte|smallint|short|int|integer|bigint|long|float|double|real|dec|decimal|numeric)\b"
)
HEAD = 64 * 1024
MOST_LINES = 100
"""A row of CSV has no more of them: one with a quote that is never closed would end the file."""
BETWEEN: Final = re.compile(r"[\s,]*")
"""What stands between the objects of an array."""
NO_UTF8 = "the row is not in UTF-8"
NO_JSON = "the array is no JSON from here on"
CHANGED = "the row has changed since it was published"
PARQUET = b"PAR1"


class FileRow(NamedTuple):
    """A row of a file: the value of a record, and its fields; or the reason why it is none."""

    value: bytes
    fields: Mapping[str, Any]
    problem: str = ""


class RowPlace(NamedTuple):
    """Where a row begins and ends, and where the next one can begin. No row is no event."""

    row: FileRow | None
    begin: Position
    content_end: int
    end: Position


class RowsFile(AccessLog):
    """A file of rows for the columns of a topic: CSV with a header, or JSON objects.

    JSON objects stand one in a line, or in one array. A cell of CSV becomes what its column's type
    says, a number, true or false, or text; an empty one is null. A cell that does not fit stays the
    text that it is, and the pipeline says why it leaves the row out.
    """

    def __init__(
        self,
        source: Input,
        path: Path,
        start: Position = LOG_START,
        stop: Position | None = None,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        """Raises LogError for a file that has no rows for the topic."""
        super().__init__(path, start, stop, longest_line)
        self.ledger = LogLedger(unit="rows", noun="event")
        self.source = source
        self._types = columns_of(source.schema)
        head = trimmed(self.beginning(HEAD)).lstrip()
        if not head:
            raise LogError(f"{path}: is empty")
        if head.startswith(PARQUET) or b"\0" in head:
            raise LogError(f"{path}: is neither CSV nor JSON")
        if source.is_table and not source.key:
            raise LogError(
                f"{path}: {source.topic} is a table: its Input needs a key=(column, ...)"
            )
        self.form = JSON_OBJECTS if head[:1] in (b"{", b"[") else CSV
        self._is_array = head.startswith(b"[")
        first_line = head.partition(b"\n")[0].decode("utf-8", "replace")
        self._delimiter = max(DELIMITERS, key=first_line.count)
        self._columns = self._header(first_line) if self.form == CSV else []
        self._second_reading = self._chunks()
        self._hash, self._hashed, self._waiting = hashlib.sha256(), 0, b""

    def _header(self, line: str) -> list[str]:
        try:
            names = [name.strip() for name in self._cells([line.rstrip("\r")])]
        except csv.Error as error:
            raise LogError(f"{self.path}: its first line is no header of CSV: {error}") from None
        missing = ", ".join(name for name in self._types if name not in names)
        if missing:
            raise LogError(f"{self.path}: has no column {missing} (it has: {', '.join(names)})")
        return names

    @property
    def digest(self) -> str:
        """Of all before `reached`: it is read a second time for that, since rows look ahead."""
        while self._hashed < self.reached.offset:
            self._waiting = self._waiting or next(self._second_reading)
            piece = self._waiting[: self.reached.offset - self._hashed]
            self._hash.update(piece)
            self._hashed += len(piece)
            self._waiting = self._waiting[len(piece) :]
        return self._hash.hexdigest()

    def events(self) -> Iterator[Event]:
        """An event for each row that is new; the others are in the ledger only."""
        if self._stop is not None and not self._stop.offset:
            return
        try:
            for row, begin, content_end, end in self._array() if self._is_array else self._rows():
                if content_end <= self.start.offset:
                    continue
                self.reached = end
                if row is not None:
                    problem = row.problem if begin.offset >= self.start.offset else CHANGED
                    if problem:
                        self.ledger.leave_out(begin.line + 1, problem, row.value)
                    else:
                        self.ledger.requests[self.form] += 1
                        yield Event(self.source.topic, self._key(row), row.value)
                if self._stop is not None and end.offset >= self._stop.offset:
                    return
        except DamagedError:
            self.ledger.leave_out(self.reached.line + 1, DAMAGED)

    def _rows(self) -> Iterator[RowPlace]:
        """The rows of CSV and of JSON lines; what is not understood ends with its first line."""
        lines = self._raw_lines()
        ahead: deque[tuple[bytes, int]] = deque()
        place, has_header = Position(), self.form != CSV
        while True:
            if not ahead:
                ahead.extend(islice(lines, 1))
            if not ahead:
                return
            count = 1 if self.form == JSON_OBJECTS else self._length(ahead, lines)
            taken = [ahead.popleft() for _ in range(count)]
            values = [trimmed(value) for value, _ in taken]
            size = sum(length for _, length in taken)
            row = None
            if any(len(value) > self._longest for value in values):
                row = FileRow(b"", {}, TOO_LONG)
            elif b"".join(values).strip():
                row = self._row(values) if has_header else None
                has_header = True
            end = Position(place.line + count, place.offset + size)
            content_end = end.offset - taken[-1][1] + len(taken[-1][0])
            yield RowPlace(row, place, content_end, end)
            place = end

    def _length(self, ahead: deque[tuple[bytes, int]], lines: Iterator[tuple[bytes, int]]) -> int:
        """How many lines the next row of CSV has: a cell in quotes may go over several."""
        for count in range(1, MOST_LINES + 1):
            while len(ahead) < count:
                line = next(lines, None)
                if line is None:
                    return 1
                ahead.append(line)
            texts = [each.decode("utf-8", "replace") for each, _ in islice(ahead, count)]
            try:
                self._cells(texts)
            except csv.Error as error:
                if "unexpected end" not in str(error):
                    return 1
            else:
                return count
        return 1

    def _cells(self, lines: Iterable[str]) -> list[str]:
        rows = csv.reader((f"{line}\n" for line in lines), delimiter=self._delimiter, strict=True)
        return next(rows, [])

    def _row(self, values: list[bytes]) -> FileRow:
        whole = b"\n".join(values)
        try:
            texts = [value.decode() for value in values]
        except UnicodeDecodeError:
            return FileRow(whole, {}, NO_UTF8)
        if self.form == JSON_OBJECTS:
            return self._object(whole)
        try:
            cells = self._cells(texts)
        except csv.Error as error:
            return FileRow(whole, {}, f"is no row of CSV: {error}")
        if len(cells) != len(self._columns):
            return FileRow(
                whole, {}, f"has {len(cells)} cells where the header has {len(self._columns)}"
            )
        fields = dict(zip(self._columns, cells, strict=True))
        literals = (
            f"{json.dumps(name)}: {literal(cell, self._types.get(name, ''))}"
            for name, cell in fields.items()
        )
        return FileRow(f"{{{', '.join(literals)}}}".encode(), fields)

    def _object(self, value: bytes) -> FileRow:
        try:
            fields = json.loads(value)
        except (ValueError, RecursionError):
            return FileRow(value, {}, NO_OBJECT)
        if not isinstance(fields, dict):
            return FileRow(value, {}, NO_OBJECT)
        if self._types and not fields.keys() & self._types.keys():
            return FileRow(value, {}, f"has none of the columns {', '.join(self._types)}")
        return FileRow(value, fields)

    def _array(self) -> Iterator[RowPlace]:
        """The objects of an array, which is in memory as a whole."""
        text = b"".join(self._chunks()).decode("utf-8", "surrogateescape")
        decoder = json.JSONDecoder()
        at, done, place = text.index("[") + 1, 0, Position()

        def moved(to: int) -> Position:
            piece = text[done:to]
            size = len(piece.encode("utf-8", "surrogateescape"))
            return Position(place.line + piece.count("\n"), place.offset + size)

        while True:
            separators = BETWEEN.match(text, at)
            at = separators.end() if separators else at
            if text.startswith("]", at):
                return
            place, done, begin = moved(at), at, moved(at)
            try:
                _, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                rest = moved(len(text))
                yield RowPlace(FileRow(b"", {}, NO_JSON), begin, rest.offset, rest)
                return
            end = moved(at)
            value = text[done:at].encode("utf-8", "surrogateescape")
            yield RowPlace(self._row([value]), begin, end.offset, end)
            place, done = end, at

    def _key(self, row: FileRow) -> bytes | None:
        values = [row.fields.get(name) for name in self.source.key]
        texts = [each if isinstance(each, str) else json.dumps(each) for each in values]
        known = [text for text, each in zip(texts, values, strict=True) if each not in (None, "")]
        return KEY_SEPARATOR.join(known).encode() if known else None

    def _last_line(
        self, value: bytes, length: int, digest: hashlib._Hash
    ) -> Iterator[tuple[bytes, int]]:
        yield value, length  # a file of rows is not being written to


def literal(cell: str, kind: str) -> str:
    """A cell of CSV as JSON: what the type of its column says, or else text."""
    word = cell.strip()
    if not cell or (not word and kind != "string"):
        return "null"
    if NUMBERS.match(kind) and NUMBER.fullmatch(word):
        return str(Decimal(word))
    if kind == "boolean" and word.lower() in ("true", "false"):
        return word.lower()
    return json.dumps(cell)


# A log, published once.

LOGS_TOPIC: Final = "ottla-published-logs"
"""What has been published of which log; the newest record of a key counts."""
COMMIT_EVENTS = 10_000
COMMIT_S = 1.0
BEGINNING = 4096
OVERHEAD = 1024
"""The bytes of a record besides its line: the key, the frame of its batch, headers."""
POLL_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class PublishedLog:
    """How far a log has been published for a pipeline.

    The log is known by its content: by its `beginning` (length and digest), and by the `digest` of
    all bytes before `reached`. So it stays the same when it grows, is renamed or is compressed.
    The part under way began at `start`: `events` of those it makes are published, and are all of
    them if it `is_done`. The ledgers are those of the two positions. `topics` have their ids.
    """

    key: str
    file: str
    beginning: tuple[int, str]
    topics: Mapping[str, str]
    start: Position = LOG_START
    start_ledger: LogLedger = field(default_factory=LogLedger)
    reached: Position = LOG_START
    digest: str = hashlib.sha256().hexdigest()
    ledger: LogLedger = field(default_factory=LogLedger)
    events: int = 0
    is_done: bool = True

    def to_bytes(self) -> bytes:
        ledgers = {"start_ledger": self.start_ledger.to_json(), "ledger": self.ledger.to_json()}
        return json.dumps({**asdict(self), **ledgers}).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> PublishedLog:
        fields = json.loads(value)
        for name in ("start", "reached"):
            fields[name] = Position(*fields[name])
        for name in ("start_ledger", "ledger"):
            fields[name] = LogLedger.from_json(fields[name])
        return cls(**{**fields, "beginning": tuple(fields["beginning"])})

    def begins(self, beginning: bytes) -> bool:
        length, digest = self.beginning
        return hashlib.sha256(beginning[:length]).hexdigest() == digest


@dataclass(slots=True)
class LogPublication:
    """What a run has published of a log: events by topic, and the balance of all of its lines.

    `lines_before` were published by earlier runs. `too_large` are events that no record can hold.
    """

    counts: Counter[str] = field(default_factory=Counter)
    lines_before: int = 0
    too_large: int = 0
    ledger: LogLedger = field(default_factory=LogLedger)

    @property
    def kind(self) -> str:
        return "log" if self.ledger.unit == "lines" else "file"

    def words(self) -> str:
        before = f"; {self.lines_before:,} lines were published before" if self.lines_before else ""
        large = f"; {self.too_large:,} events are too large for a record" if self.too_large else ""
        return f"{self.ledger.words()}{large}{before}"


@dataclass(frozen=True, slots=True)
class LogFeed:
    """A log that a feed of a pipeline publishes once, or once more where `again` is asked for.

    With a `source` it is no log, but a file of rows for this topic.
    """

    pipeline: Pipeline
    feed: Feed
    path: Path
    again: bool = False
    source: Input | None = None

    @classmethod
    def of_rows(cls, pipeline: Pipeline, source: Input, path: Path, again: bool = False) -> LogFeed:
        """A file of rows; raises LogError for one that cannot be read, or lacks a column."""
        RowsFile(source, path)
        return cls(pipeline, _rows_of_file, path, again, source)

    def opened(
        self,
        start: Position = LOG_START,
        stop: Position | None = None,
        longest_line: int = LONGEST_LINE,
    ) -> AccessLog:
        """The file, from one position up to another."""
        if self.source is None:
            return AccessLog(self.path, start, stop, longest_line)
        return RowsFile(self.source, self.path, start, stop, longest_line)

    def publish(self, servers: str, pace: Pace) -> LogPublication:
        """Publish what is new in the log; raises LogError where it is not the log that it was."""
        with Producer(
            servers,
            transactional_id=f"ottla-log-{self.pipeline.name}",
            acks="all",
            linger_ms=20,
            batch_size=256 * 1024,
        ) as producer:
            # Ends what a run that was killed has left open; of two that run, one is refused.
            producer.init_transactions()
            topics, longest_line = self._topics(servers)
            known = self._known(servers, topics)
            return _LogPublisher(producer, self, pace, known, longest_line).run()

    def _topics(self, servers: str) -> tuple[dict[str, str], int]:
        """The topics of the feed with their ids, and how long a line may be that they take."""
        fed = self.pipeline.fed_topics if self.source is None else [self.source]
        names = sorted(each.topic for each in fed)
        with Admin(servers) as admin:
            if LOGS_TOPIC not in admin.list_topics():
                compacted = {"cleanup.policy": "compact"}
                admin.create_topics([NewTopic(LOGS_TOPIC, 1, configs=compacted)])
            described = admin.describe_topics(names)
            settings = admin.describe_configs(ConfigResource.topic(name) for name in names)
        sizes = [int(each["max.message.bytes"].value or 0) - OVERHEAD for each in settings.values()]
        ids = {name: str(described[name].topic_id) for name in names}
        return ids, min(LONGEST_LINE, *sizes)

    def _known(self, servers: str, topics: Mapping[str, str]) -> PublishedLog:
        """What is known of this log; where it is new, what it begins with."""
        log = self.opened()
        beginning = log.beginning(BEGINNING)
        if not self.again:
            kept = self._kept(servers, topics, log.ledger.unit)
            alike = [each for each in kept if each.begins(beginning)]
            found = [each for each in alike if each.digest == log.digest_up_to(each.reached.offset)]
            if alike and not found:
                raise LogError(
                    f"{self.path}: was published up to line {alike[0].reached.line:,}, and has "
                    "been changed before that since; --again publishes all of it, a second time"
                )
            if found:
                # One that was not ended comes first: it was asked for last.
                return min(found, key=lambda each: (each.is_done, -each.reached.offset))
        digest = hashlib.sha256(beginning).hexdigest()
        key = f"{self.pipeline.name}/{uuid.uuid4()}"
        return PublishedLog(
            key,
            self.path.name,
            (len(beginning), digest),
            topics,
            start_ledger=log.ledger,
            ledger=log.ledger,
        )

    def _kept(self, servers: str, topics: Mapping[str, str], unit: str) -> Iterator[PublishedLog]:
        """What has been published into these topics; a topic that was made again has none of it.

        Logs and files of rows know nothing of each other.
        """
        newest = {record.key: record.value for record in _read(servers, LOGS_TOPIC)}
        for value in newest.values():
            each = PublishedLog.from_bytes(value or b"")
            is_ours = each.key.startswith(f"{self.pipeline.name}/") and each.ledger.unit == unit
            if is_ours and each.topics.items() & topics.items():
                if each.topics != topics:
                    raise LogError(
                        f"{self.path}: one of the topics {', '.join(topics)} was deleted and made "
                        "again; delete the others, too, or publish all of it, a second time, by "
                        "--again"
                    )
                yield each


def sample_files(pipeline: Pipeline) -> list[LogFeed]:
    """The samples of a pipeline; raises LogError for one that has no rows for its topic."""
    sources = {each.topic: each for each in pipeline.fed_topics}
    return [
        LogFeed.of_rows(pipeline, sources[topic], path) for topic, path in pipeline.samples.items()
    ]


def _rows_of_file(request: FeedRequest) -> Iterable[Event]:
    assert isinstance(request.log, RowsFile)
    return request.log.events()


class _LogPublisher:
    """Publishes the parts of a log: what an earlier run has begun, and then what is new."""

    def __init__(
        self,
        producer: Producer,
        feed: LogFeed,
        pace: Pace,
        known: PublishedLog,
        longest_line: int,
    ) -> None:
        self._producer = producer
        self._feed = feed
        self._pace = pace
        self._known = known
        self._largest = longest_line
        self._started_s = time.monotonic()
        self._number = 0
        self._publication = LogPublication(lines_before=known.reached.line)

    def run(self) -> LogPublication:
        known = self._known
        ledger = known.ledger
        if not known.is_done:
            ledger = self._part(known.start, known.reached, known.start_ledger, known.events)
        if not self._pace.is_over():
            ledger = self._part(known.reached, None, ledger, 0)
        self._publication.ledger = ledger
        return self._publication

    def _part(
        self, start: Position, stop: Position | None, ledger: LogLedger, events: int
    ) -> LogLedger:
        """Publish a part, without the events that are there already; returns the ledger then."""
        log = self._feed.opened(start, stop, self._largest)
        log.ledger = deepcopy(ledger)
        left = islice(self._feed.feed(FeedRequest(0, 0, log)), events, None)
        is_done = False
        while not is_done and not self._pace.is_over():
            self._producer.begin_transaction()
            try:
                sent, is_done = self._batch(left)
                events += sent
                if not sent and log.reached == start:
                    self._producer.abort_transaction()
                    break
                entry = replace(
                    self._known,
                    start=start,
                    start_ledger=ledger,
                    reached=log.reached,
                    digest=log.digest,
                    ledger=log.ledger,
                    events=events,
                    is_done=is_done,
                )
                self._producer.send(LOGS_TOPIC, entry.to_bytes(), key=entry.key.encode())
                self._producer.commit_transaction()
            except BaseException:
                self._give_up()
                raise
        return log.ledger

    def _batch(self, events: Iterator[Event]) -> tuple[int, bool]:
        """Send events until a transaction is large or old enough; whether these were the last."""
        ends_s = time.monotonic() + COMMIT_S
        for sent in range(COMMIT_EVENTS):
            if not self._pace.keep(self._number, self._started_s) or time.monotonic() > ends_s:
                return sent, False
            event = next(events, None)
            if event is None:
                return sent, True
            self._number += 1
            self._pace.on_event()
            if len(event.key or b"") + len(event.value or b"") > self._largest + OVERHEAD // 2:
                self._publication.too_large += 1
                continue
            self._producer.send(event.topic, event.value, key=event.key)
            self._publication.counts[event.topic] += 1
        return COMMIT_EVENTS, False

    def _give_up(self) -> None:
        """What was sent since the last commit counts for nobody, and holds no reader up."""
        try:
            self._producer.abort_transaction()
        except KafkaError:
            pass  # the error that is raised says more, and the next run ends the transaction


def _read(servers: str, topic: str) -> Iterator[ConsumerRecord]:
    """What is in the only partition of a topic, and was committed."""
    where = TopicPartition(topic, 0)
    with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign([where])
        end = consumer.end_offsets([where])[where]
        consumer.seek(where, consumer.beginning_offsets([where])[where])
        while consumer.position(where) < end:
            yield from consumer.poll(POLL_WAIT_MS)
