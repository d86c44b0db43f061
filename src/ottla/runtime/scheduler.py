"""The clocks, and work for later on the one thread that owns the broker's state."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeGuard, TypeVar

from ottla.errors import KafkaTimeoutError
from ottla.runtime.clock import Clock
from ottla.runtime.timing_wheel import SystemTimer, TimerTask

logger = logging.getLogger(__name__)


T = TypeVar("T")
U = TypeVar("U")

CANCEL_AGAIN_S: Final = 2.0
"""A cancellation can get lost in a race; one task that goes on would keep a process alive."""


class Timer(Protocol):
    """Something that will run later unless it is cancelled."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """Runs callbacks on the loop's thread; exceptions of a callback are logged, nothing more."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run it in the next turn of the loop."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer: ...

    def call_every(self, period_ms: int, callback: Callable[[], object]) -> Timer:
        """Run it first after one period; turns that were missed are not made up for."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a coroutine as a task of its own; a task that dies of an exception is logged."""
        ...


class PeriodicTimer:
    """A callback that is scheduled again before each run, one period after the last due time."""

    __slots__ = ("_callback", "_clock", "_due_ms", "_period_ms", "_scheduler", "_timer")

    def __init__(
        self, scheduler: Scheduler, clock: Clock, period_ms: int, callback: Callable[[], object]
    ) -> None:
        if period_ms <= 0:
            raise ValueError(f"the period of a timer is {period_ms} ms: it must be positive")
        self._scheduler = scheduler
        self._clock = clock
        self._period_ms = period_ms
        self._callback = callback
        self._due_ms = clock.monotonic_ms() + period_ms
        self._timer: Timer = scheduler.call_later(period_ms, self._run)

    def cancel(self) -> None:
        self._timer.cancel()

    def _run(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._due_ms = max(self._due_ms + self._period_ms, now_ms + 1)
        self._timer = self._scheduler.call_later(self._due_ms - now_ms, self._run)
        self._callback()


TIMERS_AT_ONCE: Final = 300
"""Thousands of sessions may end at one moment; other clients are served between them."""


class LoopScheduler:
    """The scheduler of an asyncio loop: timers share one timing wheel, the wheel one loop timer.

    Invariant: while a task waits, the loop timer is armed for the wheel's next expiration or
    earlier. A loop timer that turns out to be too early, because tasks were cancelled, is simply
    armed again.
    """

    __slots__ = ("_armed_ms", "_clock", "_handle", "_is_closed", "_loop", "_tasks", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._timer = SystemTimer(clock.monotonic_ms())
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._is_closed = False
        # The loop itself holds tasks only weakly: a task that is not awaited could be collected.
        self._tasks: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer:
        now_ms = self._clock.monotonic_ms()
        if delay_ms <= 0:
            task = TimerTask(now_ms, callback)
            self._loop.call_soon(task.run)
            return task
        task = self._timer.add(now_ms, delay_ms, callback)
        if self._handle is None or task.expiration_ms < self._armed_ms:
            self._arm(now_ms)
        return task

    def call_every(self, period_ms: int, callback: Callable[[], object]) -> Timer:
        return PeriodicTimer(self, self._clock, period_ms, callback)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        if self._is_closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """Cancel calls that wait or run, and wait until the tasks are gone.

        One that is begun later, as the end of others does, is cancelled before its first step.
        """
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        waiting = {task for task in self._tasks if task is not asyncio.current_task()}
        while waiting:
            for task in waiting:
                task.cancel()
            _, waiting = await asyncio.wait(waiting, timeout=CANCEL_AGAIN_S)
            for task in waiting:
                logger.warning("%s does not end, and is cancelled again", task.get_name())

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        log_task_death(task)

    def _arm(self, now_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        expiration_ms = self._timer.next_expiration_ms()
        if expiration_ms is not None:
            self._armed_ms = expiration_ms
            delay_ms = max(0, expiration_ms - now_ms)
            self._handle = self._loop.call_later(delay_ms / 1000, self._advance)

    def _advance(self) -> None:
        self._handle = None
        self._timer.advance(self._clock.monotonic_ms(), TIMERS_AT_ONCE)
        # A callback may have armed the loop timer for a task of its own: the earliest one counts.
        self._arm(self._clock.monotonic_ms())


def log_task_death(task: asyncio.Task[Any]) -> None:
    """Log the exception that ended a task, with its traceback; being cancelled is no death."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        logger.error("The task %s died", task.get_name(), exc_info=error)


def is_under_way(task: asyncio.Task[T] | None) -> TypeGuard[asyncio.Task[T]]:
    """Whether there is such a task, and it has not ended.

    A task that is cancelled before its first step runs nothing, not even a `finally`: it cannot
    note itself that it is over.
    """
    return task is not None and not task.done()


async def pause(scheduler: Scheduler, delay_ms: int) -> None:
    """Let others run for that long."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    timer = scheduler.call_later(delay_ms, end)
    try:
        await over
    finally:
        timer.cancel()


async def within(scheduler: Scheduler, timeout_ms: int, awaitable: Awaitable[T], what: str) -> T:
    """The result of `awaitable`, or KafkaTimeoutError and its cancellation after `timeout_ms`.

    It runs in the caller's task: a cancellation of the caller reaches it, and never passes for a
    timeout. A task that must continue after the time is given as `asyncio.shield(task)`.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled_before = task.cancelling()
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = scheduler.call_later(timeout_ms, expire)
    try:
        return await awaitable
    except asyncio.CancelledError:
        if not expired or task.cancelling() > cancelled_before + 1:
            raise
        raise KafkaTimeoutError(f"{what} within {timeout_ms} ms") from None
    finally:
        timer.cancel()
        if expired:
            task.uncancel()


GATHERED: Final = 500


async def gather_each(
    function: Callable[[U], Coroutine[Any, Any, T]], items: Iterable[U]
) -> list[T]:
    """The result of the function for each item: many at a time, but not thousands in one step."""
    found: list[T] = []
    left = iter(items)
    while some := list(islice(left, GATHERED)):
        found += await asyncio.gather(*map(function, some))
    return found


Work = Generator[None, None, T]
"""Work that yields where it may pause, and returns its result."""


def at_once(work: Work[T]) -> T:
    """Do all of such work without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


FREED_AT_ONCE: Final = 5_000


def emptied(maps: Iterable[dict[Any, Any]]) -> Work[None]:
    """Free the memory of what was forgotten, in slices: that of a million objects takes 0.2 s."""
    freed = 0
    for each in maps:
        while each:
            each.popitem()
            freed += 1
            if not freed % FREED_AT_ONCE:
                yield


class Slices:
    """Long pieces of work on the loop, in turns: each turn of it has one slice, of one of them."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no work waits for its turn."""
        return not self._waiting

    async def pause(self) -> None:
        """Wait for the next turn, and for those that have waited longer."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            loop.call_soon(self._wake_next, loop)
        await waiter

    def begin(
        self, work: Work[T], is_wanted: Callable[[], bool] = lambda: True
    ) -> T | Coroutine[Any, Any, T]:
        """The result of work that does not pause, or else an awaitable of its rest.

        The rest ends with KafkaTimeoutError in a pause after which it `is_wanted` no more.
        """
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        return self._go_on(work, is_wanted)

    async def _go_on(self, work: Work[T], is_wanted: Callable[[], bool]) -> T:
        while True:
            await self.pause()
            if not is_wanted():
                work.close()
                raise KafkaTimeoutError("nobody waits for it any longer")
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result

    async def do(self, work: Work[T]) -> T:
        """The result of work, after as many turns as it has pauses."""
        result = self.begin(work)
        return await result if isinstance(result, Coroutine) else result

    async def parts(self, items: Iterable[T], most: int) -> AsyncIterator[list[T]]:
        """The items in lists of at most so many, with a pause between any two of these."""
        left = iter(items)
        part = list(islice(left, most))
        while part:
            yield part
            if part := list(islice(left, most)):
                await self.pause()

    async def over(self, items: Iterable[T], most: int) -> AsyncIterator[T]:
        """The items, with a pause after each `most` of them; their source may have changed then."""
        for count, item in enumerate(items):
            if count and not count % most:
                await self.pause()
            yield item

    def _wake_next(self, loop: asyncio.AbstractEventLoop) -> None:
        waiter = self._waiting.popleft()
        if not waiter.done():
            waiter.set_result(None)
        if self._waiting:
            loop.call_soon(self._wake_next, loop)
