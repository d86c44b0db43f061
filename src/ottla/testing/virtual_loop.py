"""Virtual time: a clock that stands still until it is advanced, and an event loop on it.

The loop has no threads and no selector, and runs only when it is asked to.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, ClassVar, Self, TypeVar, TypeVarTuple, cast

from ottla.runtime.timing_wheel import SystemTimer, TimerTask

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_MS = 1_700_000_000_000
MAX_STEPS_WITHOUT_TIME = 1_000_000


class MockClock:
    """Both clocks, moved by hand. The wall clock can be set apart from the monotonic one."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def advance(self, ms: int) -> None:
        """Move both clocks; timers do not run (`MockScheduler.advance` runs them)."""
        if ms < 0:
            raise ValueError(f"time cannot go back by {-ms} ms")
        self._now_ms += ms
        self._monotonic_ms += ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Step the wall clock to any time, as an operator or a time server may."""
        self._now_ms = now_ms


class TimelessError(RuntimeError):
    """Callbacks schedule each other without end while no time passes: really a busy loop."""


class VirtualTimerHandle(asyncio.TimerHandle):
    """A loop timer that sits on the timing wheel."""

    task: TimerTask | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        super().cancel()


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks, tasks and timers in a fixed order on a mock clock.

    It has the parts that coroutines need (futures, tasks, sleeping, timeouts) and nothing that
    reaches outside: no sockets, no threads, no processes.
    """

    task_class: ClassVar[type[asyncio.Task[Any]]] = asyncio.Task
    future_class: ClassVar[type[asyncio.Future[Any]]] = asyncio.Future
    min_delay_ms: ClassVar[int] = 0
    """The shortest time that a timer of asyncio's takes."""

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self._timer = SystemTimer(clock.monotonic_ms())
        self._ready: deque[asyncio.Handle] = deque()
        self._is_running = False

    @classmethod
    def on(cls, clock: MockClock) -> Self:
        """A loop on this clock. (Made by `cls`: type checkers take asyncio's base for abstract.)"""
        return cls(clock)

    # Driving

    def advance(self, ms: int) -> None:
        """Let `ms` pass: everything due in that time runs at its own moment, in order."""
        end_ms = self.clock.monotonic_ms() + ms
        self.run_ready()
        while (next_ms := self._timer.next_expiration_ms()) is not None and next_ms <= end_ms:
            self._step_to(next_ms)
        self._step_to(end_ms)

    def next_due_ms(self) -> int | None:
        """When there is something to do next, at the latest; None if nothing waits for time."""
        return self._timer.next_expiration_ms()

    def run_ready(self) -> None:
        """Run callbacks and tasks as far as they get without time passing."""
        self._run(lambda: None)

    def run_due(self) -> None:
        """Run due timers after another object has moved the clock."""
        self._run(lambda: self._timer.advance(self.clock.monotonic_ms()))

    def run_until_complete(self, future: Awaitable[T] | Generator[Any, None, T]) -> T:
        """Run until the future is done; time passes whenever there is nothing else to do."""
        task: asyncio.Future[T] = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        self.run_ready()
        while not task.done():
            next_ms = self._timer.next_expiration_ms()
            if next_ms is None:
                task.cancel()
                self.run_ready()
                raise RuntimeError(f"{task!r} waited for something that nothing is going to do")
            self._step_to(next_ms)
        return task.result()

    def add_timer(self, delay_ms: int, callback: Callable[[], object]) -> TimerTask:
        """Run `callback` when `delay_ms` have passed; at the next chance when that is 0."""
        now_ms = self.clock.monotonic_ms()
        if delay_ms > 0:
            return self._timer.add(now_ms, delay_ms, callback)
        task = TimerTask(now_ms, callback)
        self.call_soon(task.run)
        return task

    def _step_to(self, time_ms: int) -> None:
        # The clock may have been moved by hand, past timers that run late then.
        self.clock.advance(max(0, time_ms - self.clock.monotonic_ms()))
        self.run_due()

    def _run(self, first: Callable[[], object]) -> None:
        if self._is_running:
            raise RuntimeError("the virtual loop was driven by something that it runs itself")
        outer_loop = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            first()
            self._run_ready_handles()
        finally:
            self._is_running = False
            asyncio._set_running_loop(outer_loop)

    def _run_ready_handles(self) -> None:
        for _ in range(MAX_STEPS_WITHOUT_TIME):
            if not self._ready:
                return
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()
        raise TimelessError(f"{self._ready[0]!r} goes on for ever without time passing")

    # The interface of asyncio's loops

    def time(self) -> float:
        return self.clock.monotonic_ms() / 1000

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = VirtualTimerHandle(when, callback, args, self, context)
        delay_ms = math.ceil(when * 1000 - 1e-6) - self.clock.monotonic_ms()
        handle.task = self.add_timer(
            max(delay_ms, self.min_delay_ms), lambda: self._ready.append(handle)
        )
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return self.future_class(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return self.task_class(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        logger.error("%s", context.get("message"), exc_info=context.get("exception"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: asyncio calls this, but the handle itself has gone to the timing wheel."""
