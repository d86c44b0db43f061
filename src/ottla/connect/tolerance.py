"""What happens to a record that fails: tried again, left out and reported, or the end (KIP-298).

`errors.retry.timeout` says for how long an operation that may succeed later is repeated;
`errors.tolerance=all` leaves out the record that an operation failed for, with any error: one
that a transform or a converter refuses, a source cannot read, a broker does not take or a sink
cannot write. What is left out is logged and, of a sink, goes to the dead letter queue as it was. An
outage puts no record there: an error of a system, which names no record, is not tolerated.

`Redrive` sends what a dead letter queue holds back to the topics that it is from, whichever library
has written the queue: `FAMILIES` has the headers of each. They are taken off, and another counts
how often a record was sent back. Which letters were sent is kept by the offsets of the group
`connect-redrive-<queue>`, committed with the records.
"""

from __future__ import annotations

import json
import logging
import math
import traceback
import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import NewTopic
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.producer_batch import RecordFuture
from ottla.clients.producer.transaction_manager import FATAL
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.connect_config import ConnectorConfig, SinkConnectorConfig
from ottla.config.mirror_config import MirrorConfig
from ottla.connect.data import shown
from ottla.connect.worker_clients import LARGEST_LETTER
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError, RetriableError
from ottla.network.timing import Backoff
from ottla.runtime import Runtime
from ottla.runtime.io_thread import run_in_thread
from ottla.structs import INTERNAL_TOPICS, NO_UUID, TopicPartition, encode_uuid

logger = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_DELAY_MS: Final = 300
HEADER_PREFIX: Final = "__connect.errors."
FOR_LETTERS: Final = {"max.message.bytes": str(LARGEST_LETTER)}
"""A letter of the largest record that other topics take is larger, by its headers."""
SHORT_CHARACTERS: Final = 200
"""So much of a message is in a letter that was too large for its topic."""
LOOK_S: Final = 2.0
"""Letters that take longer may have lost their topic."""


class Stage(StrEnum):
    """Where a record was when it failed; the names are Kafka's."""

    TASK_POLL = "TASK_POLL"
    TASK_PUT = "TASK_PUT"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    KAFKA_CONSUME = "KAFKA_CONSUME"


OF_PRODUCER: Final = FATAL | {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}
"""What a producer is refused for whatever it sends: no record is to blame for it."""


class ToleranceExceededError(KafkaError):
    """An operation failed, and the connector's settings do not tolerate it: the task ends."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class Operation(NamedTuple):
    """What was being done, by which class, to which record; None where it was done to no record."""

    stage: Stage
    executing: str
    record: Any


class RecordFailure(NamedTuple):
    """An operation that failed for good."""

    operation: Operation
    error: BaseException
    attempts: int

    @property
    def is_of_record(self) -> bool:
        """Whether one record is to blame, and may be left out."""
        stage, _, record = self.operation
        if stage is Stage.KAFKA_PRODUCE and isinstance(self.error, KafkaError):
            return record is not None and self.error.error not in OF_PRODUCER
        return record is not None


Report = Callable[[RecordFailure], "Future[Any] | None"]


def may_succeed_later(error: BaseException) -> bool:
    """Whether the same call is worth another attempt."""
    return isinstance(error, RetriableError) or bool(getattr(error, "retriable", False))


class Tolerance:
    """The rules of one task, and the counts of what they were needed for."""

    def __init__(
        self,
        config: ConnectorConfig,
        runtime: Runtime,
        wait: Callable[[float], bool],
        reports: Sequence[Report] = (),
    ) -> None:
        """`wait` sleeps for so many seconds, or less and True if the task is to stop."""
        self._config = config
        self._clock = runtime.clock
        self._backoff = Backoff(
            FIRST_DELAY_MS, config.errors_retry_delay_max_ms, runtime.random.random
        )
        self._wait = wait
        self._reports = reports
        self.failures = 0
        """Attempts that failed."""
        self.errors = 0
        """Operations that failed for good."""
        self.retries = 0
        self.skipped = 0
        self.logged = 0
        self.last_error_ms: int | None = None

    def retry(
        self, work: Callable[[], T], error: BaseException, operation: Callable[[], Operation]
    ) -> T:
        """`work` has raised `error`: try it again, then report; SkippedRecord if it is tolerated.

        Raises ToleranceExceededError if it is not.
        """
        attempts = 1
        began_ms = self._clock.monotonic_ms()
        while may_succeed_later(error) and self._may_wait(attempts, began_ms):
            self.failures += 1
            self.retries += 1
            attempts += 1
            try:
                return work()
            except Exception as again:
                error = again
        self.report(RecordFailure(operation(), error, attempts))
        raise SkippedRecordError(operation()) from error

    def report(self, failure: RecordFailure) -> Future[Any] | None:
        """Count and report it, and raise ToleranceExceededError unless it is tolerated."""
        self.failures += 1
        self.errors += 1
        self.logged += self._config.errors_log_enable
        self.last_error_ms = self._clock.now_ms()
        futures = [report(failure) for report in self._reports]
        if not self._is_tolerated(failure):
            raise ToleranceExceededError(_sentence(failure)) from failure.error
        self.skipped += 1
        return next((future for future in futures if future is not None), None)

    def _may_wait(self, attempts: int, began_ms: int) -> bool:
        """Sleep before the next attempt, unless there is none."""
        limit_ms = self._config.errors_retry_timeout
        passed_ms = self._clock.monotonic_ms() - began_ms
        if limit_ms == 0 or (limit_ms > 0 and passed_ms >= limit_ms):
            return False
        delay_ms = self._backoff.delay_ms(attempts)
        if limit_ms > 0:
            delay_ms = min(delay_ms, limit_ms - passed_ms)
        return not self._wait(delay_ms / 1000)

    def _is_tolerated(self, failure: RecordFailure) -> bool:
        if self._config.errors_tolerance != "all":
            return False
        return failure.is_of_record or may_succeed_later(failure.error)


def _sentence(failure: RecordFailure) -> str:
    """What failed, for which record, and what would leave that record out."""
    stage, executing, record = failure.operation
    text = f"Tolerance exceeded in error handler: {stage} by {executing} failed after "
    text += f"{failure.attempts} attempts"
    if record is not None:
        text += f" for {place_of(record)}"
    text += f": {text_of(failure.error)}"
    if failure.is_of_record:
        text += "; errors.tolerance=all leaves such records out"
    return text


def place_of(record: Any) -> str:
    """Where a record is: in its topic, or in what the source reads."""
    if isinstance(record, ConsumerRecord):
        return f"{record.topic}-{record.partition} at offset {record.offset}"
    partition = getattr(record, "source_partition", None)
    if partition is None:
        return shown(record)
    return f"{partition} at {shown(record.source_offset)}"


def text_of(error: BaseException) -> str:
    """The message of an error, also of one that cannot say it."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


class SkippedRecordError(Exception):
    """A record is left out, as errors.tolerance=all says."""


# Who is told of failures.


def log_report(config: ConnectorConfig, task: str) -> Report:
    """Logs each failure; which record it was only if the settings allow that."""

    def report(failure: RecordFailure) -> None:
        stage, executing, record = failure.operation
        text = f"Error encountered in task {task}. Executing stage '{stage}' with class "
        text += f"'{executing}'"
        if config.errors_log_include_messages and record is not None:
            text += f", where record is {_shown(record)}"
        logger.error("%s.", text, exc_info=failure.error)

    return report


def _shown(record: Any) -> str:
    if isinstance(record, ConsumerRecord):
        return (
            f"{{topic='{record.topic}', partition={record.partition}, offset={record.offset}, "
            f"timestamp={record.timestamp_ms}}}"
        )
    return repr(record)


class Letter(NamedTuple):
    """A dead letter: the failure of a record, and what is done once it is in the queue."""

    failure: RecordFailure
    future: Future[None]


class DeadLetterQueue:
    """Writes records that failed to a topic: bytes, headers and time as they were.

    A letter for which the topic has no room with all that is known of the failure goes there
    without the trace. Invariant: `pending` has the letters whose end is not known; offsets wait for
    them. A topic that is deleted meanwhile is made again: letters would wait for it without end.
    """

    def __init__(
        self,
        producer: Producer,
        config: SinkConnectorConfig | MirrorConfig,
        task: tuple[str, int],
        open_admin: Callable[[], Admin] | None = None,
    ) -> None:
        """`open_admin` is for the topic; without it somebody else makes the topic."""
        self._producer = producer
        self._config = config
        self._task = task
        self._open_admin = open_admin
        self.pending: list[Letter] = []
        self.requests = 0
        self.failures = 0

    def prepare(self) -> bool:
        """Create the topic unless it is there, with room for all letters; whether it was missing.

        It has one partition.
        """
        if self._open_admin is None:
            return False
        name = self._config.errors_deadletterqueue_topic_name
        factor = self._config.errors_deadletterqueue_topic_replication_factor
        with self._open_admin() as admin:
            if name in admin.list_topics():
                return False
            try:
                admin.create_topics([NewTopic(name, 1, factor, configs=FOR_LETTERS)])
            except KafkaError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        return True

    def __call__(self, failure: RecordFailure) -> Future[None] | None:
        """Send the record of a failure; what was not a record is only logged."""
        if not isinstance(failure.operation.record, ConsumerRecord):
            return None
        letter = Letter(failure, Future())
        self.requests += 1
        self.pending = [
            each for each in self.pending if not each.future.done() or each.future.exception()
        ]
        self.pending.append(letter)
        self._send(letter, is_short=False)
        return letter.future

    def flush(self) -> None:
        """Wait until what was sent is there; raises the error of what is not."""
        if self.pending:
            self._deliver()
            pending, self.pending = self.pending, []
            for letter in pending:
                letter.future.result()

    def _deliver(self) -> None:
        """Wait for the producer; look now and then whether the topic is still there."""
        while True:
            try:
                self._producer.flush(LOOK_S if self._open_admin else None)
                return
            except KafkaTimeoutError:
                if self._open_admin is None:
                    raise
                self._make_again()

    def _make_again(self) -> None:
        name = self._config.errors_deadletterqueue_topic_name
        task = "-".join(map(str, self._task))
        try:
            if self.prepare():
                logger.warning("%s: %s was deleted: it is created again for letters", task, name)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.warning("%s: %s still waits for its letters: %s", task, name, error.message)

    def _send(self, letter: Letter, is_short: bool) -> None:
        record: ConsumerRecord = letter.failure.operation.record
        headers = [each for each in record.headers if not each[0].startswith(HEADER_PREFIX)]
        if self._config.errors_deadletterqueue_context_headers_enable:
            headers += self._context_of(letter.failure, record, is_short)
        try:
            self._producer.send(
                self._config.errors_deadletterqueue_topic_name,
                record.value,
                key=record.key,
                headers=headers,
                timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
                on_delivery=lambda _, error: self._on_delivery(letter, is_short, error),
            )
        except KafkaError as error:
            if error.error is ErrorCode.MESSAGE_TOO_LARGE and not is_short:
                self._send(letter, is_short=True)
            else:
                self._fail(letter, error)

    def _on_delivery(self, letter: Letter, is_short: bool, error: KafkaError | None) -> None:
        """In the thread of the producer, which must not wait for room to send another."""
        if error is None:
            letter.future.set_result(None)
        elif error.error is ErrorCode.MESSAGE_TOO_LARGE and not is_short:
            run_in_thread(lambda: self._send(letter, is_short=True), "dead-letter")
        else:
            self._fail(letter, error)

    def _fail(self, letter: Letter, error: KafkaError) -> None:
        self.failures += 1
        topic = self._config.errors_deadletterqueue_topic_name
        place = place_of(letter.failure.operation.record)
        text = f"the dead letter of {place} was not written to {topic}: {error.message}"
        letter.future.set_exception(KafkaError(error.error, text))

    def _context_of(
        self, failure: RecordFailure, record: ConsumerRecord, is_short: bool
    ) -> list[tuple[str, bytes]]:
        stage, executing, _ = failure.operation
        error = failure.error
        name, task = self._task
        context: dict[str, Any] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "connector.name": name,
            "task.id": task,
            "stage": stage,
            "class.name": executing,
            "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        }
        if is_short:
            context["exception.message"] = text_of(error)[:SHORT_CHARACTERS]
        else:
            context["exception.message"] = text_of(error)
            context["exception.stacktrace"] = "".join(traceback.format_exception(error))
        return [
            (HEADER_PREFIX + key, str(value).encode("utf-8", "backslashreplace"))
            for key, value in context.items()
        ]


# Letters go back to the topics that they are from.

PASSES: Final = "__connect.redriven"
PASSES_DIGITS: Final = 9
"""A number of more digits is no count that this tool has written."""
STEP_MS: Final = 500
METADATA_CHARACTERS: Final = 4096
"""So much may stand beside a committed offset (offset.metadata.max.bytes of a broker)."""
TOO_MANY_RANGES: Final = (
    "so many single letters have no room beside the offset of the group; those before them have "
    "to be sent first"
)
LONGEST_NUMBER: Final = 20
OF_ALL_TOPICS: Final = OF_PRODUCER - {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""What ends the tool: another record would be refused as well."""


def group_of(queue: str) -> str:
    """The group, and the transactional id, by which is known what was sent back."""
    return f"connect-redrive-{queue}"


class HeaderFamily(NamedTuple):
    """The headers by which one library tells where a dead letter is from, and what failed.

    `prefixes` are those of all headers that it adds, in lower case. They are taken from every
    letter if they are `reserved`, names that no application gives to headers of its own; others
    only from letters of this family. Of several headers with one name the last counts, which the
    queue has put behind those of the record; `first_counts` is for the library that puts its own
    before them.
    """

    name: str
    prefixes: tuple[str, ...]
    topic: str
    partition: str = ""
    offset: str = ""
    timestamp: str = ""
    error: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    stage: str = ""
    connector: str = ""
    reserved: bool = True
    first_counts: bool = False


SHARE_GROUPS: Final = HeaderFamily(
    "share-groups",
    ("__dlq.errors.",),
    topic="__dlq.errors.topic",
    partition="__dlq.errors.partition",
    offset="__dlq.errors.offset",
    message=("__dlq.errors.message",),
    connector="__dlq.errors.group",
)
PIPELINES: Final = HeaderFamily(
    "pipelines",
    ("source.topic", "source.partition", "source.offset", "reason", "length"),
    topic="source.topic",
    partition="source.partition",
    offset="source.offset",
    message=("reason",),
    reserved=False,
)
FAMILIES: Final = (
    HeaderFamily(
        "connect",
        (HEADER_PREFIX,),
        topic="__connect.errors.topic",
        partition="__connect.errors.partition",
        offset="__connect.errors.offset",
        error=("__connect.errors.exception.class.name",),
        message=("__connect.errors.exception.message",),
        stage="__connect.errors.stage",
        connector="__connect.errors.connector.name",
    ),
    HeaderFamily(
        "streams",
        ("__streams.errors.",),
        topic="__streams.errors.topic",
        partition="__streams.errors.partition",
        offset="__streams.errors.offset",
        error=("__streams.errors.exception",),
        message=("__streams.errors.message",),
    ),
    HeaderFamily(
        "spring",
        ("kafka_dlt-", "springdeserializerexception"),
        topic="kafka_dlt-original-topic",
        partition="kafka_dlt-original-partition",
        offset="kafka_dlt-original-offset",
        timestamp="kafka_dlt-original-timestamp",
        error=("kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-fqcn"),
        message=("kafka_dlt-exception-message", "kafka_dlt-key-exception-message"),
        connector="kafka_dlt-original-consumer-group",
    ),
    HeaderFamily(
        "spring-retry",
        ("kafka_original-", "kafka_exception-", "retry_topic-"),
        topic="kafka_original-topic",
        partition="kafka_original-partition",
        offset="kafka_original-offset",
        timestamp="kafka_original-timestamp",
        error=("kafka_exception-cause-fqcn", "kafka_exception-fqcn"),
        message=("kafka_exception-message",),
        connector="kafka_dlt-original-consumer-group",
    ),
    SHARE_GROUPS,
    HeaderFamily(
        "smallrye",
        ("dead-letter-",),
        topic="dead-letter-topic",
        partition="dead-letter-partition",
        offset="dead-letter-offset",
        error=("dead-letter-cause-class-name", "dead-letter-exception-class-name"),
        message=("dead-letter-reason",),
        reserved=False,
        first_counts=True,
    ),
    HeaderFamily(
        "x",
        ("x-original-", "x-exception-", "x-error"),
        topic="x-original-topic",
        partition="x-original-partition",
        offset="x-original-offset",
        timestamp="x-original-timestamp",
        error=("x-exception-fqcn", "x-exception-class", "x-exception-type", "x-error-type"),
        message=("x-exception-message", "x-error-message", "x-error"),
        reserved=False,
    ),
    PIPELINES,
)
"""Kafka Connect (KIP-298) and Ottla's connectors and mirrors; Kafka Streams (KIP-1034); Spring
Kafka, and its retry topics; share groups (KIP-1191); SmallRye; Spring Cloud Stream and the
middlewares of FastStream and others, which have this convention; pipelines of Ottla."""
RESERVED: Final = tuple(p for family in FAMILIES if family.reserved for p in family.prefixes)


class Left(StrEnum):
    """Why a letter stays in its queue."""

    SENT_BEFORE = "sent before"
    NOT_WANTED = "not among those that are asked for"
    NO_TOPIC = "it does not say where it is from"
    AMBIGUOUS = "headers of two libraries name two topics"
    FORBIDDEN = "it is from this queue, or from a topic that only brokers write"
    ABSENT = "its topic is not there, or may not be described"
    NO_PARTITION = "its topic has no such partition"
    PARTIAL = "it has not the whole record"
    TRIES = "it was sent back as often as --max-tries allows"
    REFUSED = "its topic does not take it"

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to do something before it can be sent."""
        return self not in (Left.SENT_BEFORE, Left.NOT_WANTED, Left.TRIES)


class DeadLetter:
    """A record of a queue, whose headers say where it is from and what failed."""

    def __init__(self, record: ConsumerRecord, families: Sequence[HeaderFamily] = FAMILIES) -> None:
        self.record = record
        last = {name.lower(): value for name, value in record.headers}
        first = {name.lower(): value for name, value in reversed(record.headers)}
        found = {each: first if each.first_counts else last for each in families}
        topics = {each: _text(headers.get(each.topic)) for each, headers in found.items()}
        naming = [each for each in families if topics[each]]
        self.is_ambiguous = len({topics[each] for each in naming}) > 1
        self.family = naming[0] if naming and not self.is_ambiguous else None
        self._headers = found[self.family] if self.family else {}
        self.topic = topics[self.family] if self.family else ""

    @property
    def partition(self) -> int | None:
        return self._number("partition")

    @property
    def offset(self) -> int | None:
        return self._number("offset")

    @property
    def timestamp_ms(self) -> int:
        """When the record was written that has failed, as far as that is known."""
        found = self._number("timestamp")
        return self.record.timestamp_ms if found is None or found < 0 else found

    @property
    def error(self) -> str:
        """The class of the error; empty where no header has it."""
        found = self._first_of(self.family.error if self.family else ())
        return found.partition(":")[0]  # some have the message in the same header

    @property
    def message(self) -> str:
        return self._first_of(self.family.message if self.family else ())

    @property
    def stage(self) -> str:
        return self._first_of([self.family.stage] if self.family else ())

    @property
    def connector(self) -> str:
        """The connector, or the group, that could not use the record."""
        return self._first_of([self.family.connector] if self.family else ())

    @property
    def tries(self) -> int:
        """How often it was sent back before."""
        passes = [value or b"" for name, value in self.record.headers if name == PASSES]
        counts = [int(value) for value in passes if value.isdigit() and len(value) <= PASSES_DIGITS]
        return max(counts, default=0)

    @property
    def is_partial(self) -> bool:
        """Whether the queue keeps less of the record than its topic had."""
        if self.family is SHARE_GROUPS:
            return self.record.key is None and self.record.value is None
        return self.family is PIPELINES and "length" in self._headers

    def headers(self, keeps_errors: bool = False) -> list[tuple[str, bytes | None]]:
        """The headers that the record had, and how often it was sent back."""
        own = self.family.prefixes if self.family else ()
        dropped = () if keeps_errors else (*RESERVED, *own)
        kept = [
            (name, value)
            for name, value in self.record.headers
            if not name.lower().startswith(dropped) and name != PASSES
        ]
        return [*kept, (PASSES, str(self.tries + 1).encode())]

    def _first_of(self, names: Sequence[str]) -> str:
        return next((text for name in names if (text := _text(self._headers.get(name)))), "")

    def _number(self, field: str) -> int | None:
        name = getattr(self.family, field) if self.family else ""
        return _number_of(self._headers.get(name) or b"")


def _text(value: bytes | None) -> str:
    """What a header says; nothing where its bytes are no text."""
    try:
        return (value or b"").decode()
    except ValueError:
        return ""


def _number_of(value: bytes) -> int | None:
    """A number as text, or as the 4 or 8 bytes that Java has for it.

    Those of a partition, an offset or a time that exists are not all digits of ASCII.
    """
    if value.removeprefix(b"-").isdigit() and len(value) <= LONGEST_NUMBER:
        return int(value)
    return int.from_bytes(value, "big", signed=True) if len(value) in (4, 8) else None


def target_of(record: ConsumerRecord) -> str | None:
    """The topic that a dead letter is from, if its headers say so; no internal topic."""
    topic = DeadLetter(record).topic
    return None if topic in INTERNAL_TOPICS else topic or None


def headers_of(record: ConsumerRecord) -> list[tuple[str, bytes | None]]:
    """The headers that the record of a dead letter had, and how often it was sent back."""
    return DeadLetter(record).headers()


class SentOffsets:
    """Which letters of one partition were sent back: ranges of offsets, in order and apart.

    A group remembers them: its committed offset is the first letter that was not sent, and beside
    it stand the ranges behind that one, and the id of the topic, since another topic of this name
    begins with letters that nobody has sent.
    """

    def __init__(self, begin: int, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self._begin = begin
        self._ranges = list(ranges)

    @classmethod
    def read(
        cls, committed: OffsetAndMetadata | None, begin: int, end: int, topic_id: str
    ) -> SentOffsets:
        """What the group has committed for the partition whose letters begin and end there."""
        found = cls(begin)
        if committed is None or committed.offset > end:
            return found
        known_id, is_ours, packed = committed.metadata.partition(":")
        if is_ours and known_id != topic_id:
            return found
        found.add(begin, committed.offset)
        place = committed.offset
        steps = json.loads(zlib.decompress(b64decode(packed))) if packed else []
        for gap, length in zip(steps[::2], steps[1::2], strict=True):
            found.add(place + gap, place + gap + length)
            place += gap + length
        return found

    def copy(self) -> SentOffsets:
        return SentOffsets(self._begin, self._ranges)

    @property
    def first_unsent(self) -> int:
        """Where the first letter is, or will be, that was not sent."""
        start, end = self._ranges[0] if self._ranges else (self._begin, self._begin)
        return max(self._begin, end) if start <= self._begin else self._begin

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._ranges, (offset, math.inf)) - 1
        return at >= 0 and offset < self._ranges[at][1]

    def add(self, start: int, end: int) -> None:
        """Count the letters from `start` to before `end` as sent."""
        if start >= end:
            return
        at = bisect_right(self._ranges, (start, math.inf))
        if at and self._ranges[at - 1][1] >= start:
            at -= 1
            start = self._ranges[at][0]
        after = at
        while after < len(self._ranges) and self._ranges[after][0] <= end:
            end = max(end, self._ranges[after][1])
            after += 1
        self._ranges[at:after] = [(start, end)]

    def to_commit(self, topic_id: str) -> OffsetAndMetadata:
        """What the group shall remember; KafkaError if that is too much for it."""
        place = first = self.first_unsent
        steps = []
        for start, end in self._ranges:
            if start > first:
                steps += [start - place, end - start]
                place = end
        text = json.dumps(steps, separators=(",", ":")).encode()
        packed = b64encode(zlib.compress(text, 9)).decode() if steps else ""
        metadata = f"{topic_id}:{packed}"
        if len(metadata) > METADATA_CHARACTERS:
            raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, TOO_MANY_RANGES)
        return OffsetAndMetadata(first, metadata)


class Choice(NamedTuple):
    """Which letters are sent, where to, and what they keep."""

    is_wanted: Callable[[DeadLetter], bool] = lambda letter: True
    to: str | None = None
    """The topic of all of them, wherever they are from."""
    otherwise: str | None = None
    """The topic of those that do not say where they are from."""
    families: Sequence[HeaderFamily] = FAMILIES
    again: bool = False
    max_tries: int | None = None
    at_most: int | None = None
    keeps_headers: bool = False
    keeps_timestamp: bool = False
    keeps_partition: bool = False


class Departure(NamedTuple):
    """A letter that is sent to a topic; `after` is the end of the letter before it."""

    letter: DeadLetter
    topic: str
    after: int


Tell = Callable[[DeadLetter, "str | Left", str], object]
"""Hears of each letter the topic that it goes to, or why it is left and its topic's error."""


class Redrive:
    """Sends back the letters that a queue holds now, and remembers which.

    Each step is a transaction of the records and of what the group remembers, so that a letter is
    sent once however the tool ends; another run for this queue ends this one. A letter that its
    topic does not take is left, and the others go.
    """

    def __init__(self, consumer: Consumer, queue: str, choice: Choice, tell: Tell) -> None:
        """The consumer has the group `group_of(queue)`, and reads only what is committed."""
        self._consumer = consumer
        self._queue = queue
        self._choice = choice
        self._tell = tell
        self._taken = 0
        numbers = consumer.partitions_for(queue)
        self._partitions = [TopicPartition(queue, each.partition) for each in numbers]
        self._topics = consumer.list_topics()
        self._topic_id = ""
        self._sent: dict[TopicPartition, SentOffsets] = {}
        self._after: dict[TopicPartition, int] = {}

    def preview(self) -> None:
        """Tell what `send` would do."""
        for step in self._steps():
            for letter, topic, _ in step:
                self._tell(letter, topic, "")

    def send(self, producer: Producer) -> None:
        """Send them; the producer has a transactional id."""
        producer.init_transactions()  # a run before this one ends here, and leaves nothing open
        for step in self._steps():
            self._deliver(producer, step)

    def _steps(self) -> Iterator[list[Departure]]:
        """The letters that go, as many at a time as one poll returns."""
        ends = self._begin()
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            step = []
            for record in self._consumer.poll(STEP_MS):
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    step += self._judged(DeadLetter(record, self._choice.families))
            yield step
            if self._is_full:
                return

    def _begin(self) -> dict[TopicPartition, int]:
        """Go to the first letters that were not sent; the ends of the partitions."""
        consumer = self._consumer
        consumer.assign(self._partitions)
        begins = consumer.beginning_offsets(self._partitions)
        ends = consumer.end_offsets(self._partitions)
        committed = consumer.committed(self._partitions)
        topic_id = consumer.topic_id(self._queue) or NO_UUID
        self._topic_id = "" if topic_id == NO_UUID else encode_uuid(topic_id)
        for place, begin in begins.items():
            sent = SentOffsets.read(committed.get(place), begin, ends[place], self._topic_id)
            self._sent[place] = sent
            self._after[place] = begin if self._choice.again else sent.first_unsent
            consumer.seek(place, self._after[place])
        return ends

    @property
    def _is_full(self) -> bool:
        return self._taken == self._choice.at_most

    def _judged(self, letter: DeadLetter) -> list[Departure]:
        """The letter, if it goes; why another stays is told."""
        place = TopicPartition(letter.record.topic, letter.record.partition)
        after, self._after[place] = self._after[place], letter.record.offset + 1
        if self._is_full:
            return []
        if not self._choice.again and letter.record.offset in self._sent[place]:
            self._tell(letter, Left.SENT_BEFORE, "")
            return []
        topic = self._choice.to or letter.topic or self._choice.otherwise or ""
        reason = self._reason_to_leave(letter, topic)
        if reason is not None:
            self._tell(letter, reason, "")
            return []
        self._taken += 1
        return [Departure(letter, topic, after)]

    def _reason_to_leave(self, letter: DeadLetter, topic: str) -> Left | None:
        choice = self._choice
        reasons = {
            Left.NOT_WANTED: not choice.is_wanted(letter),
            Left.TRIES: choice.max_tries is not None and letter.tries >= choice.max_tries,
            Left.AMBIGUOUS: letter.is_ambiguous and choice.to is None,
            Left.NO_TOPIC: not topic,
            Left.PARTIAL: letter.is_partial,
            Left.FORBIDDEN: topic in INTERNAL_TOPICS or topic == self._queue,
            Left.ABSENT: topic not in self._topics,
            Left.NO_PARTITION: choice.keeps_partition
            and not 0 <= (letter.partition or 0) < len(self._topics.get(topic, ())),
        }
        return next((reason for reason, is_so in reasons.items() if is_so), None)

    def _deliver(self, producer: Producer, step: list[Departure]) -> None:
        """Send a step, in halves where a letter of it is not taken."""
        if not step:
            return
        error = self._transact(producer, step)
        if error is not None and len(step) > 1:
            middle = len(step) // 2
            self._deliver(producer, step[:middle])
            self._deliver(producer, step[middle:])
            return
        for letter, topic, _ in step:
            if error is None:
                self._tell(letter, topic, "")
            else:
                self._tell(letter, Left.REFUSED, f"{topic}: {error.message}")

    def _transact(self, producer: Producer, step: list[Departure]) -> KafkaError | None:
        """Send all of them and remember it, or neither; the error if a letter is to blame."""
        sent = self._sent_with(step)
        offsets = {place: each.to_commit(self._topic_id) for place, each in sent.items()}
        try:
            with producer.transaction():
                self._send_all(producer, step)
                producer.send_offsets_to_transaction(offsets, group_of(self._queue))
        except NotTakenError as error:
            return error.cause
        self._sent |= sent
        return None

    def _sent_with(self, step: list[Departure]) -> dict[TopicPartition, SentOffsets]:
        """What is sent of the partitions of a step once that has gone."""
        found: dict[TopicPartition, SentOffsets] = {}
        for letter, _, after in step:
            place = TopicPartition(letter.record.topic, letter.record.partition)
            found.setdefault(place, self._sent[place].copy()).add(after, letter.record.offset + 1)
        return found

    def _send_all(self, producer: Producer, step: list[Departure]) -> None:
        try:
            futures = [self._send(producer, letter, topic) for letter, topic, _ in step]
            producer.flush()
            for future in futures:
                future.result()
        except KafkaError as error:
            if may_succeed_later(error) or error.error in OF_ALL_TOPICS:
                raise
            raise NotTakenError(error) from error

    def _send(self, producer: Producer, letter: DeadLetter, topic: str) -> RecordFuture:
        choice, record = self._choice, letter.record
        has_time = choice.keeps_timestamp and letter.timestamp_ms >= 0
        return producer.send(
            topic,
            record.value,
            key=record.key,
            headers=letter.headers(choice.keeps_headers),
            partition=letter.partition if choice.keeps_partition else None,
            timestamp_ms=letter.timestamp_ms if has_time else None,
        )


class NotTakenError(Exception):
    """A topic refuses a record whatever else is sent."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(cause.message)
        self.cause = cause
