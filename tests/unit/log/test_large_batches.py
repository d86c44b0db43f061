"""Large batches are checked one at a time, and the requests that have them in turns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.log.large_batches import LargeBatches, Waiting
from ottla.log.log_validator import LargeBatchError


def test_requests_with_large_batches_have_turns():
    """A request with many batches waits behind itself: others come after one batch of it."""
    jobs: list[tuple] = []
    batches = LargeBatches(SimpleNamespace(submit=lambda *job: jobs.append(job)))
    done: list[str] = []

    def request(name: str, count: int) -> list[Waiting]:
        batch = LargeBatchError(lambda: None)
        return [Waiting(batch, lambda _: done.append(name)) for _ in range(count)]

    batches.submit(request("many", 4))
    batches.submit(request("one", 1))
    batches.submit(request("two", 2))
    while jobs:
        work, on_done, _ = jobs.pop(0)
        on_done(work())

    assert done == ["many", "one", "two", "many", "two", "many", "many"]


class Jobs:
    """What is to be done in the background; nothing is done before it is asked for."""

    def __init__(self) -> None:
        self.jobs: list[tuple] = []
        self.batches = LargeBatches(SimpleNamespace(submit=lambda *job: self.jobs.append(job)))
        self.outcomes: dict[str, object] = {}

    def submit(self, *names: str) -> None:
        """A request with these batches."""
        self.batches.submit([self.waiting(name) for name in names])

    def waiting(self, name: str) -> Waiting:
        return Waiting(
            LargeBatchError(lambda: name), lambda outcome: self.outcomes.update({name: outcome})
        )

    def run(self, error: BaseException | None = None) -> None:
        """Do one job, or have it fail."""
        work, on_done, on_error = self.jobs.pop(0)
        on_done(work()) if error is None else on_error(error)


def test_large_batches_that_wait_are_refused_when_the_broker_stops():
    """So are those that come later, and the one under way once it is done."""
    jobs = Jobs()
    jobs.submit("under way", "next")
    jobs.submit("waiting")
    jobs.batches.close()
    refused = list(jobs.outcomes)
    jobs.submit("late")
    jobs.run()
    jobs.submit("last")

    assert refused == ["waiting"]
    assert list(jobs.outcomes) == ["waiting", "late", "next", "under way", "last"]
    assert {error.error for error in jobs.outcomes.values()} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert jobs.jobs == []


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (KafkaError(ErrorCode.INVALID_RECORD, "no"), ErrorCode.INVALID_RECORD),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_large_batch_that_fails_in_the_background_is_refused_and_the_next_one_looked_at(
    error, answer, caplog
):
    """The producer has its answer, and the log has what nobody has foreseen."""
    jobs = Jobs()
    jobs.submit("bad", "good")
    jobs.run(error)
    jobs.run()

    assert jobs.outcomes["bad"].error is answer
    assert jobs.outcomes["good"] == "good"
    jobs.submit("later")
    jobs.run()
    assert jobs.outcomes["later"] == "later"
    assert ("could not be looked through" in caplog.text) is isinstance(error, ValueError)
