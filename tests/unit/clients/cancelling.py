"""Cancels a coroutine at each of its waits, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any


class CancelledAtWait:
    """Awaits a coroutine whose task is cancelled at its wait of that number, counted from 0."""

    def __init__(self, call: Coroutine[Any, Any, Any], number: int) -> None:
        self._call = call
        self._left = number
        self.was_cancelled = False

    def __await__(self) -> Iterator[Any]:
        steps = self._call.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waited = step()
            except StopIteration as end:
                return end.value
            if self._left == 0:
                self.was_cancelled = True
                asyncio.current_task().cancel()
            self._left -= 1
            try:
                step = partial(steps.send, (yield waited))
            except BaseException as error:
                step = partial(steps.throw, error)


async def cancelled_at(call: Coroutine[Any, Any, Any], number: int) -> bool:
    """Whether the coroutine came to that wait, at which it was cancelled, before its end."""
    cancelled = CancelledAtWait(call, number)

    async def run() -> None:
        await cancelled

    try:
        await asyncio.ensure_future(run())
    except asyncio.CancelledError:
        assert cancelled.was_cancelled
    return cancelled.was_cancelled


async def cancel_all_others(after_turns: int) -> None:
    """Cancel all other tasks of the loop, as applications do when they stop, after some turns."""
    for _ in range(after_turns):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
