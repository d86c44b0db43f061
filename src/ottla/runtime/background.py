"""Slow work leaves the loop as a value and comes back as a value.

The loop's thread owns all state. A job gets its arguments when it is submitted, runs on a worker
thread without touching that state, and its result is given to a callback on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
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
    """A bounded number of named worker threads, each started when there is a job for it.

    They are no executor of Python's: those take no job once a program's main thread has ended,
    while its other threads may still use their clients.
    """

    __slots__ = ("_idle", "_is_closed", "_jobs", "_loop", "_threads", "_under_way", "_worker_count")

    def __init__(self, loop: asyncio.AbstractEventLoop, worker_count: int) -> None:
        self._loop = loop
        self._worker_count = worker_count
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None
        self._is_closed = False

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

        if self._is_closed:
            raise RuntimeError("no job is taken after the close")
        if len(self._threads) < min(self._worker_count, self._under_way + 1):
            self._add_thread()
        self._under_way += 1
        self._jobs.put(work)

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
        self._is_closed = True
        if self._under_way:
            self._idle = self._loop.create_future()
            await self._idle
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()  # it has nothing left to do, and ends at once

    def _add_thread(self) -> None:
        """Start one more; where the system has none to give, the others do the jobs."""
        name = f"ottla-background_{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

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
