"""A loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.errors import KafkaTimeoutError
from ottla.runtime.io_thread import IoThread


@pytest.fixture
def io():
    """A running thread."""
    thread = IoThread("test-io")
    yield thread
    thread.close()


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_run_returns_what_the_coroutine_returns(io):
    """It runs in the other thread."""
    assert io.run(name_of_thread()) == "test-io"


def test_run_raises_what_the_coroutine_raises(io):
    """A TimeoutError of the coroutine's own is raised as well."""

    async def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        io.run(fail(), 1000)


def test_run_cancels_after_its_time(io):
    """KafkaTimeoutError, and the coroutine does not go on."""
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(KafkaTimeoutError, match="not done within 20 ms"):
        io.run(hang(), 20)
    assert cancelled.wait(60)


def test_callback_must_not_wait_for_its_own_thread(io):
    """It would wait for ever: an error instead."""

    async def call_back() -> None:
        io.run(name_of_thread())

    with pytest.raises(RuntimeError, match="must not wait"):
        io.run(call_back())


def test_closed_thread_takes_nothing(io):
    """`run` raises, `post` does nothing, and closing again neither."""
    io.close()
    io.close()
    io.post(print, "never")

    with pytest.raises(RuntimeError, match="is closed"):
        io.run(name_of_thread())


def test_closing_cancels_what_runs(io):
    """No task is left behind."""
    ended = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    io.submit(hang())
    io.run(name_of_thread())
    io.close()

    assert ended.is_set()


def test_thread_ends_when_its_beginning_fails(io):
    """Nobody is left who could close it."""

    async def fail() -> None:
        raise ValueError("no core")

    with pytest.raises(ValueError, match="no core"):
        io.begin_with(fail())
    assert not io.is_alive


def test_thread_goes_on_after_its_beginning(io):
    """What was made is returned."""
    assert io.begin_with(name_of_thread()) == "test-io"
    assert io.is_alive


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_thread_goes_on_after_what_ends_a_program(io, end, caplog):
    """Who waits for the coroutine at fault gets it; what a callback raises is logged."""

    async def leave() -> None:
        raise end

    def call_back() -> None:
        raise end

    with pytest.raises(type(end)):
        io.run(leave())
    io.post(call_back)
    assert io.run(name_of_thread()) == "test-io"
    assert f"test-io continues after {end!r}" in caplog.text


def test_thread_that_is_told_to_end_ends_though_a_callback_raises(io):
    """Before that and after it, in the same turn of the loop."""
    begun, go_on = threading.Event(), threading.Event()

    def leave() -> None:
        raise SystemExit

    def close_in_between() -> None:
        begun.set()
        go_on.wait(60)

    io.post(close_in_between)
    assert begun.wait(60)
    io.post(leave)
    closing = threading.Thread(target=io.close, args=(leave,))
    closing.start()
    go_on.set()
    closing.join(60)
    assert not io.is_alive
