"""Retries, tolerance and reports of failures (KIP-298)."""

from __future__ import annotations

import logging
from contextlib import nullcontext

import pytest

from ottla.config.connect_config import SinkConnectorConfig
from ottla.connect.connector import TryAgainError
from ottla.connect.data import DataError, SourceRecord
from ottla.connect.dead_letter_queue import DeadLetterQueue, log_report
from ottla.connect.tolerance import (
    Operation,
    RecordFailure,
    SkippedRecordError,
    Stage,
    Tolerance,
    ToleranceExceededError,
)
from ottla.connect.worker_task import TaskId
from ottla.errors import ErrorCode, KafkaError
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.testing.runtime import mock_runtime

RECORD = ConsumerRecord("t", 1, 5, 1000, TimestampType.CREATE_TIME, b"k", b"v")


class World:
    """A tolerance on a clock that stands still but for its own waits."""

    def __init__(self, **settings):
        self.runtime = mock_runtime()
        self.waits = []
        self.failures = []
        config = SinkConnectorConfig(name="c", connector_class="C", topics="t", **settings)
        self.tolerance = Tolerance(config, self.runtime, self.wait, [self.failures.append])

    def wait(self, seconds):
        self.waits.append(seconds)
        self.runtime.advance(round(seconds * 1000))
        return False

    def run(self, stage, error, outcomes=()):
        """Fail with `error`, then have the attempts that follow end as said."""
        left = list(outcomes)

        def work():
            outcome = left.pop(0) if left else error
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        record = None if stage is Stage.TASK_POLL else RECORD
        return self.tolerance.retry(work, error, lambda: Operation(stage, "Worker", record))


def test_nothing_is_tolerated_by_default():
    """The task ends, with stage, class and cause in the sentence."""
    world = World()

    with pytest.raises(ToleranceExceededError, match="VALUE_CONVERTER by Worker failed after 1"):
        world.run(Stage.VALUE_CONVERTER, ValueError("bad"))
    assert len(world.failures) == 1


@pytest.mark.parametrize("stage", [Stage.TRANSFORMATION, Stage.KEY_CONVERTER])
def test_errors_of_records_are_left_out(stage):
    """With errors.tolerance=all."""
    world = World(errors_tolerance="all")

    with pytest.raises(SkippedRecordError):
        world.run(stage, ValueError("bad"))
    assert (world.tolerance.skipped, world.tolerance.failures) == (1, 1)


def test_errors_of_systems_are_not_left_out():
    """What failed in a poll is no record: only what may succeed later is passed over."""
    world = World(errors_tolerance="all")

    with pytest.raises(ToleranceExceededError):
        world.run(Stage.TASK_POLL, ValueError("bug"))
    with pytest.raises(SkippedRecordError):
        world.run(Stage.TASK_POLL, TryAgainError("down"))


class UnspeakableError(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise RuntimeError("no words")


OF_ONE_RECORD = [
    ValueError("bad"),
    UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "surrogates not allowed"),
    OverflowError("too large"),
    RecursionError("too deep"),
    DataError("must be text"),
    UnspeakableError(),
]


@pytest.mark.parametrize("error", OF_ONE_RECORD, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", [s for s in Stage if s is not Stage.TASK_POLL])
def test_error_is_told_by_its_place(stage, error):
    """Any error of one record names it, with the setting that leaves it out, or leaves it out."""
    failure = RecordFailure(Operation(stage, "Worker", RECORD), error, 1)
    with pytest.raises(ToleranceExceededError) as caught:
        World().tolerance.report(failure)
    assert "for t-1 at offset 5: " in caught.value.message
    assert caught.value.message.endswith("errors.tolerance=all leaves such records out")

    tolerant = World(errors_tolerance="all")
    tolerant.tolerance.report(failure)
    assert tolerant.failures == [failure]


@pytest.mark.parametrize(
    ("code", "is_skipped"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, True),
        (ErrorCode.INVALID_TIMESTAMP, True),
        (ErrorCode.INVALID_RECORD, True),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, True),
        (ErrorCode.PRODUCER_FENCED, False),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_broker_refuses_a_record_or_the_producer(code, is_skipped):
    """What would be refused for the next record as well leaves none out."""
    world = World(errors_tolerance="all")
    record = SourceRecord(topic="t", value="v", source_partition={"f": "x"}, source_offset={"n": 7})
    failure = RecordFailure(
        Operation(Stage.KAFKA_PRODUCE, "Producer", record), KafkaError(code, "refused"), 1
    )

    with nullcontext() if is_skipped else pytest.raises(ToleranceExceededError, match="'n': 7"):
        world.tolerance.report(failure)
    assert world.tolerance.skipped == is_skipped


class Refusals:
    """A producer whose topic has room for so many bytes, which the client or the broker says."""

    def __init__(self, room, is_told_by_broker):
        self.room = room
        self.is_told_by_broker = is_told_by_broker
        self.letters = []

    def send(self, topic, value, *, key, headers, timestamp_ms, on_delivery):
        size = len(value or b"") + sum(len(content) for _, content in headers)
        if size <= self.room:
            self.letters.append(dict(headers))
            on_delivery(None, None)
            return
        error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        if not self.is_told_by_broker:
            raise error
        on_delivery(None, error)

    def flush(self, timeout=None):
        pass


@pytest.mark.parametrize("is_told_by_broker", [False, True])
@pytest.mark.parametrize(("room", "is_written"), [(5000, True), (700, True), (10, False)])
def test_letter_that_is_too_large_is_shortened(room, is_written, is_told_by_broker):
    """Without room for the record itself the task ends, with the place of that record."""
    config = SinkConnectorConfig(
        name="c",
        connector_class="C",
        topics="t",
        errors_deadletterqueue_topic_name="dead",
        errors_deadletterqueue_context_headers_enable=True,
    )
    producer = Refusals(room, is_told_by_broker)
    queue = DeadLetterQueue(producer, config, TaskId("c", 0))
    try:
        raise ValueError("cut \ud83d " + "x" * 1000)
    except ValueError as error:
        queue(RecordFailure(Operation(Stage.TASK_PUT, "Sink", RECORD), error, 1))

    if not is_written:
        with pytest.raises(KafkaError, match="dead letter of t-1 at offset 5 was not written to d"):
            queue.flush()
        return
    queue.flush()
    (letter,) = producer.letters
    assert letter["__connect.errors.exception.message"].startswith(b"cut \\ud83d xxx")
    assert ("__connect.errors.exception.stacktrace" in letter) == (room == 5000)


def test_attempts_go_on_until_the_time_is_over():
    """Pauses double from 300 ms, spread by a fifth."""
    world = World(errors_retry_timeout=10_000, errors_tolerance="all")

    assert world.run(Stage.TASK_POLL, TryAgainError("down"), [TryAgainError("down"), 7]) == 7
    first, second = world.waits
    assert 0.24 <= first <= 0.36
    assert 0.48 <= second <= 0.72
    with pytest.raises(SkippedRecordError):
        world.run(Stage.TASK_POLL, TryAgainError("down"))
    attempts = world.failures[0].attempts
    assert attempts > 3
    tolerance = world.tolerance  # with the two attempts before the 7
    assert (tolerance.failures, tolerance.retries) == (2 + attempts, 1 + attempts)
    assert tolerance.errors == 1


def test_what_cannot_succeed_is_not_repeated():
    """A wrong value stays wrong."""
    world = World(errors_retry_timeout=10_000, errors_tolerance="all")

    with pytest.raises(SkippedRecordError):
        world.run(Stage.VALUE_CONVERTER, ValueError("bad"))
    assert world.waits == []


def test_log_says_which_record_only_if_it_may(caplog):
    """errors.log.include.messages adds the place of the record."""
    failure = RecordFailure(Operation(Stage.TASK_PUT, "Sink", RECORD), ValueError("bad"), 1)
    for is_shown in (False, True):
        config = SinkConnectorConfig(
            name="c", connector_class="C", topics="t", errors_log_include_messages=is_shown
        )
        with caplog.at_level(logging.ERROR):
            log_report(config, "c-0")(failure)

    first, second = (record.getMessage() for record in caplog.records)
    assert "Executing stage 'TASK_PUT' with class 'Sink'" in first
    assert "offset=5" not in first
    assert "offset=5" in second


@pytest.mark.parametrize(("partition", "is_left_out"), [(None, False), (7, True)])
def test_record_whose_partition_is_gone_is_left_out_only_if_it_names_it(partition, is_left_out):
    """Another partition is chosen for any other record, once it is sent again."""
    world = World(errors_tolerance="all")
    record = SourceRecord(topic="t", partition=partition)
    error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition t-7")
    failure = RecordFailure(Operation(Stage.KAFKA_PRODUCE, "Producer", record), error, 1)

    with nullcontext() if is_left_out else pytest.raises(ToleranceExceededError):
        world.tolerance.report(failure)
