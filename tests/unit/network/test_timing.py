"""Deadlines, pauses, and how they grow."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import KafkaTimeoutError
from ottla.network.timing import Backoff, Deadline, pause, within
from ottla.testing import MockRuntime, mock_runtime


@pytest.fixture
def runtime() -> MockRuntime:
    """Virtual time."""
    return mock_runtime()


def test_deadline_counts_down(runtime):
    """To 0, and not below."""
    deadline = Deadline(runtime.clock, 100)
    runtime.clock.advance(60)
    assert deadline.left_ms == 40
    runtime.clock.advance(60)
    assert deadline.left_ms == 0
    assert deadline.has_passed
    assert not Deadline(runtime.clock, None).has_passed


def test_backoff_doubles_up_to_its_limit():
    """In the middle of the spread; and a fifth to either side."""
    assert [Backoff(100, 1000, lambda: 0.5).delay_ms(n) for n in (1, 2, 3, 4, 5, 99)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert Backoff(100, 1000, lambda: 0.0).delay_ms(1) == 80
    assert Backoff(100, 1000, lambda: 1.0).delay_ms(1) == 120


def test_within_gives_what_comes_in_time(runtime):
    """The time limit leaves no trace."""

    async def late() -> str:
        await pause(runtime.scheduler, 99)
        return "done"

    assert runtime.scheduler.run(within(runtime.scheduler, 100, late(), "nothing came")) == "done"


def test_within_cancels_what_does_not(runtime):
    """KafkaTimeoutError says what was waited for; the coroutine ends."""
    ended = []

    async def too_late() -> None:
        try:
            await pause(runtime.scheduler, 101)
        except asyncio.CancelledError:
            ended.append(runtime.clock.monotonic_ms())
            raise

    with pytest.raises(KafkaTimeoutError, match="nothing came within 100 ms"):
        runtime.scheduler.run(within(runtime.scheduler, 100, too_late(), "nothing came"))
    assert ended == [100]


def test_task_that_is_cancelled_while_its_time_is_over_ends(runtime):
    """A broker could not stop: a task of it took its end for a timeout, and went on."""

    async def ends_slowly() -> None:
        try:
            await pause(runtime.scheduler, 10_000)
        finally:
            await pause(runtime.scheduler, 50)

    async def asks_for_ever() -> None:
        while True:
            try:
                await within(runtime.scheduler, 100, ends_slowly(), "no answer")
            except KafkaTimeoutError:
                pass

    task = runtime.scheduler.spawn(asks_for_ever(), "asks")
    runtime.advance(120)
    task.cancel()
    runtime.advance(50)

    assert task.cancelled()
