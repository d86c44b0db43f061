"""The world: processes that share one clock, and an order of events drawn from a seed.

A process has a loop of its own, and can be stopped at any event.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from ottla.runtime import Runtime
from ottla.runtime.scheduler import PeriodicTimer, Timer, log_task_death
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.runtime import run_job
from ottla.testing.simulation.agenda import Agenda, AgendaLoop
from ottla.testing.simulation.network import ProcessNetwork, SimulatedNetwork
from ottla.testing.virtual_loop import MAX_STEPS_WITHOUT_TIME, MockClock

T = TypeVar("T")

MAX_JOB_MS = 20
CLOSING_ROUNDS: Final = 20
CLOSING_ROUND_MS: Final = 60_000


class Turns:
    """How long turns of the loops of processes take: a share of them up to so many milliseconds."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self.share = 0.1
        self.max_ms = 3

    def next_ms(self) -> int:
        """The time of the next turn; most take none."""
        if self._random.random() >= self.share:
            return 0
        return self._random.randint(1, self.max_ms)


class World:
    """Runs one event after another, each to its end; time passes when no loop is ready.

    Each process has a loop of its own; `loop` runs the rest of the world: deliveries, the servers
    of the registry, the nemesis. A process that does not run, because it is paused or dead, is
    skipped; its events wait, forever if it is dead.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = MockClock()
        self.agenda = Agenda()
        self.loop = AgendaLoop.over(self.clock, self.agenda)
        self.network = SimulatedNetwork(self.clock, self.loop, self.random)
        self.processes: list[SimulatedProcess] = []
        self.step_count = 0
        self.turns: Turns | None = None
        """How long turns of the loops of processes take; without it, no time."""
        self.after_step: Callable[[], object] = lambda: None

    def add(self, process: SimulatedProcess) -> None:
        """Add a process. It stays here after its end, so that nothing of it is collected.

        The collector closes coroutines, and so runs their `finally` clauses; death does not.
        """
        self.processes.append(process)

    @property
    def now_ms(self) -> int:
        """The milliseconds since the world began."""
        return self.clock.monotonic_ms()

    def run(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        self.run_until(lambda: False, ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Run until the condition holds, for `limit_ms` at most; whether it does."""
        end_ms = self.now_ms + limit_ms
        try:
            while not condition():
                if not self._step(end_ms):
                    return condition()
                self.after_step()
            return True
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        """End every task, also those of the dead, so that nothing is left for the collector.

        Their actions meanwhile have no consequences: the world is no longer checked.
        """
        disabled = logging.root.manager.disable
        logging.disable()
        self.loop.sleep()  # no event of the world starts anything
        try:
            for process in self.processes:
                process.loop.turns = None
                process.network.close_all()
                process.loop.wake_up()
            for _ in range(CLOSING_ROUNDS):
                busy = [each for each in self.processes if each.loop.has_tasks]
                if not busy:
                    break
                for process in busy:
                    process.loop.cancel_tasks()
                    process.loop.run_ready()
                self.clock.advance(CLOSING_ROUND_MS)
                for loop, timers in self.agenda.take_due(self.now_ms).items():
                    loop.run_timers(timers)
        finally:
            asyncio._set_running_loop(None)
            logging.disable(disabled)

    def _step(self, end_ms: int) -> bool:
        """Run one process as far as it gets, or let time pass; False at `end_ms`."""
        self.step_count += 1
        agenda, ready = self.agenda, self.agenda.ready
        if ready:
            loop = ready.pop(self.random.randrange(len(ready)) if len(ready) > 1 else 0)
            loop.run_ready()
            return True
        due_ms = agenda.next_due_ms()
        if due_ms is None or due_ms > end_ms:
            self.clock.advance(max(0, end_ms - self.now_ms))
            return False
        self.clock.advance(max(0, due_ms - self.now_ms))
        agenda.run_due(self.now_ms, self.random)
        return True


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
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_ns = clock.monotonic_ns

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.skew_ms


class ProcessLoop(AgendaLoop):
    """The loop of a process, which may stop forever in the middle of its tasks."""

    def __init__(self, clock: MockClock, agenda: Agenda) -> None:
        super().__init__(clock, agenda)
        self.turns: Turns | None = None
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

    def _run_ready_handles(self) -> None:
        """Run all that is ready; where turns take time, other processes may come between two."""
        if self.turns is None:
            super()._run_ready_handles()
            return
        for _ in range(MAX_STEPS_WITHOUT_TIME):
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if not self._ready:
                return
            turn_ms = self.turns.next_ms()
            if turn_ms:
                self.add_timer(turn_ms, lambda: None)
                return

    @property
    def has_tasks(self) -> bool:
        """Whether some task has not ended."""
        return bool(self._tasks)

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


def usual_job_ms(chance: random.Random) -> int:
    """How long a background job takes on a disk that is not slow."""
    return chance.randint(0, MAX_JOB_MS)


class ProcessBackground:
    """Background jobs: each runs in one step, at a random moment."""

    def __init__(self, scheduler: ProcessScheduler, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._random = chance
        self.job_ms: Callable[[random.Random], int] = usual_job_ms
        """How long a job takes."""

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        run = partial(run_job, self._scheduler, job, on_done, on_error)
        self._scheduler.call_later(self.job_ms(self._random), run)

    async def run(self, job: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(job, done.set_result, done.set_exception)
        return await done

    async def run_at_once(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        return await asyncio.gather(*map(self.run, jobs))


class SimulatedProcess:
    """One life of a program on a host. The host's disk outlives it."""

    def __init__(
        self,
        world: World,
        host: str,
        disk: MemoryDisk | None = None,
        loop: ProcessLoop | None = None,
    ) -> None:
        self.world = world
        self.host = host
        self.disk = disk or MemoryDisk()
        self.state = ProcessState.RUNNING
        self.is_told_to_stop = False
        """Whether its program is to come to an end, when it next looks (SIGTERM)."""
        self.loop = loop or ProcessLoop.over(world.clock, world.agenda)
        self.loop.turns = world.turns
        self.clock = WallClock(world.clock)
        self.disk.now_ms = self.clock.now_ms
        self.scheduler = ProcessScheduler(self.loop, self.clock)
        chance = random.Random(world.random.getrandbits(64))
        self.network = ProcessNetwork(world.network, host, self.loop)
        self.background = ProcessBackground(self.scheduler, chance)
        self.runtime = Runtime(
            clock=self.clock,
            scheduler=self.scheduler,
            background=self.background,
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
        """Kill it (SIGKILL): not one more instruction. Its messages and writes stay."""
        if self.is_alive:
            self.state = ProcessState.DEAD
            self.loop.sleep()
            self.disk.end_process()
            self.network.close_all()

    def lose_power(self, chance: random.Random | None) -> None:
        """Cut the machine's power: writes that were not synced are lost, or a random part of them.

        So are unsynced writes of a process that had died before.
        """
        self.kill()
        self.disk.crash(chance)
