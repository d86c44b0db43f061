"""Retries, tolerance and reports of failures (KIP-298)."""

from __future__ import annotations

import logging

import pytest

from ottla.clients.consumer.consumer_record import ConsumerRecord, TimestampType
from ottla.config.connect_config import SinkConnectorConfig
from ottla.connect.connector import TryAgainError
from ottla.connect.tolerance import (
    Operation,
    RecordFailure,
    SkippedRecordError,
    Stage,
    Tolerance,
    ToleranceExceededError,
    log_report,
)
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

        return self.tolerance.retry(work, error, lambda: Operation(stage, "Worker", RECORD))


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
