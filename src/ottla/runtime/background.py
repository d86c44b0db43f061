"""Slow work leaves the loop as a value and comes back as a value.

The loop's thread owns all state. A job gets its arguments when it is submitted, runs on a worker
thread without touching that state, and its result is given to a callback on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background(Protocol):
    """Runs jobs elsewhere, first come first served; their callbacks run on the loop."""

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        """Run `job`, then one of the two callbacks; an error without `on_error` is logged."""
        ...

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` and wait for its result, or its exception."""
        ...

    async def run_at_once(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs at the same time, each in a thread of its own, and wait for all results."""
        ...


class ThreadBackground:
    """A bounded number of named worker threads, started when the first job comes."""

    __slots__ = ("_executor", "_idle", "_loop", "_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop, worker_count: int) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(worker_count, thread_name_prefix="ottla-background")
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        def work() -> None:
            try:
                result = job()
            except BaseException as error:  # the job's own failure is a value like any other
                self._post(partial(self._fail, job, error, on_error))
            else:
                self._post(partial(self._finish, result, on_done))

        self._executor.submit(work)
        self._under_way += 1

    async def run(self, job: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def deliver(result: T) -> None:
            if not future.done():  # done before: the caller was cancelled and no longer waits
                future.set_result(result)

        def fail(error: BaseException) -> None:
            if not future.done():
                future.set_exception(error)

        self.submit(job, deliver, fail)
        return await future

    async def run_at_once(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        threads = ThreadBackground(self._loop, max(1, len(jobs)))
        try:
            return await asyncio.gather(*map(threads.run, jobs))
        finally:
            await threads.close()

    async def close(self) -> None:
        """Take no more jobs, and wait until those under way are done and called back."""
        self._executor.shutdown(wait=False)
        if self._under_way:
            self._idle = self._loop.create_future()
            await self._idle
        self._executor.shutdown()  # the threads have nothing left to do, and end at once

    def _post(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop was closed without waiting for us
            logger.warning(
                "The result of a job of %s came after its loop was closed",
                threading.current_thread().name,
            )

    def _finish(self, result: T, on_done: Callable[[T], object] | None) -> None:
        try:
            if on_done is not None:
                on_done(result)
        finally:
            self._count_down()

    def _fail(
        self,
        job: Callable[[], object],
        error: BaseException,
        on_error: Callable[[BaseException], object] | None,
    ) -> None:
        try:
            if on_error is not None:
                on_error(error)
            else:
                logger.error("The background job %r failed", job, exc_info=error)
        finally:
            self._count_down()

    def _count_down(self) -> None:
        self._under_way -= 1
        if self._under_way == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
