"""The runtime of clients on the loop of a program."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.errors import KafkaTimeoutError
from ottla.runtime.app_loop import app_runtime, resolve
from ottla.runtime.scheduler import pause, within


def test_jobs_run_elsewhere_and_are_called_back_on_the_loop():
    """In order of their ends; errors go to the callback for them, or to the log."""

    async def use() -> None:
        background = app_runtime(asyncio.get_running_loop()).background
        here, found = threading.get_ident(), []
        background.submit(threading.get_ident, lambda there: found.append(there != here))
        background.submit(lambda: 1 / 0, on_error=lambda error: found.append(type(error)))
        assert await background.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await background.run(lambda: 1 / 0)
        await background.close()
        assert set(found) == {True, ZeroDivisionError}

    asyncio.run(use())


def test_job_that_fails_without_a_callback_is_logged(caplog):
    """Its error is seen by somebody."""

    async def use() -> None:
        background = app_runtime(asyncio.get_running_loop()).background
        background.submit(lambda: 1 / 0)
        await background.close()

    asyncio.run(use())
    assert "division by zero" in caplog.text


def test_future_is_set_from_any_thread():
    """A second time does nothing, and neither does one whose loop has ended."""

    async def use(is_here: bool) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if is_here:
            resolve(future)
            resolve(future)
        else:
            threading.Thread(target=resolve, args=[future]).start()
        await future
        return asyncio.get_running_loop().create_future()

    for is_here in (True, False):
        left = asyncio.run(use(is_here))
        resolve(left)
        assert not left.done()


def test_calls_that_wait_end_after_their_client():
    """The program's loop goes on: nothing else would wake them."""

    async def use() -> None:
        scheduler = app_runtime(asyncio.get_running_loop()).scheduler
        never = asyncio.get_running_loop().create_future()
        pausing = asyncio.create_task(pause(scheduler, 20))
        waiting = asyncio.create_task(within(scheduler, 30, never, "no answer"))
        await asyncio.sleep(0)
        await scheduler.close()
        await pausing
        with pytest.raises(KafkaTimeoutError, match="no answer within 30 ms"):
            await waiting

    asyncio.run(use())


def test_closed_scheduler_has_no_timer_of_its_own():
    """And so keeps nothing of the client."""

    async def use() -> None:
        loop = asyncio.get_running_loop()
        scheduler = app_runtime(loop).scheduler
        timer = scheduler.call_later(60_000, lambda: None)
        timer.cancel()
        await scheduler.close()
        assert [each for each in loop._scheduled if not each.cancelled()] == []

    asyncio.run(use())
