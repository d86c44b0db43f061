"""Work that begins once a period, and takes several turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ottla.runtime.periodic_work import PeriodicWork
from ottla.testing import mock_runtime


def test_work_is_done_once_a_period_in_slices():
    """All of it, before the next period begins."""
    runtime, done = mock_runtime(), []

    def work() -> Iterator[None]:
        for number in range(3):
            done.append(number)
            yield

    periodic = PeriodicWork(runtime, 100, work, "counting")
    runtime.advance(250)
    assert done == [0, 1, 2] * 2
    periodic.cancel()
    runtime.advance(1000)

    assert done == [0, 1, 2] * 2


def test_work_that_takes_longer_than_a_period_is_not_begun_beside_itself(monkeypatch):
    """Long work is not begun beside itself, and is ended where it waits for its next turn."""
    runtime, begun, waiting = mock_runtime(), [], []

    async def wait_for_a_turn() -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]

    monkeypatch.setattr(type(runtime.slices), "begin", lambda self, work: wait_for_a_turn())
    periodic = PeriodicWork(runtime, 100, lambda: iter(begun.append(1) or ()), "waiting")
    runtime.advance(350)
    assert (len(begun), len(waiting)) == (1, 1)
    waiting[0].set_result(None)
    runtime.advance(100)
    assert len(begun) == 2
    periodic.cancel()
    runtime.advance(1000)

    assert len(begun) == 2
    assert waiting[1].cancelled()
