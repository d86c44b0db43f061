"""Virtual time: timers, tasks and background jobs in a fixed order."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ottla.testing import MockClock, MockRuntime, mock_runtime


async def pause(seconds: float) -> None:
    """Wait for something that does not happen in that time."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


@pytest.fixture
def runtime() -> MockRuntime:
    return mock_runtime()


def test_clock_stands_still_until_it_is_moved() -> None:
    """Both clocks go on together; the wall clock can be stepped on its own."""
    clock = MockClock(now_ms=1000, monotonic_ms=7)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1005, 12)
    clock.set_wall_clock(3)
    clock.advance(1)

    assert (clock.now_ms(), clock.monotonic_ms()) == (4, 13)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_timers_run_at_their_own_moments(runtime: MockRuntime) -> None:
    """One advance passes several; each sees the time that it was set for."""
    ran: list[tuple[str, int]] = []

    def note(name: str) -> None:
        ran.append((name, runtime.clock.monotonic_ms()))

    runtime.scheduler.call_later(500, lambda: note("late"))
    runtime.scheduler.call_later(3, lambda: note("early"))
    runtime.scheduler.call_later(20, lambda: note("cancelled")).cancel()
    timer = runtime.scheduler.call_every(200, lambda: note("tick"))
    runtime.advance(500)
    timer.cancel()
    runtime.advance(500)

    assert ran == [("early", 3), ("tick", 200), ("tick", 400), ("late", 500)]
    assert runtime.clock.monotonic_ms() == 1000


def test_timer_without_delay_runs_without_time_passing(runtime: MockRuntime) -> None:
    """The callback does not run before the loop gets to it."""
    ran: list[str] = []
    runtime.scheduler.call_later(0, lambda: ran.append("now"))
    runtime.scheduler.call_soon(lambda: ran.append("soon"))
    assert ran == []
    runtime.scheduler.run_ready()

    assert ran == ["now", "soon"]


def test_coroutines_sleep_in_virtual_time(runtime: MockRuntime) -> None:
    """Spawned tasks go as far as they can each time that time is advanced."""
    steps: list[int] = []

    async def walk() -> None:
        for _ in range(3):
            await pause(0.1)
            steps.append(runtime.clock.monotonic_ms())

    task = runtime.scheduler.spawn(walk(), "walker")
    runtime.advance(250)
    assert steps == [100, 200]
    runtime.advance(50)
    assert steps == [100, 200, 300]
    assert task.done()


def test_run_lets_as_much_time_pass_as_the_coroutine_needs(runtime: MockRuntime) -> None:
    """An hour of sleep takes no time; timeouts work as they do anywhere."""

    async def wait() -> str:
        await pause(3600)
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "not reached"

    assert runtime.scheduler.run(wait()) == "timed out"
    assert runtime.clock.monotonic_ms() == 3_605_000


def test_run_of_something_that_cannot_end_says_so(runtime: MockRuntime) -> None:
    """A deadlock is an error, not a test that hangs."""
    with pytest.raises(RuntimeError, match="nothing is going to do"):
        runtime.scheduler.run(asyncio.Event().wait())


def test_endless_work_without_time_passing_is_an_error(
    runtime: MockRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A livelock is found as well."""
    monkeypatch.setattr("ottla.testing.virtual_loop.MAX_STEPS_WITHOUT_TIME", 100)

    def again() -> None:
        runtime.scheduler.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="without time passing"):
        runtime.scheduler.run_ready()


def test_failure_of_a_task_is_logged(
    runtime: MockRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """The real scheduler logs it, too; so is the failure of a callback."""

    async def die() -> None:
        raise KeyError("task trouble")

    def fail() -> None:
        raise KeyError("callback trouble")

    with caplog.at_level(logging.ERROR):
        runtime.scheduler.spawn(die(), "doomed")
        runtime.scheduler.call_soon(fail)
        runtime.scheduler.run_ready()

    assert "The task doomed died" in caplog.text
    assert "task trouble" in caplog.text
    assert "callback trouble" in caplog.text


def test_background_job_comes_back_in_later_steps(runtime: MockRuntime) -> None:
    """Neither the job nor its callback runs within submit."""
    order: list[str] = []
    runtime.background.submit(lambda: order.append("job"), lambda _: order.append("done"))
    order.append("submitted")
    runtime.scheduler.run_ready()

    assert order == ["submitted", "job", "done"]
    assert runtime.scheduler.run(runtime.background.run(lambda: 42)) == 42


def test_background_error_goes_to_its_callback_or_to_the_log(
    runtime: MockRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """Real workers do the same."""
    errors: list[BaseException] = []
    with caplog.at_level(logging.ERROR):
        runtime.background.submit(lambda: 1 // 0, on_error=errors.append)
        runtime.scheduler.run_ready()
        assert caplog.text == ""
        runtime.background.submit(lambda: 1 // 0)
        runtime.scheduler.run_ready()

    assert isinstance(errors[0], ZeroDivisionError)
    assert "ZeroDivisionError" in caplog.text


def test_scheduler_works_under_a_real_loop(runtime: MockRuntime) -> None:
    """`call_soon` and `spawn` join the loop that runs, timers still wait for `advance`."""
    ran: list[str] = []

    async def main() -> None:
        runtime.scheduler.call_soon(lambda: ran.append("soon"))
        runtime.scheduler.call_later(5, lambda: ran.append("later"))
        await runtime.scheduler.spawn(asyncio.sleep(0), "task")
        assert await runtime.background.run(lambda: 1) == 1

    asyncio.run(main())
    assert ran == ["soon"]
    runtime.advance(5)
    assert ran == ["soon", "later"]


def test_close_cancels_spawned_tasks(runtime: MockRuntime) -> None:
    """The real scheduler cancels them at shutdown as well."""
    task = runtime.scheduler.spawn(pause(10), "sleeper")
    runtime.scheduler.run(runtime.close())
    runtime.scheduler.run_ready()

    assert task.cancelled()
