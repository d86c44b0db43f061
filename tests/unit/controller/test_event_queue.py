"""The controller's event queue: what it reports, and what it refuses at its end."""

from __future__ import annotations

import asyncio

import pytest

from ottla.controller.event_queue import EventQueue
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import mock_runtime


class Queue:
    """A queue over a manual clock, and what it has reported."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.failures: list[tuple[str, str]] = []
        self.ends: list[tuple[str, int, int]] = []
        self.events = EventQueue(self.runtime, self.on_failure)
        self.events.on_event = lambda *end: self.ends.append(end)

    def on_failure(self, name: str, error: Exception) -> None:
        self.failures.append((name, str(error)))

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    async def sleep(self, ms: int) -> str:
        is_over = asyncio.Event()
        self.runtime.scheduler.call_later(ms, is_over.set)
        await is_over.wait()
        return f"slept {ms} ms"


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_time_in_the_queue_and_at_work_is_reported_with_the_name(queue):
    """The second waits as long as the first takes."""
    queue.runtime.advance(1000)
    queue.events.put("first", lambda: queue.sleep(30))
    queue.events.put("second", lambda: queue.sleep(5))
    queue.runtime.advance(100)

    assert queue.ends == [("first", 0, 30), ("second", 30, 5)]
    assert queue.events.under_way == ""


def test_queue_without_metrics_works(queue):
    """Nobody need listen."""
    queue.events.on_event = None

    assert queue.run(queue.events.submit("a", lambda: queue.sleep(0))) == "slept 0 ms"


def test_end_of_the_queue_refuses_what_runs_what_waits_and_what_comes(queue):
    """Nobody is left waiting for a controller that has stopped."""

    async def close_under_way() -> list[object]:
        first = asyncio.ensure_future(queue.events.submit("first", lambda: queue.sleep(60_000)))
        second = asyncio.ensure_future(queue.events.submit("second", lambda: queue.sleep(0)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert queue.events.under_way == "first"
        queue.events.close()
        third = asyncio.ensure_future(queue.events.submit("third", lambda: queue.sleep(0)))
        return await asyncio.gather(first, second, third, return_exceptions=True)

    refused = queue.run(close_under_way())

    assert [error.error for error in refused] == [ErrorCode.NOT_CONTROLLER] * 3
    assert queue.events.is_idle
    assert len(queue.events) == 0
    assert queue.failures == []


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no"), ValueError("a bug")]
)
def test_error_is_a_failure_unless_it_is_a_refusal_that_a_caller_gets(queue, error, is_awaited):
    """A bug is one for whoever waits, and for the controller, which gives up."""

    async def fail() -> None:
        raise error

    if is_awaited:
        with pytest.raises(type(error)):
            queue.run(queue.events.submit("it", fail))
    else:
        queue.events.put("it", fail)
        queue.runtime.scheduler.run_ready()

    is_answer = is_awaited and isinstance(error, KafkaError)
    assert queue.failures == ([] if is_answer else [("it", str(error))])


def test_caller_that_has_gone_gets_no_result_and_ends_nothing(queue):
    """Its connection was closed: the operation runs to its end, and so does the next."""

    async def leave() -> str:
        caller = asyncio.ensure_future(queue.events.submit("first", lambda: queue.sleep(10)))
        await asyncio.sleep(0)
        caller.cancel()
        return await queue.events.submit("second", lambda: queue.sleep(1))

    assert queue.run(leave()) == "slept 1 ms"
    assert [name for name, *_ in queue.ends] == ["first", "second"]
