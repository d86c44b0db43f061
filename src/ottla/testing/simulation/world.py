"""The world: processes that share one clock, and an order of events drawn from a seed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from ottla.testing.simulation.agenda import Agenda, AgendaLoop
from ottla.testing.simulation.network import SimulatedNetwork
from ottla.testing.simulation.process import SimulatedProcess
from ottla.testing.virtual_loop import MockClock

CLOSING_ROUNDS: Final = 3
CLOSING_ROUND_MS: Final = 60_000


class World:
    """Runs one event after another, each to its end; time passes when no loop is ready.

    Each process has a loop of its own; `loop` runs what lies between them: deliveries, the servers
    of the registry, the nemesis. A process that does not run, because it is paused or dead, is
    skipped; its events wait, forever if it is dead.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = MockClock()
        self.agenda = Agenda()
        self.loop = AgendaLoop.over(self.clock, self.agenda)
        self.network = SimulatedNetwork(self)
        self.processes: list[SimulatedProcess] = []
        self.step_count = 0
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

        What they do meanwhile has no consequences: the world is no longer checked.
        """
        disabled = logging.root.manager.disable
        logging.disable()
        self.loop.sleep()  # no event of the world starts anything
        try:
            for process in self.processes:
                process.network.close_all()
                process.loop.wake_up()
            for _ in range(CLOSING_ROUNDS):
                for process in self.processes:
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
        due = list(agenda.take_due(self.now_ms).items())
        self.random.shuffle(due)
        for loop, timers in due:
            loop.run_timers(timers)
        return True
