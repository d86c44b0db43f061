"""What happens to a record that fails: tried again, left out and reported, or the end (KIP-298).

`errors.retry.timeout` says for how long an operation that may succeed later is repeated;
`errors.tolerance=all` leaves out the record that an operation failed for, with any error: one
that a transform or a converter refuses, a source cannot read, a broker does not take or a sink
cannot write. What is left out is logged and, of a sink, goes to the dead letter queue as it was. An
outage puts no record there: an error of a system, which names no record, is not tolerated.

`redrive` sends what a dead letter queue holds back to the topics that it is from: each record to
the topic in its header `__connect.errors.topic`, without the headers that say what failed; another
counts how often it was sent back. How far this has got is the offset of the group
`connect-redrive-<queue>`: a record is sent once, or again after a crash before the commit.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import NewTopic
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transaction_manager import FATAL
from ottla.config.connect_config import ConnectorConfig, SinkConnectorConfig
from ottla.config.mirror_config import MirrorConfig
from ottla.connect.data import shown
from ottla.errors import ErrorCode, KafkaError, RetriableError
from ottla.network.timing import Backoff
from ottla.runtime import Runtime
from ottla.runtime.io_thread import run_in_thread
from ottla.structs import INTERNAL_TOPICS, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_DELAY_MS: Final = 300
HEADER_PREFIX: Final = "__connect.errors."
SHORT_CHARACTERS: Final = 200
"""So much of a message is in a letter that was too large for its topic."""


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
    them.
    """

    def __init__(
        self,
        producer: Producer,
        config: SinkConnectorConfig | MirrorConfig,
        task: tuple[str, int],
    ) -> None:
        self._producer = producer
        self._config = config
        self._task = task
        self.pending: list[Letter] = []
        self.requests = 0
        self.failures = 0

    def prepare(self, admin: Admin) -> None:
        """Create the topic, with one partition, unless it is there."""
        name = self._config.errors_deadletterqueue_topic_name
        if name in admin.list_topics():
            return
        factor = self._config.errors_deadletterqueue_topic_replication_factor
        try:
            admin.create_topics([NewTopic(name, 1, factor)])
        except KafkaError as error:
            if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

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
            self._producer.flush()
            pending, self.pending = self.pending, []
            for letter in pending:
                letter.future.result()

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


PASSES: Final = "__connect.redriven"
PASSES_DIGITS: Final = 9
"""A number of more digits is no count that this tool has written."""
STEP_MS: Final = 500


class Redriven(NamedTuple):
    """How many records were sent back, and how many partitions stopped at one without a topic."""

    sent: int
    unknown: int


def group_of(queue: str) -> str:
    """The group whose offset says what was sent back."""
    return f"connect-redrive-{queue}"


def redrive(
    consumer: Consumer,
    producer: Producer,
    queue: str,
    topic: str | None = None,
    on_record: Callable[[ConsumerRecord, str], object] = lambda record, topic: None,
) -> Redriven:
    """Send back all that the queue holds now and that was not sent before.

    `topic` is for records without the header; with none, such a record stops its partition.
    Offsets are committed once all that was sent has arrived.
    """
    partitions = [TopicPartition(queue, e.partition) for e in consumer.partitions_for(queue)]
    consumer.assign(partitions)
    committed = consumer.committed(partitions)
    for place in partitions:
        if place in committed:
            consumer.seek(place, committed[place])
    ends = {place: end for place, end in consumer.end_offsets(partitions).items() if end}
    done = {place: consumer.position(place) for place in ends}
    sent = unknown = 0
    while any(consumer.position(place) < end for place, end in ends.items()):
        for record in consumer.poll(STEP_MS):
            place = TopicPartition(record.topic, record.partition)
            if record.offset >= ends.get(place, 0):
                continue  # it has come since, or a letter before it waits
            target = target_of(record) or topic
            if target is None:
                unknown += 1
                del ends[place]
                continue
            on_record(record, target)
            producer.send(target, record.value, key=record.key, headers=headers_of(record))
            done[place] = record.offset + 1
            sent += 1
    producer.flush()
    if done:
        consumer.commit(done)
    return Redriven(sent, unknown)


def target_of(record: ConsumerRecord) -> str | None:
    """The topic that a dead letter is from, if its headers say so; no internal topic.

    The last such header is that of the queue. Others may be of the author of the record, who would
    choose where the operator's rights write.
    """
    name = f"{HEADER_PREFIX}topic"
    found = [value for key, value in record.headers if key == name and value is not None]
    try:
        topic = found[-1].decode() if found else None
    except ValueError:
        return None
    return None if topic in INTERNAL_TOPICS else topic


def headers_of(record: ConsumerRecord) -> list[tuple[str, bytes | None]]:
    """The headers that the record had, and how often it was sent back."""
    kept = [(n, v) for n, v in record.headers if not n.startswith(HEADER_PREFIX) and n != PASSES]
    passes = [value or b"" for name, value in record.headers if name == PASSES]
    counts = [int(value) for value in passes if value.isdigit() and len(value) <= PASSES_DIGITS]
    return [*kept, (PASSES, str(max(counts, default=0) + 1).encode())]
