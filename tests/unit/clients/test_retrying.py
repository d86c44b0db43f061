"""Calls about several keys: each keeps its own answer, also when the time is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clients.retrying import Retrying
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.timing import Backoff, Deadline
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


class CountingMetadata:
    """Metadata that arrive at once, and are counted."""

    def __init__(self) -> None:
        self.count = 0

    async def update(self, deadline: Deadline) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("code", "attempts", "updates", "moves"),
    [
        (ErrorCode.NOT_CONTROLLER, 3, 2, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 2, 0),
        (ErrorCode.NOT_COORDINATOR, 3, 0, 2),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3, 0, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1, 0, 0),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, 0, 0),
    ],
)
def test_error_says_what_is_looked_up_before_the_next_attempt(
    runtime, code, attempts, updates, moves
) -> None:
    """Nothing is repeated more often than `retries` says, nor what will not pass."""
    metadata, asked, moved = CountingMetadata(), [], []
    retrying = Retrying(
        metadata,
        Backoff(100, 100, lambda: 0.5),
        runtime.scheduler,
        retries=2,
        on_coordinator_moved=lambda: moved.append(True),
    )

    async def attempt(pending: list[str], deadline: Deadline) -> dict[str, object]:
        asked.append(list(pending))
        return {key: 7 if key == "a" else KafkaError.of(code, "no") for key in pending}

    deadline = Deadline(runtime.clock, LIMIT_MS)
    results = runtime.scheduler.run(retrying.for_each(["a", "b", "b"], attempt, deadline))

    assert asked == [["a", "b"], *[["b"]] * (attempts - 1)]
    assert (metadata.count, len(moved)) == (updates, moves)
    assert results["a"] == 7
    assert results["b"].error is code
    assert runtime.clock.monotonic_ms() >= 90 * (attempts - 1)


def test_attempts_end_with_the_deadline(runtime) -> None:
    """The last pause is cut, and one more attempt is made."""
    asked: list[int] = []

    async def attempt(pending: list[str], deadline: Deadline) -> dict[str, object]:
        asked.append(runtime.clock.monotonic_ms() - began_ms)
        return dict.fromkeys(pending, KafkaError.of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no"))

    began_ms = runtime.clock.monotonic_ms()
    retrying = Retrying(CountingMetadata(), Backoff(400, 400, lambda: 0.5), runtime.scheduler)
    runtime.scheduler.run(retrying.for_each(["a"], attempt, Deadline(runtime.clock, 1000)))

    assert asked == [0, 400, 800, 1000]


def test_key_that_an_attempt_leaves_out_has_an_error(runtime) -> None:
    """Another one is not asked for again."""

    async def attempt(pending: list[str], deadline: Deadline) -> dict[str, object]:
        return {"a": 7}

    retrying = Retrying(CountingMetadata(), Backoff(100, 100, lambda: 0.5), runtime.scheduler)
    call = retrying.for_each(["a", "b"], attempt, Deadline(runtime.clock, 1000))
    results = runtime.scheduler.run(call)

    assert results["a"] == 7
    assert results["b"].message == "the answer leaves this one out"
