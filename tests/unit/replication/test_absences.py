"""A leader that did not run for a while does not say that records are lost."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.absences import ABSENT_MS, CLOCK_READ_MS, DOUBT_MS, Absences
from ottla.testing import MockRuntime, mock_runtime

GAP = KafkaError.of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "producer 1 sent sequence 7 after 2")


@pytest.fixture
def runtime() -> MockRuntime:
    return mock_runtime()


@pytest.fixture
def absences(runtime) -> Absences:
    absences = Absences(runtime.clock)
    absences.watch(runtime.scheduler)
    return absences


def is_doubted(absences: Absences) -> bool:
    return absences.in_doubt(GAP).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_gap_is_told_by_a_leader_that_has_run_all_the_time(runtime, absences):
    """However long that was, and between two looks at the clock."""
    for _ in range(3):
        runtime.advance(10 * ABSENT_MS + CLOCK_READ_MS - 1)
        assert absences.in_doubt(GAP) is GAP


@pytest.mark.parametrize("away_ms", [ABSENT_MS + CLOCK_READ_MS, 13_000, 3_600_000])
@pytest.mark.parametrize("are_timers_first", [False, True])
def test_gap_is_doubted_after_an_absence(runtime, absences, away_ms, are_timers_first):
    """Whichever comes first in the turn that follows; another broker may lead by then."""
    runtime.clock.advance(away_ms)
    if are_timers_first:
        runtime.advance(0)

    doubted = absences.in_doubt(GAP)

    assert doubted.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert doubted.error.retriable
    assert doubted.message.startswith(GAP.message)


def test_doubt_ends_where_the_broker_still_leads(runtime, absences):
    """A record that is lost is not asked for again for ever."""
    runtime.clock.advance(13_000)
    runtime.advance(DOUBT_MS - 1)
    before = is_doubted(absences)
    runtime.advance(CLOCK_READ_MS + 2)

    assert before
    assert not is_doubted(absences)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CORRUPT_MESSAGE])
def test_other_errors_are_never_doubted(runtime, absences, error):
    """No later leader makes a batch whole, or a producer that was fenced the newest one."""
    refusal = KafkaError.of(error, "no")
    runtime.clock.advance(13_000)

    assert absences.in_doubt(refusal) is refusal


def test_broker_that_is_alone_doubts_nothing(runtime):
    """There is no other leader to go to."""
    absences = Absences(runtime.clock)
    runtime.clock.advance(13_000)

    assert absences.in_doubt(GAP) is GAP
