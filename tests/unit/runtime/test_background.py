"""Jobs leave the loop as values and come back as values."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from ottla.runtime import ThreadBackground

LIMIT_SECONDS = 60


def run(
    test: Callable[[ThreadBackground], Coroutine[Any, Any, None]], worker_count: int = 2
) -> None:
    """Run a test on a new loop with its workers."""

    async def main() -> None:
        background = ThreadBackground(asyncio.get_running_loop(), worker_count)
        await test(background)
        await background.close()

    asyncio.run(main())


def test_job_runs_on_a_named_worker_and_its_callback_on_the_loop() -> None:
    """The result is handed over on the thread that owns the state."""

    async def test(background: ThreadBackground) -> None:
        done: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        background.submit(
            lambda: threading.current_thread().name,
            lambda worker: done.set_result((worker, threading.current_thread().name)),
        )
        worker, deliverer = await done

        assert worker.startswith("ottla-background")
        assert deliverer == threading.current_thread().name

    run(test)


def test_error_of_a_job_goes_to_its_callback() -> None:
    """The exception itself, not a description of it."""

    async def test(background: ThreadBackground) -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        background.submit(lambda: 1 // 0, on_error=failed.set_result)

        assert isinstance(await failed, ZeroDivisionError)

    run(test)


def test_error_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A job without on_error does not fail in silence."""

    async def test(background: ThreadBackground) -> None:
        background.submit(lambda: 1 // 0)

    with caplog.at_level(logging.ERROR):
        run(test)

    assert "ZeroDivisionError" in caplog.text


def test_run_returns_or_raises_what_the_job_does() -> None:
    """Awaiting a job looks like calling it."""

    async def test(background: ThreadBackground) -> None:
        assert await background.run(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await background.run(lambda: 1 // 0)

    run(test)


def test_no_more_jobs_run_at_once_than_there_are_workers() -> None:
    """The second job of a single worker starts when the first one has ended."""

    async def test(background: ThreadBackground) -> None:
        release = threading.Event()
        order: list[str] = []
        first = asyncio.ensure_future(
            background.run(lambda: (order.append("first"), release.wait(), order.append("end")))
        )
        second = asyncio.ensure_future(background.run(lambda: order.append("second")))
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(first, second)

        assert order == ["first", "end", "second"]

    run(test, worker_count=1)


def test_system_without_threads_refuses_jobs_only_as_long_as_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs of later are done, by the thread that could be started or by new ones."""
    start, is_full = threading.Thread.start, True

    def start_or_refuse(thread: threading.Thread) -> None:
        if is_full:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)

    async def test(background: ThreadBackground) -> None:
        nonlocal is_full
        with pytest.raises(RuntimeError, match="can't start new thread"):
            background.submit(lambda: None)
        is_full = False
        assert await background.run(lambda: "one") == "one"
        is_full = True
        jobs = [background.run(lambda number=number: number) for number in range(3)]
        assert await asyncio.gather(*jobs) == [0, 1, 2]
        is_full = False
        meeting = threading.Barrier(2)
        wait = partial(meeting.wait, LIMIT_SECONDS)
        assert sorted(await asyncio.gather(background.run(wait), background.run(wait))) == [0, 1]

    run(test)


def test_jobs_at_once_wait_for_each_other() -> None:
    """Each has a thread, however few workers there are; results come in the order of the jobs."""

    async def test(background: ThreadBackground) -> None:
        meeting = threading.Barrier(5)
        jobs = [partial(meeting.wait, LIMIT_SECONDS) for _ in range(5)]

        assert sorted(await background.run_at_once(jobs)) == [0, 1, 2, 3, 4]
        assert await background.run_at_once([lambda: "a", lambda: "b"]) == ["a", "b"]
        assert await background.run_at_once([]) == []

    run(test, worker_count=1)


def test_error_of_a_job_at_once_is_raised_when_all_have_ended() -> None:
    """No thread is left that would still write."""
    ended: list[str] = []

    async def test(background: ThreadBackground) -> None:
        release = threading.Event()

        def fail() -> None:
            release.set()
            raise OSError("full")

        def last() -> None:
            release.wait(LIMIT_SECONDS)
            ended.append("last")

        with pytest.raises(OSError, match="full"):
            await background.run_at_once([fail, last])
        assert ended == ["last"]

    run(test)


def test_close_waits_for_jobs_and_their_callbacks() -> None:
    """What was submitted is done when close returns."""
    delivered: list[int] = []

    async def test(background: ThreadBackground) -> None:
        for number in range(5):
            background.submit(lambda number=number: number, delivered.append)

    run(test)

    assert sorted(delivered) == [0, 1, 2, 3, 4]


def test_result_for_a_caller_that_was_cancelled_is_dropped() -> None:
    """Nobody waits any more: no error, and the worker is free again."""

    async def test(background: ThreadBackground) -> None:
        release = threading.Event()
        task = asyncio.ensure_future(background.run(release.wait))
        await asyncio.sleep(0)
        task.cancel()
        release.set()

        assert await background.run(lambda: "next") == "next"
        assert task.cancelled()

    run(test)
