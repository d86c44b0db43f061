"""A process of a simulated world: a loop of its own, which can be stopped at any event."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.runtime import Runtime
from ottla.runtime.background import logger as background_logger
from ottla.runtime.scheduler import PeriodicTimer, Timer, log_task_death
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.agenda import Agenda, AgendaLoop
from ottla.testing.virtual_loop import MockClock

if TYPE_CHECKING:
    from ottla.testing.simulation.world import World

T = TypeVar("T")

MAX_JOB_MS = 20


class ProcessState(Enum):
    """The state of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class WallClock:
    """The clock of a machine: monotonic time is the world's, the date may be wrong."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self.skew_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.skew_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()


class ProcessLoop(AgendaLoop):
    """The loop of a process, which may stop forever in the middle of its tasks."""

    def __init__(self, clock: MockClock, agenda: Agenda) -> None:
        super().__init__(clock, agenda)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = super().create_task(coro, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def cancel_tasks(self) -> None:
        """Cancel the tasks that wait, before the loop is discarded."""
        for task in list(self._tasks):
            task.cancel()


class ProcessScheduler:
    """`Scheduler` on the loop of one process, from any loop that it is called in."""

    def __init__(self, loop: ProcessLoop, clock: WallClock) -> None:
        self._loop = loop
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer:
        return self._loop.add_timer(delay_ms, callback)

    def call_every(self, period_ms: int, callback: Callable[[], object]) -> Timer:
        return PeriodicTimer(self, self._clock, period_ms, callback)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(log_task_death)
        return task

    async def close(self) -> None:
        """Cancel the spawned tasks, as the real scheduler does."""
        for task in sorted(self._tasks, key=lambda task: task.get_name()):
            if task is not asyncio.current_task():
                task.cancel()


class ProcessBackground:
    """Background jobs: each runs in one step, at a random moment."""

    def __init__(self, scheduler: ProcessScheduler, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._random = chance

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        def run() -> None:
            try:
                result = job()
            except Exception as error:
                self._report(job, error, on_error)
                return
            if on_done is not None:
                self._scheduler.call_soon(lambda: on_done(result))

        self._scheduler.call_later(self._random.randint(0, MAX_JOB_MS), run)

    async def run(self, job: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(job, done.set_result, done.set_exception)
        return await done

    def _report(
        self,
        job: Callable[[], object],
        error: Exception,
        on_error: Callable[[BaseException], object] | None,
    ) -> None:
        if on_error is None:
            background_logger.error("The background job %r failed", job, exc_info=error)
        else:
            self._scheduler.call_soon(lambda: on_error(error))


class SimulatedProcess:
    """One life of a program on a host. The host's disk outlives it."""

    def __init__(self, world: World, host: str, disk: MemoryDisk | None = None) -> None:
        self.world = world
        self.host = host
        self.disk = disk or MemoryDisk()
        self.state = ProcessState.RUNNING
        self.loop = ProcessLoop.over(world.clock, world.agenda)
        self.clock = WallClock(world.clock)
        self.scheduler = ProcessScheduler(self.loop, self.clock)
        chance = random.Random(world.random.getrandbits(64))
        self.network = world.network.of(self)
        self.runtime = Runtime(
            clock=self.clock,
            scheduler=self.scheduler,
            background=ProcessBackground(self.scheduler, chance),
            disk=self.disk,
            network=self.network,
            random=chance,
        )
        world.add(self)

    def __repr__(self) -> str:
        return f"SimulatedProcess({self.host}, {self.state.value})"

    @property
    def is_running(self) -> bool:
        return self.state is ProcessState.RUNNING

    @property
    def is_alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin to run a coroutine in the process."""
        return self.scheduler.spawn(coroutine, name)

    def pause(self) -> None:
        """Pause it (SIGSTOP): it does nothing, and cannot tell for how long."""
        if self.is_running:
            self.state = ProcessState.PAUSED
            self.loop.sleep()

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            self.loop.wake_up()

    def kill(self) -> None:
        """Kill it (SIGKILL): not one more instruction. What it has sent and written stays."""
        if self.is_alive:
            self.state = ProcessState.DEAD
            self.loop.sleep()
            self.disk.end_process()
            self.network.close_all()

    def lose_power(self, chance: random.Random | None) -> None:
        """Cut the machine's power: what was not synced is lost, or a random part of it.

        So are unsynced writes of a process that had died before.
        """
        self.kill()
        self.disk.crash(chance)
