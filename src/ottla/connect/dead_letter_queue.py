"""The queue of dead letters: records that failed, with the reason in their headers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import NewTopic
from ottla.clients.dead_letter_headers import FailedStep, failure_headers, without_failure
from ottla.clients.producer.producer import Producer
from ottla.config.connect_config import ConnectorConfig, SinkConnectorConfig
from ottla.config.mirror_config import MirrorConfig
from ottla.connect.tolerance import FOR_LETTERS, RecordFailure, Report, place_of
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.io_thread import run_in_thread

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""Letters that take longer may have lost their topic."""


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
    """A dead letter: the failure of a record, and the call once it is in the queue."""

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
        hide: Callable[[str], str] = str,
    ) -> None:
        """`open_admin` is for the topic; without it somebody else makes the topic.

        `hide` takes secrets out of what errors say.
        """
        self._producer = producer
        self._config = config
        self._task = task
        self._open_admin = open_admin
        self._hide = hide
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
        """Send the record of a failure; a failure without a record is only logged."""
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
        """Wait until all letters are there; raises the error of one that is not."""
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
        headers: list[tuple[str, bytes | None]] = without_failure(record.headers)
        if self._config.errors_deadletterqueue_context_headers_enable:
            stage, executing, _ = letter.failure.operation
            step = FailedStep(*self._task, stage, executing)
            headers += failure_headers(
                record, step, letter.failure.error, is_short=is_short, hide=self._hide
            )
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
        """Runs in the thread of the producer, which must not wait for room to send another."""
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
