"""Timers: the hierarchical timing wheel beside a binary heap (heapq, written in C) in the same run.

The load is a broker's: operations with time limits of up to 30 s, almost all of which are
cancelled long before; and timers that do expire. The heap cancels by leaving a dead entry behind,
as asyncio does. The wheel costs the same however many timers wait; what a heap costs grows.
"""

from __future__ import annotations

import heapq
import os
import random
import time
from collections.abc import Callable
from typing import Any

from ottla.runtime.timing_wheel import SystemTimer, TimerTask

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
OPERATIONS = 200_000
MAX_DELAY_MS = 30_000

# A timer, and how to cancel what its `add` returns.
MakeTimer = Callable[[], tuple[Any, Callable[[Any], None]]]


class HeapTimer:
    """The peer: entries [expiration, order, callback]; a cancelled one has no callback."""

    def __init__(self) -> None:
        self._heap: list[list[object]] = []
        self._order = 0

    def add(self, now_ms: int, delay_ms: int, callback: Callable[[], object]) -> list[object]:
        self._order += 1
        entry: list[object] = [now_ms + delay_ms, self._order, callback]
        heapq.heappush(self._heap, entry)
        return entry

    def advance(self, now_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            callback = heapq.heappop(heap)[2]
            if callback is not None:
                callback()


def nothing() -> None:
    """What the timers of the benchmark do."""


def delays(count: int, max_delay_ms: int = MAX_DELAY_MS) -> list[int]:
    chance = random.Random(1)
    return [chance.randrange(1, max_delay_ms) for _ in range(count)]


def cancel_task(task: TimerTask) -> None:
    task.cancel()


def cancel_entry(entry: list[object]) -> None:
    entry[2] = None


def add_and_cancel(make: MakeTimer, waiting: int) -> float:
    """Time stands still while `waiting` other timers wait: insertion and deletion alone."""
    timer, cancel = make()
    for delay_ms in delays(waiting):
        timer.add(0, delay_ms, nothing)
    wanted = delays(OPERATIONS)
    start = time.perf_counter()
    for delay_ms in wanted:
        cancel(timer.add(0, delay_ms, nothing))
    return time.perf_counter() - start


def cancel_as_time_passes(make: MakeTimer, _: int) -> float:
    """20 timers a millisecond, all cancelled at once, until the first ones would have expired."""
    timer, cancel = make()
    wanted = delays(OPERATIONS, OPERATIONS // 40)
    start = time.perf_counter()
    for number, delay_ms in enumerate(wanted):
        now_ms = number // 20
        cancel(timer.add(now_ms, delay_ms, nothing))
        if number % 20 == 0:
            timer.advance(now_ms)
    return time.perf_counter() - start


def add_and_expire(make: MakeTimer, _: int) -> float:
    """Timers over 30 s, and time in steps of 1 ms until all of them have run."""
    timer, _cancel = make()
    wanted = delays(OPERATIONS)
    start = time.perf_counter()
    for delay_ms in wanted:
        timer.add(0, delay_ms, nothing)
    for now_ms in range(MAX_DELAY_MS + 1):
        timer.advance(now_ms)
    return time.perf_counter() - start


def main() -> None:
    cases: list[tuple[str, Callable[[MakeTimer, int], float], int]] = [
        ("add and cancel, 1,000 waiting", add_and_cancel, 1_000),
        ("add and cancel, 100,000 waiting", add_and_cancel, 100_000),
        ("cancel as time passes", cancel_as_time_passes, 0),
        ("add and expire", add_and_expire, 0),
    ]
    print(f"ns per timer, best of {RUNS}")
    print(f"{'':32}{'wheel':>10}{'heapq':>10}")
    for name, measure, waiting in cases:
        costs = [
            min(measure(make, waiting) for _ in range(RUNS)) / OPERATIONS * 1e9
            for make in (lambda: (SystemTimer(0), cancel_task), lambda: (HeapTimer(), cancel_entry))
        ]
        print(f"{name:32}{costs[0]:>10.0f}{costs[1]:>10.0f}")


if __name__ == "__main__":
    main()
