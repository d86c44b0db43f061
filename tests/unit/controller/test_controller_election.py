"""One turn after the other."""

from __future__ import annotations

import asyncio

import pytest

from ottla.controller.controller_election import ControllerEpoch, elect_controller
from ottla.controller.event_queue import EventQueue
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.znodes import encode_epoch
from ottla.testing import mock_runtime


@pytest.fixture
def world():
    """A runtime and a queue that notes what failed."""
    runtime, failures = mock_runtime(), []
    queue = EventQueue(runtime, lambda name, error: failures.append((name, str(error))))
    return runtime, queue, failures


def test_turns_are_taken_one_by_one_in_their_order(world):
    """Events keep their order, also where one waits for something in the middle."""
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


def test_controller_epochs_that_are_used_up_are_an_error_that_says_so():
    """A request cannot carry a larger one, so that no broker would ever hear of the controller."""
    runtime = mock_runtime()
    registry = EmbeddedRegistry(runtime, "/data/registry")

    async def elect(last: int) -> ControllerEpoch | None:
        await registry.set(paths.CONTROLLER_EPOCH, encode_epoch(last), -1)
        return await elect_controller(registry, 1, 0)

    async def begin() -> None:
        await registry.start()
        await registry.create(paths.CONTROLLER_EPOCH, encode_epoch(0))

    runtime.scheduler.run(begin())
    with pytest.raises(KafkaError, match="no epoch is left"):
        runtime.scheduler.run(elect(2**31 - 1))
    epoch = runtime.scheduler.run(elect(2**31 - 2))
    assert epoch is not None
    assert epoch.epoch == 2**31 - 1


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


def test_event_whose_end_cannot_be_noted_does_not_end_the_queue(world):
    """A broker's metrics once could have stopped its controller."""
    runtime, queue, _ = world
    seen = []

    async def look(name: str) -> None:
        seen.append(name)

    def broken(name: str, waited_ms: int, took_ms: int) -> None:
        raise ValueError("a bug")

    queue.on_event = broken
    queue.put("first", lambda: look("first"))
    queue.put("second", lambda: look("second"))
    runtime.scheduler.run_ready()

    assert seen == ["first", "second"]
    assert queue.is_idle


def test_failure_that_nobody_waits_for_is_reported(world):
    """A failure without a waiter is reported, and the next event runs all the same."""
    runtime, queue, failures = world

    async def fail() -> None:
        raise ValueError("broken")

    queue.put("first", fail)
    queue.put("second", fail)
    runtime.scheduler.run_ready()

    assert failures == [("first", "broken"), ("second", "broken")]
