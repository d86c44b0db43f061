"""The runtime of clients on the loop of a program."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.runtime.app_loop import app_runtime, resolve


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
