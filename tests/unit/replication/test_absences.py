"""A leader that did not run for a while does not say that records are lost."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.absences import (
    ABSENT_MS,
    CLOCK_READ_MS,
    DOUBT_MS,
    HEARING_MS,
    Absences,
)
from ottla.testing import MockRuntime, mock_runtime

SESSION_MS = 18_000
GAP = KafkaError.of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "producer 1 sent sequence 7 after 2")


@pytest.fixture
def runtime() -> MockRuntime:
    return mock_runtime()


@pytest.fixture
def absences(runtime) -> Absences:
    absences = Absences(runtime.clock, SESSION_MS)
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
    absences = Absences(runtime.clock, SESSION_MS)
    runtime.clock.advance(13_000)

    assert absences.in_doubt(GAP) is GAP


@pytest.mark.parametrize("are_timers_first", [False, True])
@pytest.mark.parametrize(
    ("session_ms", "away_ms", "is_succeeded"),
    [
        (18_000, 12_001 + CLOCK_READ_MS, True),
        (18_000, 3_600_000, True),
        (18_000, 11_000, False),
        (2_000, 1_400 + CLOCK_READ_MS, True),
        (500, ABSENT_MS - CLOCK_READ_MS, False),
        (500, ABSENT_MS + CLOCK_READ_MS, True),
    ],
)
def test_successor_is_expected_where_the_session_may_have_ended(
    runtime, session_ms, away_ms, is_succeeded, are_timers_first
):
    """Of what was led before, until the broker has had time to hear what it leads."""
    absences = Absences(runtime.clock, session_ms)
    absences.watch(runtime.scheduler)
    runtime.advance(10_000)
    before_ms = runtime.clock.monotonic_ms()
    runtime.clock.advance(away_ms)
    if are_timers_first:
        runtime.advance(0)
    found = absences.may_be_succeeded(before_ms)
    now_ms = runtime.clock.monotonic_ms()

    assert found is is_succeeded
    assert not absences.may_be_succeeded(now_ms)
    runtime.advance(HEARING_MS - 1)
    assert absences.may_be_succeeded(before_ms) is is_succeeded
    runtime.advance(2)
    assert not absences.may_be_succeeded(before_ms)


@pytest.mark.parametrize(
    ("answer", "is_succeeded"),
    [(True, False), (False, True), (KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "ended"), True)],
)
def test_nobody_has_succeeded_a_broker_whose_session_goes_on(
    runtime, absences, answer, is_succeeded
):
    """The registry is asked after each absence; where it does not answer, the doubt remains."""
    asked: list[int] = []

    async def has_session() -> bool:
        asked.append(runtime.clock.monotonic_ms())
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    absences.ask(runtime.scheduler, has_session)
    for number in (1, 2):
        before_ms = runtime.clock.monotonic_ms()
        runtime.clock.advance(SESSION_MS)
        at_once = absences.may_be_succeeded(before_ms)
        runtime.advance(0)

        assert at_once
        assert len(asked) == number
        assert absences.may_be_succeeded(before_ms) is is_succeeded


def test_broker_that_is_alone_is_succeeded_by_nobody(runtime):
    """It answers at once, whenever it comes back."""
    absences = Absences(runtime.clock, SESSION_MS)
    runtime.clock.advance(3_600_000)

    assert not absences.may_be_succeeded(0)
