"""The agenda of a world: the loops that are ready, and the timers of all loops."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Self, TypeVarTuple

from ottla.runtime.timing_wheel import TimerTask
from ottla.testing.virtual_loop import MockClock, VirtualLoop

Ts = TypeVarTuple("Ts")

Entry = tuple[int, int, "AgendaLoop", TimerTask]


class ReadyHandle(asyncio.Handle):
    """A handle of a loop without a debug mode: nothing is asked for, and no stack is kept."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class Agenda:
    """One heap for all timers of a world, and a list of the loops that have something to run.

    Loops that sleep, as those of paused and dead processes do, are in neither: their timers are
    put aside when they are due, and come back when the loop wakes up.
    """

    def __init__(self) -> None:
        self.ready: list[AgendaLoop] = []
        self._heap: list[Entry] = []
        self._order = count()

    def add(self, loop: AgendaLoop, task: TimerTask) -> None:
        heapq.heappush(self._heap, (task.expiration_ms, next(self._order), loop, task))

    def restore(self, entry: Entry) -> None:
        heapq.heappush(self._heap, entry)

    def next_due_ms(self) -> int | None:
        """When the first timer of a loop that does not sleep is due."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if entry[3].callback is not None:
                if not entry[2].is_asleep:
                    return entry[0]
                entry[2].put_aside(entry)
            heapq.heappop(heap)
        return None

    def run_due(self, now_ms: int, chance: random.Random) -> None:
        """Run due timers, loop by loop in a random order, each in the order of time."""
        heap = self._heap
        first = heapq.heappop(heap)
        if not heap or heap[0][0] > now_ms:  # as nearly always
            first[2].run_timers((first,))
            return
        heapq.heappush(heap, first)
        due = list(self.take_due(now_ms).items())
        chance.shuffle(due)
        for loop, timers in due:
            loop.run_timers(timers)

    def take_due(self, now_ms: int) -> dict[AgendaLoop, list[Entry]]:
        """Take out due timers, by loop, each in the order of time."""
        due: dict[AgendaLoop, list[Entry]] = {}
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            if entry[3].callback is None:
                continue
            if entry[2].is_asleep:
                entry[2].put_aside(entry)
            else:
                due.setdefault(entry[2], []).append(entry)
        return due


class AgendaLoop(VirtualLoop):
    """A loop that notes in the agenda when it can run, and keeps its timers there."""

    def __init__(self, clock: MockClock, agenda: Agenda) -> None:
        super().__init__(clock)
        self.is_asleep = False
        self._now_ms = clock.monotonic_ms
        self._agenda = agenda
        self._put_aside: list[Entry] = []

    @classmethod
    def over(cls, clock: MockClock, agenda: Agenda) -> Self:
        """A loop that shares its agenda with others."""
        return cls(clock, agenda)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = ReadyHandle(callback, args, self, context)
        if not self._ready and not self._is_running and not self.is_asleep:
            self._agenda.ready.append(self)
        self._ready.append(handle)
        return handle

    def add_timer(self, delay_ms: int, callback: Callable[[], object]) -> TimerTask:
        if delay_ms > 0:
            task = TimerTask(self._now_ms() + delay_ms, callback)
            self._agenda.add(self, task)
        else:
            task = TimerTask(self._now_ms(), callback)
            self.call_soon(task.run)
        return task

    def run_ready(self) -> None:
        self.run_timers(())

    def run_timers(self, due: Sequence[Entry]) -> None:
        """Run due timers, and the callbacks that become ready; a sleeping loop keeps them."""
        if due and self.is_asleep:
            self._put_aside += due
            return
        # As in the base class, but the world resets the running loop, once for very many runs.
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            for _, _, _, task in due:
                task.run()
            self._run_ready_handles()
        finally:
            self._is_running = False

    def put_aside(self, entry: Entry) -> None:
        self._put_aside.append(entry)

    def sleep(self) -> None:
        """Run nothing, and no timer, until `wake_up`."""
        self.is_asleep = True
        if self in self._agenda.ready:
            self._agenda.ready.remove(self)

    def wake_up(self) -> None:
        """Run again; timers that fell due in the meantime run now."""
        if not self.is_asleep:
            return
        self.is_asleep = False
        entries, self._put_aside = self._put_aside, []
        for entry in entries:
            self._agenda.restore(entry)
        if self._ready:
            self._agenda.ready.append(self)
