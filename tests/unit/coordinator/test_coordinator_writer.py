"""What became of a write: told to the client once, and to the memory when it is known."""

from __future__ import annotations

import pytest

from ottla.coordinator.coordinator_writer import SETTLE_MS, CoordinatorWriter
from ottla.errors import ErrorCode
from ottla.structs import NO_OFFSET
from ottla.testing import mock_runtime

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class Log:
    """Answers each write at once; what is committed, and who leads, is set."""

    def __init__(self, error=ErrorCode.NONE, offset=5):
        self.answer = error, offset
        self.committed_end = 0
        self.leads = True

    def append(self, partition, batch, on_done):
        on_done(*self.answer)

    def is_committed(self, partition, offset):
        return offset < self.committed_end

    def is_leader(self, partition):
        return self.leads


class Outcome:
    """What was told of one write, in order."""

    def __init__(self, log):
        self.runtime = mock_runtime()
        self.told = []
        writer = CoordinatorWriter(self.runtime, log)
        writer.append(
            3,
            b"batch",
            lambda offset: self.told.append(("settled", offset)),
            lambda error: self.told.append(("answer", error)),
        )

    def after(self, ms):
        self.runtime.advance(ms)
        return self.told


@pytest.mark.parametrize(
    ("error", "offset", "settled"),
    [
        (ErrorCode.NONE, 5, 5),
        (ErrorCode.NONE, 0, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 5, 5),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NO_OFFSET, NO_OFFSET),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET, NO_OFFSET),
        (TIMED_OUT, NO_OFFSET, NO_OFFSET),
    ],
)
@pytest.mark.parametrize("leads", [True, False])
def test_outcome_that_is_known_is_settled_before_the_answer(error, offset, settled, leads):
    """At once, whoever leads by then and whatever is committed, and not a second time."""
    log = Log(error, offset)
    log.leads = leads
    outcome = Outcome(log)
    known = [("settled", settled), ("answer", error)]

    assert outcome.told == known
    log.committed_end = 9
    assert outcome.after(10 * SETTLE_MS) == known


def test_batch_that_was_in_time_after_all_is_settled_at_once():
    """Its replicas had it between the end of the time and the answer."""
    log = Log(TIMED_OUT)
    log.committed_end = 6

    assert Outcome(log).after(10 * SETTLE_MS) == [("settled", 5), ("answer", TIMED_OUT)]


def test_batch_that_is_late_is_settled_when_its_replicas_have_it():
    """The client has its answer in time, and not again."""
    log = Log(TIMED_OUT)
    outcome = Outcome(log)
    log.committed_end = 5
    before = list(outcome.after(10 * SETTLE_MS))
    log.committed_end = 6

    assert before == [("answer", TIMED_OUT)]
    assert outcome.after(10 * SETTLE_MS) == [("answer", TIMED_OUT), ("settled", 5)]


def test_batch_that_is_late_is_left_to_the_next_leader():
    """What this broker has of the partition says nothing any more."""
    log = Log(TIMED_OUT)
    outcome = Outcome(log)
    log.leads, log.committed_end = False, 6

    assert outcome.after(10 * SETTLE_MS) == [("answer", TIMED_OUT)]
    assert outcome.runtime.scheduler.loop.next_due_ms() is None
