"""A process of an app: what a program asks of asyncio and of Python's modules, it gets."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.testing.simulation import app_process
from ottla.testing.simulation.app_process import AppProcess
from ottla.testing.simulation.virtual_machine import garbage_kept, virtual_machine
from ottla.testing.simulation.world import World
from ottla.testing.virtual_loop import START_MS, TimelessError

Program = Callable[[], Coroutine[Any, Any, object]]


def run_for(ms: int, *programs: Program, seed: int = 1) -> World:
    """A world in which each program has run for a while, each in a process."""
    world = World(seed)
    with garbage_kept(), virtual_machine(world, lambda process, text: None):
        for number, program in enumerate(programs):
            AppProcess(world, f"app-{number}", {}).run(program())
        try:
            world.run(ms)
        finally:
            world.close()
    return world


def test_time_of_pythons_modules_is_virtual():
    """An hour of sleep is an hour by every clock; afterwards the clocks are Python's own."""
    seen = []

    async def program():
        before = time.time(), time.monotonic(), time.perf_counter(), time.time_ns()
        await asyncio.sleep(3600)
        seen.extend([*before, time.time(), time.monotonic(), time.perf_counter(), time.time_ns()])

    own = time.time, time.monotonic, time.sleep, os.urandom
    run_for(4_000_000, program)

    start_ns = START_MS * 1_000_000
    assert seen[:4] == [START_MS / 1000, 0, 0, start_ns]
    assert seen[4:] == [START_MS / 1000 + 3600, 3600, 3600, start_ns + 3600 * 10**9]
    assert own == (time.time, time.monotonic, time.sleep, os.urandom)


def test_randomness_follows_from_the_seed():
    """Random numbers, UUIDs and tokens are the seed's; those of the test are not touched."""

    def drawn(seed: int) -> list[object]:
        found: list[object] = []

        async def program():
            found.extend([random.random(), uuid.uuid4(), secrets.token_hex(), os.urandom(4)])

        run_for(1, program, seed=seed)
        return found

    random.seed(5)
    one, again, other = drawn(1), drawn(1), drawn(2)
    assert one == again
    assert not set(one).intersection(other)
    assert random.random() == random.Random(5).random()


def test_app_that_blocks_its_loop_holds_up_nothing_but_itself():
    """After time.sleep(10) its own timers are late, and another process is not."""
    seen = []

    async def blocking():
        asyncio.get_running_loop().call_later(1, lambda: seen.append(("late", time.monotonic())))
        time.sleep(10)  # noqa: ASYNC251 - the mistake that it is about
        seen.append(("blocked", time.monotonic()))
        await asyncio.sleep(0)
        seen.append(("goes on", time.monotonic()))

    async def other():
        await asyncio.sleep(3)
        seen.append(("other", time.monotonic()))

    run_for(20_000, blocking, other)

    assert seen[:2] == [("blocked", 10), ("other", 3)]
    assert sorted(seen[2:]) == [("goes on", 10), ("late", 10)]


def test_jobs_for_threads_are_done():
    """`asyncio.to_thread` returns what the job returns, and raises what it raises."""
    seen = []

    async def program():
        seen.append(await asyncio.to_thread(divmod, 7, 2))
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(divmod, 7, 0)
        seen.append("raised")

    run_for(1_000, program)

    assert seen == [(3, 1), "raised"]


def test_tasks_in_a_set_have_the_order_in_which_they_were_made():
    """Sets of tasks and futures are the same in each run: they are not sorted by address."""
    seen = []

    async def program():
        async def wait_a_moment(number: int) -> int:
            await asyncio.sleep(0.01)
            return number

        tasks = {asyncio.ensure_future(wait_a_moment(number)) for number in range(20)}
        done, _ = await asyncio.wait(tasks)
        seen.extend(task.result() for task in done)
        futures = [asyncio.get_running_loop().create_future() for _ in range(5)]
        assert list({*futures}) == futures

    run_for(1_000, program)

    assert seen == list(range(20))


@pytest.mark.parametrize("has_handler", [True, False])
def test_stop_reaches_the_program(has_handler: bool):
    """SIGTERM goes to the handler of the loop; without one the program is cancelled."""
    seen = []

    async def program():
        asked = asyncio.Event()
        if has_handler:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        try:
            await asked.wait()
            seen.append("asked")
        finally:
            seen.append("cleaned up")

    world = World(1)
    process = AppProcess(world, "app", {})
    process.run(program())
    world.run(10)
    process.stop()
    world.run(10)
    assert seen == (["asked", "cleaned up"] if has_handler else ["cleaned up"])
    world.close()


def test_killed_program_runs_not_one_more_line():
    """What stands in a `finally` clause is not run before the world is over."""
    seen = []

    async def program():
        try:
            await asyncio.sleep(1_000)
        finally:
            seen.append("cleaned up")

    world = World(1)
    process = AppProcess(world, "app", {})
    process.run(program())
    world.run(10)
    process.kill()
    world.run(10_000)
    assert seen == []
    world.close()


def test_busy_loop_is_found(monkeypatch):
    """A program that waits without end for something, and lets no time pass, is told so."""
    monkeypatch.setattr(app_process, "MAX_STEPS_WITHOUT_TIME", 10_000)

    async def program():
        while True:  # noqa: ASYNC110 - the mistake that it is about
            await asyncio.sleep(0)

    with pytest.raises(TimelessError, match=r"app-0.* goes on without time passing"):
        run_for(10, program)


def test_rest_of_a_millisecond_passes():
    """A timer takes a millisecond at least, so that a program gets to the time it waits for."""
    seen = []

    async def program():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(5):
            await asyncio.sleep(1e-9)
        seen.append(round(loop.time() - begun, 6))

    run_for(10, program)

    assert seen == [0.005]


def test_tls_is_refused_with_the_reason():
    """A simulated listener has no TLS, which is said at once."""
    seen = []

    async def program():
        with pytest.raises(ValueError, match=r"broker-1:9092: .* TLS"):
            await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, "broker-1", 9092, ssl=True
            )
        seen.append("refused")

    run_for(10, program)

    assert seen == ["refused"]
