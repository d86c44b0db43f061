"""Timers on wheels, with a heap as the oracle."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from ottla.runtime.timing_wheel import SystemTimer, TimerTask

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 200_000)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.integers(0, 20_000)),
    ),
    max_size=60,
)


@given(start_ms=st.integers(0, 10**6), steps=STEPS)
def test_timer_runs_the_same_tasks_at_the_same_time_as_a_heap(
    start_ms: int, steps: list[tuple[str, int]]
) -> None:
    """Whatever is added, cancelled and waited for: the order is that of expirations."""
    timer = SystemTimer(start_ms)
    now_ms = start_ms
    heap: list[tuple[int, int]] = []
    tasks: list[TimerTask] = []
    ran: list[int] = []
    for step, value in steps:
        if step == "add":
            number = len(tasks)
            tasks.append(timer.add(now_ms, value, lambda number=number: ran.append(number)))
            heapq.heappush(heap, (now_ms + value, number))
        elif step == "cancel" and value < len(tasks):
            tasks[value].cancel()
            heap = [entry for entry in heap if entry[1] != value]
            heapq.heapify(heap)
        elif step == "advance":
            now_ms += value
            ran.clear()
            timer.advance(now_ms)
            due = []
            while heap and heap[0][0] <= now_ms:
                due.append(heapq.heappop(heap))
            assert sorted(ran) == sorted(number for _, number in due)
            expirations = [tasks[number].expiration_ms for number in ran]
            assert expirations == sorted(expirations)
        assert len(timer) == len(heap)
        if heap:
            next_ms = timer.next_expiration_ms()
            assert next_ms is not None
            assert next_ms <= heap[0][0]
