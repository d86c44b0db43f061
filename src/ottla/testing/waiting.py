"""Waiting for a condition in a test: until it holds, never for a time that is hoped to be enough.

A limit is there to end a test that will never pass. It is a minute, because a busy machine takes
long for things that are otherwise done at once; so a limit of a few seconds fails tests at random.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

LIMIT_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.001
LONGEST_PAUSE_S: Final = 0.05


class NeverHappenedError(AssertionError):
    """The condition did not hold within the limit; the text names it, and the last state."""


def wait_until(
    condition: Callable[[], T | None],
    what: str,
    limit: float = LIMIT_S,
    *,
    seen: Callable[[], object] | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> T:
    """Call `condition` again and again until it returns something true, and return that.

    `what` names the condition: "two members in the group", or "the group is stable". After `limit`
    seconds it is a NeverHappenedError, with the last result of `condition`, or the result of `seen`
    then. Where the test has to act for the condition to come true, as to poll a consumer, that is
    `meanwhile`: it is called in place of the pauses. Exceptions of these are not caught.
    """
    for pause in _pauses(limit):
        answer = condition()
        if answer:
            return answer
        if meanwhile is None:
            time.sleep(pause)
        else:
            meanwhile()
    answer = condition()
    if answer:
        return answer
    raise _never(what, limit, answer if seen is None else seen())


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T | None] | None],
    what: str,
    limit: float = LIMIT_S,
    *,
    seen: Callable[[], object] | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> T:
    """As `wait_until`, while other tasks of the loop run.

    `condition` and `meanwhile` may be coroutine functions. The limit counts between their calls: a
    call that does not return is not interrupted.
    """
    for pause in _pauses(limit):
        answer = await _value(condition())
        if answer:
            return answer
        if meanwhile is None:
            await asyncio.sleep(pause)
        else:
            await _value(meanwhile())
    answer = await _value(condition())
    if answer:
        return answer
    raise _never(what, limit, answer if seen is None else seen())


async def _value(answer: T | Awaitable[T | None] | None) -> T | None:
    if inspect.isawaitable(answer):
        value: T | None = await answer
        return value
    return answer


def _pauses(limit: float) -> Iterator[float]:
    """Seconds to sleep, growing, until the limit has passed."""
    deadline = time.monotonic() + limit
    pause = FIRST_PAUSE_S
    while time.monotonic() < deadline:
        yield pause
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def _never(what: str, limit: float, seen: object) -> NeverHappenedError:
    return NeverHappenedError(f"not within {limit:g} s: {what}; last seen: {seen!r}")
