"""The timing wheel: the article's vectors, demotion, cancellation."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from ottla.runtime.timing_wheel import BucketQueue, SystemTimer, TimerTask, TimingWheel


def nothing() -> None:
    """What tasks do where only their place matters."""


def slot_of(wheel: TimingWheel, task: TimerTask) -> int | None:
    """The index of the bucket of this level that holds the task."""
    for index, bucket in enumerate(wheel.buckets):
        if bucket is not None and task.bucket is bucket:
            return index
    return None


def wheel_at(time_ms: int) -> TimingWheel:
    return TimingWheel(tick_ms=1, wheel_size=20, start_ms=time_ms, queue=BucketQueue())


@pytest.mark.parametrize(
    ("current_time_ms", "delay_ms", "slot"),
    [(0, 2, 2), (2, 8, 10), (2, 19, 1)],
    ids=["third slot", "eleventh slot", "second slot"],
)
def test_wheel_puts_a_task_in_the_slot_of_its_expiration(
    current_time_ms: int, delay_ms: int, slot: int
) -> None:
    """Slot = expiration / tick mod size: at 0, 2 ms -> 3rd; at 2, 8 ms -> 11th and 19 ms -> 2nd."""
    wheel = wheel_at(current_time_ms)
    task = TimerTask(current_time_ms + delay_ms, nothing)

    assert wheel.add(task)
    assert slot_of(wheel, task) == slot


def test_wheel_sends_a_task_beyond_its_interval_to_the_next_level() -> None:
    """350 ms are more than 20 slots of 1 ms: level 2 has slots of 20 ms, and the 18th is for it."""
    wheel = wheel_at(0)
    task = TimerTask(350, nothing)
    wheel.add(task)

    assert slot_of(wheel, task) is None
    assert wheel.overflow_wheel.tick_ms == 20
    assert slot_of(wheel.overflow_wheel, task) == 350 // 20


def test_levels_have_the_interval_of_the_level_below_as_tick() -> None:
    """20, 400 and 8000 ms are reached by three levels."""
    level_1 = wheel_at(0)
    level_2 = level_1.overflow_wheel
    level_3 = level_2.overflow_wheel

    assert [level.interval_ms for level in (level_1, level_2, level_3)] == [20, 400, 8000]
    assert [level.tick_ms for level in (level_1, level_2, level_3)] == [1, 20, 400]


def test_wheel_refuses_a_task_that_is_due() -> None:
    """A task for the current tick or before it belongs in no bucket."""
    wheel = wheel_at(10)

    assert not wheel.add(TimerTask(10, nothing))
    assert wheel.add(TimerTask(11, nothing))


def test_timer_demotes_a_task_until_level_1_runs_it_at_its_millisecond() -> None:
    """A task of 350 ms leaves level 2 at 340 ms, and runs at 350 ms, not before."""
    timer = SystemTimer(0)
    ran: list[str] = []
    timer.add(0, 350, lambda: ran.append("task"))

    assert timer.next_expiration_ms() == 340
    assert timer.advance(349) == 0
    assert timer.next_expiration_ms() == 350
    assert timer.advance(350) == 1
    assert ran == ["task"]


def test_timer_has_nothing_to_wait_for_after_the_only_task_is_cancelled() -> None:
    """Buckets that cancellation has emptied do not wake anybody."""
    timer = SystemTimer(0)
    task = timer.add(0, 30_000, nothing)
    task.cancel()

    assert timer.next_expiration_ms() is None
    assert len(timer) == 0


def test_cancel_takes_effect_on_a_task_of_the_bucket_that_is_being_run() -> None:
    """The first of two tasks of one millisecond cancels the second."""
    timer = SystemTimer(0)
    ran: list[str] = []
    tasks = [timer.add(0, 5, lambda: (ran.append("first"), tasks[1].cancel()))]
    tasks.append(timer.add(0, 5, lambda: ran.append("second")))
    timer.advance(5)

    assert ran == ["first"]


def test_bucket_emptied_by_cancellation_can_be_used_again_for_the_same_time() -> None:
    """A task for a time whose bucket was dropped from the heap still runs."""
    timer = SystemTimer(0)
    timer.add(0, 7, nothing).cancel()
    assert timer.next_expiration_ms() is None
    timer.add(0, 7, nothing)

    assert timer.next_expiration_ms() == 7
    assert timer.advance(7) == 1


def test_timer_runs_the_others_when_a_callback_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged with its traceback, and nobody else suffers."""
    timer = SystemTimer(0)
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("no luck")

    timer.add(0, 1, fail)
    timer.add(0, 1, lambda: ran.append("other"))
    with caplog.at_level(logging.ERROR):
        timer.advance(1)

    assert ran == ["other"]
    assert "no luck" in caplog.text


def test_task_added_after_a_long_silence_goes_to_the_lowest_level() -> None:
    """The wheels follow the clock while nothing waits, so that a short delay needs no demotion."""
    timer = SystemTimer(0)
    timer.advance(1_000_000)
    timer.add(1_000_003, 5, nothing)

    assert timer.next_expiration_ms() == 1_000_008


def test_timer_runs_some_of_what_is_due_at_a_time() -> None:
    """In order; a task that is cancelled before its turn is passed over, and counts for none."""
    timer, ran = SystemTimer(0), []
    tasks = [timer.add(0, 5 + number // 4, partial(ran.append, number)) for number in range(8)]
    assert timer.advance(10, 3) == 3
    assert (ran, timer.next_expiration_ms(), len(timer)) == ([0, 1, 2], 5, 5)
    tasks[3].cancel()
    tasks[5].cancel()
    timer.add(10, 1, partial(ran.append, "later"))
    assert timer.advance(10, 2) == 2
    assert timer.advance(10) == 1

    assert ran == [0, 1, 2, 4, 6, 7]
    assert timer.next_expiration_ms() == 11
    assert timer.advance(11) == 1
