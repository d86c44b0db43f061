"""Calls on threads of their own: bounded in number, and nothing waits for their end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.console.call_threads import CallThreads


def test_result_and_error_come_back():
    """As if the call had been made on the loop."""

    async def calls() -> None:
        threads = CallThreads()
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)

    asyncio.run(calls())


def test_call_that_nobody_waits_for_keeps_its_turn():
    """The next one begins when it ends, and so threads stay few."""
    begun, over = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        over.wait(60)

    async def calls() -> None:
        threads = CallThreads(at_once=1)
        hanging = asyncio.create_task(threads.run(hang))
        await asyncio.to_thread(begun.wait, 60)
        hanging.cancel()
        following = asyncio.create_task(threads.run(threading.get_ident))
        await asyncio.wait([hanging])
        assert not following.done()
        over.set()
        assert await following != threading.get_ident()

    asyncio.run(calls())


def test_loop_ends_without_a_call_that_hangs():
    """Its answer, which comes later, goes nowhere."""
    over = threading.Event()
    begun = threading.Event()
    found: list[threading.Thread] = []

    def hang() -> None:
        found.append(threading.current_thread())
        begun.set()
        over.wait(60)

    async def calls() -> None:
        hanging = asyncio.create_task(CallThreads().run(hang))
        await asyncio.to_thread(begun.wait, 60)
        hanging.cancel()

    asyncio.run(calls())
    (thread,) = found
    assert thread.is_alive()
    assert thread.daemon
    over.set()
    thread.join()
