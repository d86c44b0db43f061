"""Calls about several keys: each keeps its own answer, also when the time is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clients.retrying import Retrying
from ottla.errors import ErrorCode, KafkaError
from ottla.network.timing import Backoff, Deadline
from ottla.testing import MockRuntime

LIMIT_MS = 5_000
NO_LEADER = KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, "partition t-1 has no leader")


class SilentMetadata:
    """Metadata that do not arrive before the deadline, or that arrive at once."""

    def __init__(self, *, arrive: bool) -> None:
        self.arrive = arrive

    async def update(self, deadline: Deadline) -> None:
        if not self.arrive:
            raise deadline.timeout("no metadata were received")


@pytest.fixture
def ask(runtime: MockRuntime) -> Callable[..., dict[str, object]]:
    """Asks about keys with an attempt that is given the keys and the deadline."""

    def run(attempt, *, metadata_arrive: bool = True) -> dict[str, object]:
        metadata = SilentMetadata(arrive=metadata_arrive)
        retrying = Retrying(metadata, Backoff(100, 100, lambda: 0.5), runtime.scheduler)
        deadline = Deadline(runtime.clock, LIMIT_MS)
        return runtime.scheduler.run(retrying.for_each(["t-0", "t-1"], attempt, deadline))

    return run


@pytest.mark.parametrize("metadata_arrive", [True, False])
def test_one_key_without_an_answer_does_not_take_the_others_away(ask, metadata_arrive) -> None:
    """Those that were answered have their results, the one that was not has its true error."""

    async def attempt(pending: list[str], deadline: Deadline) -> dict[str, object]:
        return {key: NO_LEADER if key == "t-1" else 7 for key in pending}

    assert ask(attempt, metadata_arrive=metadata_arrive) == {"t-0": 7, "t-1": NO_LEADER}


def test_error_of_the_time_does_not_hide_the_reason(ask, runtime) -> None:
    """An attempt that runs out of time after others were refused says less than they did."""
    attempts = 0

    async def attempt(pending: list[str], deadline: Deadline) -> dict[str, object]:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            runtime.clock.advance(LIMIT_MS)
            raise deadline.timeout("no metadata were received")
        return {key: NO_LEADER if key == "t-1" else 7 for key in pending}

    assert ask(attempt) == {"t-0": 7, "t-1": NO_LEADER}


def test_first_attempt_that_runs_out_of_time_says_so(ask, runtime) -> None:
    """There is no other reason then."""

    async def attempt(pending: list[str], deadline: Deadline) -> dict[str, object]:
        runtime.clock.advance(LIMIT_MS)
        raise deadline.timeout("no metadata were received")

    results = ask(attempt)
    assert {str(error) for error in results.values()} == {
        f"REQUEST_TIMED_OUT: no metadata were received within {LIMIT_MS} ms"
    }
