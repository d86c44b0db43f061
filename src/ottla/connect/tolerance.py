"""A record that fails is tried again, left out and reported, or the end (KIP-298).

`errors.retry.timeout` says for how long an operation that may succeed later is repeated;
`errors.tolerance=all` leaves out the record that an operation failed for, with any error: one
that a transform or a converter refuses, a source cannot read, a broker does not take or a sink
cannot write. What is left out is logged and, of a sink, goes to the dead letter queue as it was. An
outage puts no record there: an error of a system, which names no record, is not tolerated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from ottla.clients.dead_letter_headers import LARGEST_LETTER, text_of
from ottla.clients.producer.transaction_manager import FATAL
from ottla.config.connect_config import ConnectorConfig
from ottla.connect.data import shown
from ottla.errors import ErrorCode, KafkaError, RetriableError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime import Runtime
from ottla.runtime.timing import Backoff

T = TypeVar("T")
FIRST_DELAY_MS: Final = 300
FOR_LETTERS: Final = {"max.message.bytes": str(LARGEST_LETTER)}
"""A letter of the largest record that other topics take is larger, by its headers."""


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
    ErrorCode.TRANSACTION_ABORTABLE,
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

    @property
    def is_of_place(self) -> bool:
        """Whether the partition that was chosen for a record is gone: it would go to another."""
        stage, _, record = self.operation
        is_gone = getattr(self.error, "error", None) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        chosen = getattr(record, "partition", None) is None
        return is_gone and chosen and stage is Stage.KAFKA_PRODUCE


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

    def pause_s(self, attempts: int) -> float:
        """Count a failed attempt that is repeated without end; how long to wait before the next."""
        self.failures += 1
        self.retries += 1
        return self._backoff.delay_ms(attempts) / 1000

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
        if self._config.errors_tolerance != "all" or failure.is_of_place:
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
    if failure.is_of_record and not failure.is_of_place:
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


class SkippedRecordError(Exception):
    """A record is left out, as errors.tolerance=all says."""
