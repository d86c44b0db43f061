"""The scheduler on a real asyncio loop: order, cancellation, and tasks that die."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.errors import KafkaTimeoutError
from ottla.runtime import LoopScheduler, Slices, SystemClock, real_runtime, scheduler
from ottla.runtime.scheduler import Work, emptied, pause, within
from ottla.testing import MockRuntime, mock_runtime


def run(test: Callable[[LoopScheduler], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a new loop with its scheduler."""

    async def main() -> None:
        scheduler = LoopScheduler(asyncio.get_running_loop(), SystemClock())
        await test(scheduler)
        await scheduler.close()

    asyncio.run(main())


def test_timers_run_in_the_order_of_their_times_and_not_early() -> None:
    """The later timer was set first; each waits as long as was asked for (to the millisecond)."""

    async def test(scheduler: LoopScheduler) -> None:
        clock = SystemClock()
        start_ms = clock.monotonic_ms()
        ran: list[tuple[str, int]] = []
        done = asyncio.Event()

        def note(name: str) -> None:
            ran.append((name, clock.monotonic_ms() - start_ms))

        scheduler.call_later(500, lambda: (note("late"), done.set()))
        scheduler.call_later(3, lambda: note("early"))
        scheduler.call_later(0, lambda: note("now"))
        await done.wait()

        assert [name for name, _ in ran] == ["now", "early", "late"]
        assert ran[1][1] >= 3
        assert ran[2][1] >= 500

    run(test)


def test_cancelled_timer_does_not_run() -> None:
    """A waiting timer does not run, nor one that is due in this turn."""

    async def test(scheduler: LoopScheduler) -> None:
        ran: list[str] = []
        done = asyncio.Event()
        scheduler.call_later(1, lambda: ran.append("waiting")).cancel()
        scheduler.call_later(0, lambda: ran.append("due")).cancel()
        scheduler.call_later(3, done.set)
        await done.wait()

        assert ran == []

    run(test)


def test_timer_set_by_a_timer_runs_in_its_turn() -> None:
    """A callback may set a timer that is earlier than all others."""

    async def test(scheduler: LoopScheduler) -> None:
        ran: list[str] = []
        done = asyncio.Event()
        scheduler.call_later(500, lambda: (ran.append("outer last"), done.set()))
        scheduler.call_later(
            1, lambda: (ran.append("outer"), scheduler.call_later(2, lambda: ran.append("inner")))
        )
        await done.wait()

        assert ran == ["outer", "inner", "outer last"]

    run(test)


def test_periodic_timer_runs_until_it_is_cancelled() -> None:
    """It is set again before each run, so a callback can cancel it."""

    async def test(scheduler: LoopScheduler) -> None:
        ran: list[int] = []
        done = asyncio.Event()

        def tick() -> None:
            ran.append(len(ran))
            if len(ran) == 3:
                timer.cancel()
                scheduler.call_later(4, done.set)

        timer = scheduler.call_every(1, tick)
        await done.wait()

        assert ran == [0, 1, 2]

    run(test)


def test_period_must_be_positive() -> None:
    """A period of 0 would never let anything else run."""

    async def test(scheduler: LoopScheduler) -> None:
        with pytest.raises(ValueError, match="0 ms: it must be positive"):
            scheduler.call_every(0, lambda: None)

    run(test)


def test_death_of_a_spawned_task_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody awaits such a task, so nobody else would hear of it."""

    async def test(scheduler: LoopScheduler) -> None:
        async def die() -> None:
            raise KeyError("gone wrong")

        task = scheduler.spawn(die(), "doomed")
        await asyncio.wait([task])

    with caplog.at_level(logging.ERROR):
        run(test)

    assert "The task doomed died" in caplog.text
    assert "gone wrong" in caplog.text


def test_close_cancels_tasks_and_says_nothing_about_it(caplog: pytest.LogCaptureFixture) -> None:
    """Being cancelled at shutdown is not a death worth a line in the log."""
    cancelled: list[bool] = []

    async def test(scheduler: LoopScheduler) -> None:
        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        scheduler.spawn(wait(), "patient")
        await asyncio.sleep(0)

    run(test)

    assert cancelled == [True]
    assert caplog.text == ""


def test_real_runtime_has_the_clocks_of_the_machine() -> None:
    """The wall clock is in milliseconds since 1970, the other one never goes back."""

    async def test() -> None:
        runtime = real_runtime(asyncio.get_running_loop())
        first, second = runtime.clock.monotonic_ms(), runtime.clock.monotonic_ms()

        assert first <= second
        assert 1_600_000_000_000 < runtime.clock.now_ms() < 10_000_000_000_000
        await runtime.close()

    asyncio.run(test())


def test_task_that_is_begun_at_the_end_ends_as_well() -> None:
    """The loop would end before it: a task was destroyed, but pending."""
    done = []

    async def wait_and_begin(scheduler: LoopScheduler) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            done.append(scheduler.spawn(begin(), "late"))

    async def begin() -> None:
        done.append("begun")

    async def test(scheduler: LoopScheduler) -> None:
        scheduler.spawn(wait_and_begin(scheduler), "early")
        await asyncio.sleep(0)
        await scheduler.close()
        await asyncio.sleep(0)

    run(test)
    (late,) = done
    assert late.cancelled()


def test_close_cancels_again_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker could not stop because of one task that had missed its cancellation."""
    monkeypatch.setattr("ottla.runtime.scheduler.CANCEL_AGAIN_S", 0.01)
    ended = []

    async def misses_the_first() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def run() -> None:
        runtime = real_runtime(asyncio.get_running_loop())
        runtime.scheduler.spawn(misses_the_first(), "the stubborn task")
        await asyncio.sleep(0)
        await runtime.close()

    asyncio.run(run())
    assert ended == [True]
    assert "the stubborn task does not end" in caplog.text


@pytest.fixture
def runtime() -> MockRuntime:
    """Virtual time."""
    return mock_runtime()


def test_within_gives_what_comes_in_time(runtime: MockRuntime) -> None:
    """The time limit leaves no trace."""

    async def late() -> str:
        await pause(runtime.scheduler, 99)
        return "done"

    assert runtime.scheduler.run(within(runtime.scheduler, 100, late(), "nothing came")) == "done"


def test_within_cancels_what_does_not(runtime: MockRuntime) -> None:
    """KafkaTimeoutError says what was waited for; the coroutine ends."""
    ended = []

    async def too_late() -> None:
        try:
            await pause(runtime.scheduler, 101)
        except asyncio.CancelledError:
            ended.append(runtime.clock.monotonic_ms())
            raise

    with pytest.raises(KafkaTimeoutError, match="nothing came within 100 ms"):
        runtime.scheduler.run(within(runtime.scheduler, 100, too_late(), "nothing came"))
    assert ended == [100]


def test_task_that_is_cancelled_while_its_time_is_over_ends(runtime: MockRuntime) -> None:
    """A broker could not stop: a task of it took its end for a timeout, and went on."""

    async def ends_slowly() -> None:
        try:
            await pause(runtime.scheduler, 10_000)
        finally:
            await pause(runtime.scheduler, 50)

    async def asks_for_ever() -> None:
        while True:
            try:
                await within(runtime.scheduler, 100, ends_slowly(), "no answer")
            except KafkaTimeoutError:
                pass

    task = runtime.scheduler.spawn(asks_for_ever(), "asks")
    runtime.advance(120)
    task.cancel()
    runtime.advance(50)

    assert task.cancelled()


def test_result_is_not_lost_when_the_caller_is_cancelled_as_it_comes(runtime: MockRuntime) -> None:
    """A connection was lost unclosed when its task was cancelled just as it had been made."""

    async def connects() -> str:
        await pause(runtime.scheduler, 10)
        return "connected"

    task = runtime.scheduler.spawn(within(runtime.scheduler, 100, connects(), "late"), "connects")
    runtime.scheduler.run_ready()
    runtime.scheduler.call_later(10, lambda: runtime.scheduler.call_soon(task.cancel))
    runtime.advance(10)

    assert task.result() == "connected"


def test_shielded_task_goes_on_after_its_time(runtime: MockRuntime) -> None:
    """A handler answers in time, and what it was asked for is still done."""

    async def slow() -> str:
        await pause(runtime.scheduler, 150)
        return "done"

    task = runtime.scheduler.spawn(slow(), "slow")
    with pytest.raises(KafkaTimeoutError):
        runtime.scheduler.run(within(runtime.scheduler, 100, asyncio.shield(task), "not done"))
    runtime.advance(50)

    assert task.result() == "done"


def test_items_are_given_with_a_pause_after_each_slice() -> None:
    """Work of others comes between, and what waited longer comes first."""
    slices, seen = Slices(), list[tuple[str, int]]()

    async def work(name: str) -> None:
        async for item in slices.over(range(5), 2):
            seen.append((name, item))

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    asyncio.run(both())

    assert [name for name, _ in seen] == ["a", "a", "b", "b", "a", "a", "b", "b", "a", "b"]
    assert slices.is_idle


def test_parts_have_a_pause_between_them_alone() -> None:
    """One part is done in the same turn."""
    slices = Slices()

    async def play(count: int) -> tuple[list[list[int]], int]:
        async def collect() -> list[list[int]]:
            return [part async for part in slices.parts(range(count), 2)]

        turns, task = 0, asyncio.ensure_future(collect())
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return task.result(), turns

    assert asyncio.run(play(0)) == ([], 1)
    assert asyncio.run(play(2)) == ([[0, 1]], 1)
    assert asyncio.run(play(5)) == ([[0, 1], [2, 3], [4]], 5)


def test_memory_is_freed_in_slices(monkeypatch) -> None:
    """Of many maps, however much each of them holds."""
    monkeypatch.setattr(scheduler, "FREED_AT_ONCE", 3)
    maps = [dict.fromkeys(range(size)) for size in (1, 4, 0, 2)]
    work = emptied(maps)
    left = [sum(map(len, maps)) for _ in work]

    assert left == [4, 1]
    assert maps == [{}] * 4


def test_work_that_nobody_wants_any_longer_ends_in_its_next_pause() -> None:
    """Its client has gone; what is done already is the first part alone."""
    slices, done, is_wanted = Slices(), list[int](), [True]

    def work() -> Work[str]:
        for number in range(5):
            done.append(number)
            yield
        return "all"

    async def run() -> None:
        rest = slices.begin(work(), lambda: is_wanted[0])
        assert not isinstance(rest, str)
        is_wanted[0] = False
        with pytest.raises(KafkaTimeoutError):
            await rest
        assert done == [0]
        assert await slices.begin(work()) == "all"  # type: ignore[misc]

    asyncio.run(run())
