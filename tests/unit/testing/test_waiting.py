"""Waiting for a condition, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from ottla.testing import NeverHappenedError, wait_until, wait_until_async


def test_the_first_true_value_is_returned():
    """The condition is asked until it returns something true."""
    answers = iter([0, [], "members"])

    assert wait_until(lambda: next(answers), "members") == "members"


def test_what_was_awaited_and_seen_is_said():
    """A condition that never holds is reported with its name, the limit and its last value."""
    counted = itertools.count()

    with pytest.raises(NeverHappenedError, match=r"not within 0\.01 s: two members"):
        wait_until(lambda: None, "two members", 0.01)
    with pytest.raises(NeverHappenedError, match=r"last seen: 'one member, .* asked'"):
        wait_until(
            lambda: next(counted) < 0,
            "two members",
            0,
            seen=lambda: f"one member, {next(counted)} asked",
        )


def test_a_condition_is_asked_at_least_once():
    """A limit of zero is a question, not a failure."""
    assert wait_until(lambda: 1, "one", 0) == 1


def test_errors_of_the_condition_are_not_hidden():
    """A mistake in the condition ends the wait at once."""
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, "never")


def test_tasks_run_while_a_coroutine_waits():
    """The awaited thing may be done by another task of the same loop."""

    async def scene() -> str:
        done: list[str] = []
        task = asyncio.create_task(asyncio.to_thread(done.append, "joined"))
        seen = await wait_until_async(lambda: done, "a task")
        await task
        return seen[0]

    assert asyncio.run(scene()) == "joined"


def test_a_condition_may_be_a_coroutine_function():
    """Its result is what counts, also in the error."""
    answers = iter([0, 0, 7])

    async def count() -> int:
        return next(answers, 0)

    async def scene() -> int:
        seven = await wait_until_async(count, "seven")
        with pytest.raises(NeverHappenedError, match=r"more; last seen: 0"):
            await wait_until_async(count, "more", 0.01)
        return seven

    assert asyncio.run(scene()) == 7


def test_the_test_may_work_for_what_it_waits_for():
    """What is to be done meanwhile is done between two looks, and not once it is enough."""
    polled: list[int] = []

    async def poll() -> None:
        polled.append(len(polled))

    wait_until(lambda: len(polled) >= 2, "two records", meanwhile=lambda: polled.append(0))
    asyncio.run(wait_until_async(lambda: len(polled) == 4, "two more", meanwhile=poll))

    assert polled == [0, 0, 2, 3]
