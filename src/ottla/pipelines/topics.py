"""The topics of a pipeline: created, filled and deleted.

A log is published in transactions, and each of them has a record in LOGS_TOPIC that says how far it
has come. So the next run continues behind the last line that counts, however a run has ended. The
same holds for a `RowsFile`, whose rows become JSON objects with the columns of a topic.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.pipelines.access_log import (
    LOG_START,
    LONGEST_LINE,
    AccessLog,
    LogError,
    LogLedger,
    Position,
)
from ottla.pipelines.pipeline import Event, Feed, FeedRequest, Input, OutputGoneError, Pipeline
from ottla.pipelines.rows_file import RowsFile
from ottla.runtime.local_disk import LocalDisk

if TYPE_CHECKING:
    from ottla.clients.producer.producer_batch import RecordFuture

MAX_FUTURES = 50_000
PACE_S = 0.05


OUTPUT_IDS: Final = "outputs.json"
"""Beside the checkpoints: the ids of the topics that their queries write to."""


def create_topics(servers: str, pipeline: Pipeline, checkpoints: Path | None = None) -> list[str]:
    """Create those topics of the pipeline that do not exist; returns their names.

    With the folder of its checkpoints it raises OutputGoneError where these say that an output has
    been written to which is not there any more.
    """
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
        if checkpoints is not None:
            _check_outputs(admin, outputs, checkpoints)
        created = create_missing_topics(admin, {**inputs, **outputs}.values())
        if checkpoints is not None:
            checkpoints.mkdir(parents=True, exist_ok=True)
            ids = json.dumps(_ids_of(admin, outputs))
            LocalDisk().replace(str(checkpoints / OUTPUT_IDS), ids.encode())
    return created


def check_outputs(servers: str, pipeline: Pipeline, checkpoints: Path) -> None:
    """Raise OutputGoneError if an output was deleted since a query has written to it."""
    with Admin(servers) as admin:
        names = [each.topic for each in pipeline.outputs if not each.is_table]
        _check_outputs(admin, names, checkpoints)


def _check_outputs(admin: Admin, names: Iterable[str], checkpoints: Path) -> None:
    """A query goes on behind its checkpoint, so that all that it wrote before would be missing."""
    file = checkpoints / OUTPUT_IDS
    known = json.loads(file.read_text()) if file.exists() else {}
    ids = _ids_of(admin, names)
    for name in names:
        has_written = any((checkpoints / name / "commits").glob("[0-9]*"))
        if has_written and (name not in ids or known.get(name, ids[name]) != ids[name]):
            raise OutputGoneError(
                f"the topic {name} was deleted since results were written to it, and they are gone"
            )


def _ids_of(admin: Admin, names: Iterable[str]) -> dict[str, str]:
    there = sorted(set(names) & admin.list_topics())
    return {name: str(each.topic_id) for name, each in admin.describe_topics(there).items()}


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


def publish(servers: str, events: Iterable[Event], pace: Pace | None = None) -> Mapping[str, int]:
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
    """The events that a run has published of a log: events by topic, and the balance of all of its
    lines.

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
        """Publish the new lines of the log; raises LogError where it is not the log that it was."""
        with Producer(
            servers,
            transactional_id=f"ottla-log-{self.pipeline.name}",
            acks="all",
            linger_ms=20,
            batch_size=256 * 1024,
        ) as producer:
            # Ends a transaction that a killed run has left open; of two that run, one is refused.
            producer.init_transactions()
            topics, longest_line = self._topics(servers)
            known = self._state_of(servers, topics)
            return _LogPublisher(producer, self, pace, known, longest_line).run()

    def _topics(self, servers: str) -> tuple[dict[str, str], int]:
        """The topics of the feed with their ids, and how long a line may be that they take."""
        fed = self.pipeline.fed_topics if self.source is None else [self.source]
        names = sorted(each.topic for each in fed)
        with Admin(servers) as admin:
            compacted = {"cleanup.policy": "compact"}
            create_missing_topics(admin, [NewTopic(LOGS_TOPIC, 1, configs=compacted)])
            described = admin.describe_topics(names)
            settings = admin.describe_configs(ConfigResource.topic(name) for name in names)
        sizes = [int(each["max.message.bytes"].value or 0) - OVERHEAD for each in settings.values()]
        ids = {name: str(described[name].topic_id) for name in names}
        return ids, min(LONGEST_LINE, *sizes)

    def _state_of(self, servers: str, topics: Mapping[str, str]) -> PublishedLog:
        """The state of this log; where it is new, its beginning."""
        log = self.opened()
        beginning = log.beginning(BEGINNING)
        if not self.again:
            kept = self._published(servers, topics, log.ledger.unit)
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

    def _published(
        self, servers: str, topics: Mapping[str, str], unit: str
    ) -> Iterator[PublishedLog]:
        """The logs published into these topics; a topic that was made again has none of it.

        Logs and files of rows know nothing of each other.
        """
        newest = {record.key: record.value for record in _read(servers, LOGS_TOPIC)}
        for key, value in newest.items():
            if value is None:
                continue  # somebody has deleted it: the log is a new one
            try:
                each = PublishedLog.from_bytes(value)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise LogError(
                    f"{self.path}: the topic {LOGS_TOPIC} has a record of the key {key!r} that is "
                    "not of ottla pipeline run; a record of that key without a value deletes it"
                ) from None
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
    """Publishes the parts of a log: the part that an earlier run has begun, and then new ones."""

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
        """Records since the last commit count for nobody, and hold no reader up."""
        try:
            self._producer.abort_transaction()
        except KafkaError:
            pass  # the error that is raised says more, and the next run ends the transaction


def _read(servers: str, topic: str) -> Iterator[ConsumerRecord]:
    """The committed records of the only partition of a topic."""
    where = TopicPartition(topic, 0)
    with Consumer(servers, isolation_level="read_committed") as consumer:
        consumer.assign([where])
        end = consumer.end_offsets([where])[where]
        consumer.seek(where, consumer.beginning_offsets([where])[where])
        while consumer.position(where) < end:
            yield from consumer.poll(POLL_WAIT_MS)
