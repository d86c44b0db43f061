"""The whole runtime in virtual time and memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.runtime.background import logger as background_logger
from ottla.runtime.runtime import Runtime
from ottla.runtime.scheduler import PeriodicTimer, Scheduler, Timer, log_task_death
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.network import MemoryNetwork
from ottla.testing.virtual_loop import MockClock, VirtualLoop

T = TypeVar("T")


class MockScheduler:
    """A scheduler whose time passes when a test says so.

    `advance(ms)` runs timers, callbacks and spawned coroutines, each at its own moment;
    `run(coroutine)` is for the coroutines of a test. Called from code that runs under an asyncio
    loop of its own, `call_soon` and `spawn` go to that loop, so that they mix with real sockets
    and `asyncio.run`; timers wait for `advance` everywhere.
    """

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.loop = VirtualLoop.on(clock)
        self._tasks: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._current_loop().call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer:
        return self.loop.add_timer(delay_ms, callback)

    def call_every(self, period_ms: int, callback: Callable[[], object]) -> Timer:
        return PeriodicTimer(self, self.clock, period_ms, callback)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._current_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(log_task_death)
        return task

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass; everything that falls due runs before this returns."""
        self.loop.advance(ms)

    def run_ready(self) -> None:
        """Run everything that can run now, without time passing."""
        self.loop.run_ready()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Run a coroutine to its result; time passes as far as necessary."""
        return self.loop.run_until_complete(awaitable)

    async def close(self) -> None:
        """Cancel the spawned tasks, as the real scheduler does."""
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    def _current_loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return self.loop


class MockBackground:
    """Background work without threads: a job runs in a later step of the loop, its callback after.

    So no callback runs within `submit`, as with real workers, but the order is always the same.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._scheduler.call_soon(lambda: self._run_job(job, on_done, on_error))

    async def run(self, job: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return job()

    def _run_job(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None,
        on_error: Callable[[BaseException], object] | None,
    ) -> None:
        try:
            result = job()
        except Exception as error:
            self._report(job, error, on_error)
            return
        if on_done is not None:
            deliver = on_done
            self._scheduler.call_soon(lambda: deliver(result))

    def _report(
        self,
        job: Callable[[], object],
        error: Exception,
        on_error: Callable[[BaseException], object] | None,
    ) -> None:
        if on_error is None:
            background_logger.error("The background job %r failed", job, exc_info=error)
            return
        self._scheduler.call_soon(lambda: on_error(error))


@dataclass(frozen=True, slots=True)
class MockRuntime(Runtime):
    """A `Runtime` whose parts a test can get at under their own types."""

    clock: MockClock
    scheduler: MockScheduler
    background: MockBackground
    disk: MemoryDisk
    network: MemoryNetwork

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass, and run everything that falls due."""
        self.scheduler.advance(ms)


def mock_runtime(seed: int = 0, disk: MemoryDisk | None = None) -> MockRuntime:
    """A new runtime: time stands still, the disk is empty or given, randomness is seeded."""
    clock = MockClock()
    scheduler = MockScheduler(clock)
    return MockRuntime(
        clock=clock,
        scheduler=scheduler,
        background=MockBackground(scheduler),
        disk=disk or MemoryDisk(),
        network=MemoryNetwork(),
        random=random.Random(seed),
    )
