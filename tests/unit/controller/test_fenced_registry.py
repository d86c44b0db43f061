"""One turn after the other."""

from __future__ import annotations

import asyncio

import pytest

from ottla.controller.fenced_registry import EventQueue
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import mock_runtime


@pytest.fixture
def world():
    """A runtime and a queue that notes what failed."""
    runtime, failures = mock_runtime(), []
    queue = EventQueue(runtime, lambda name, error: failures.append((name, str(error))))
    return runtime, queue, failures


def test_turns_are_taken_one_by_one_in_their_order(world):
    """Also where one waits for something in the middle."""
    runtime, queue, _ = world
    seen = []

    async def turn(name: str) -> str:
        seen.append(f"{name} begins")
        await asyncio.sleep(0)
        seen.append(f"{name} ends")
        return name

    async def both() -> list[str]:
        queue.put("a", lambda: turn("a"))
        return [await queue.submit("b", lambda: turn("b"))]

    assert runtime.scheduler.run(both()) == ["b"]
    assert seen == ["a begins", "a ends", "b begins", "b ends"]


def test_event_that_waits_already_is_not_added_again(world):
    """One look at the registry is as good as two."""
    runtime, queue, _ = world
    seen = []

    async def look() -> None:
        seen.append("looked")

    queue.put_once("look", look)
    queue.put_once("look", look)
    runtime.scheduler.run_ready()

    assert seen == ["looked"]
    assert queue.is_idle


def test_what_is_dropped_is_said_to_whoever_waits(world):
    """NOT_CONTROLLER: another broker may do it."""
    runtime, queue, _ = world

    async def never() -> None:
        raise AssertionError("it was dropped")

    async def wait() -> None:
        task = asyncio.ensure_future(queue.submit("never", never))
        await asyncio.sleep(0)
        queue.clear()
        await task

    with pytest.raises(KafkaError) as caught:
        runtime.scheduler.run(wait())
    assert caught.value.error is ErrorCode.NOT_CONTROLLER


def test_failure_that_nobody_waits_for_is_reported(world):
    """And the next turn is taken all the same."""
    runtime, queue, failures = world

    async def fail() -> None:
        raise ValueError("broken")

    queue.put("first", fail)
    queue.put("second", fail)
    runtime.scheduler.run_ready()

    assert failures == [("first", "broken"), ("second", "broken")]
