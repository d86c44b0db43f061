"""An asyncio loop in a thread of its own: where the synchronous clients do their I/O.

Everything of a client's core runs on the loop, in this one thread; the threads of the application
come in through `run` (wait for a coroutine) and `post` (leave a callback).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Condition, Event, Lock, RLock, get_ident
from typing import Any, Final, TypeVar
from weakref import WeakSet

from ottla.errors import KafkaTimeoutError
from ottla.runtime.own_thread import run_in_thread
from ottla.runtime.runtime import real_runtime

__all__ = [
    "ForkHearer",
    "LONGEST_WAIT_MS",
    "MARGIN_MS",
    "Condition",
    "Event",
    "IoThread",
    "Lock",
    "RLock",
    "TURNS_TO_CLOSE",
    "get_ident",
    "run_in_thread",
    "stack_of",
]

T = TypeVar("T")
JOIN_TIMEOUT_S = 10.0
MARGIN_MS = 5_000
"""Added to a call's own limit for `run`, so that the call ends first, with its own error."""
LONGEST_WAIT_MS: Final = 100 * 365 * 24 * 3600 * 1000
"""A hundred years: Python's locks refuse much longer waits, such as Java's Long.MAX_VALUE ms."""
TURNS_TO_CLOSE = 3
"""Transports that were closed do so in the turns of the loop after."""
logger = logging.getLogger(__name__)


def stack_of(thread_id: int) -> str:
    """Where a thread is now, as a traceback shows it; empty if it has ended."""
    frame = sys._current_frames().get(thread_id)
    return "" if frame is None else "".join(traceback.format_stack(frame))


class IoThread:
    """A thread that runs a loop until `close`. It is a daemon: it never keeps a process alive."""

    def __init__(
        self,
        name: str,
        *,
        is_started: bool = True,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        """Without `is_started` it starts with `begin_with`."""
        self.name = name
        self._loop = new_loop()
        self.runtime = real_runtime(self._loop)
        self._is_closed = False
        self._is_ended_by_caller = False
        self._is_stopped = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        if is_started:
            self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False after `close`, and in a child process, into which threads do not follow."""
        return self._thread.is_alive()

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        """Have the loop call `callback` soon; silently nothing once the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            logger.debug("%s has ended; %s is not called", self.name, callback)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_ms: int | None = None) -> T:
        """Run `coroutine` on the loop, from another thread, and return its result.

        After `timeout_ms`, and when the waiting thread is interrupted, the coroutine is
        cancelled.
        """
        return self.wait(self.submit(coroutine), timeout_ms)

    def begin_with(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine that builds the thread's objects; if that fails, the thread ends too.

        Where the thread is not started yet, the caller's thread does that, without a wait of one
        thread for the other; then the loop runs in its own.
        """
        if self.is_alive or runs_a_loop():
            return self._begin_in_thread(coroutine)
        try:
            result = self._loop.run_until_complete(coroutine)
        except BaseException:
            self._is_closed = True
            self._finish()
            raise
        self._thread.start()
        return result

    def _begin_in_thread(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self.is_alive:
            self._thread.start()
        try:
            return self.run(coroutine)
        except BaseException:
            self.close()
            raise

    def end_with(self, coroutine: Coroutine[Any, Any, object], timeout_ms: int) -> None:
        """Run the closing coroutine of the thread's objects, in the caller's thread, and close.

        KafkaTimeoutError where the loop or the coroutine takes longer; the thread is closed then.
        """
        if not self.is_alive or runs_a_loop():
            try:
                self.run(coroutine, timeout_ms)
            finally:
                self.close()
            return
        self._is_closed = self._is_ended_by_caller = True
        self.post(self._stop)
        self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            self._is_ended_by_caller = False
            coroutine.close()
            raise KafkaTimeoutError(f"{self.name} is at work for more than {timeout_ms} ms")
        try:
            self._loop.run_until_complete(_within(coroutine, timeout_ms))
        finally:
            self._finish()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to run `coroutine` on the loop, from another thread."""
        try:
            self.check_may_wait()
        except RuntimeError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def check_may_wait(self) -> None:
        """RuntimeError where a wait for the thread would not end: in itself, or without it."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(f"{self.name}: a callback of the client must not wait for it")
        if not self.is_alive:
            why = "is closed"
            if not self._is_closed:
                why = "was started in another process: make a client in each, after the fork"
            raise RuntimeError(f"{self.name} {why}")

    def wait(self, future: Future[T], timeout_ms: int | None = None) -> T:
        """The result of a future of `submit`, with the limits of `run`."""
        try:
            limit_s = None if timeout_ms is None else min(timeout_ms, LONGEST_WAIT_MS) / 1000
            return future.result(limit_s)
        except TimeoutError:
            if future.done():
                raise  # the coroutine's own
            future.cancel()
            raise KafkaTimeoutError(f"not done within {timeout_ms} ms") from None
        except BaseException:
            future.cancel()
            raise

    def close(self, close_core: Callable[[], object] | None = None) -> None:
        """Stop the loop, cancel the tasks that still run on it, and wait for the thread to end.

        The objects on the thread are closed on the loop before. Closing twice does nothing.
        """
        if not self.is_alive:
            return
        self._is_closed = True
        if close_core is not None:
            self.post(close_core)
        self.post(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_TIMEOUT_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._is_stopped:
                self._run_until_stopped()
        finally:
            if not self._is_ended_by_caller:
                self._finish()

    def _run_until_stopped(self) -> None:
        """Run the loop until it is stopped, or a callback raises SystemExit or KeyboardInterrupt.

        The caller of a coroutine at fault gets the exception; the loop runs again for the others.
        """
        try:
            self._loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            logger.warning("%s continues after %r of a callback", self.name, error)

    def _stop(self) -> None:
        self._is_stopped = True
        self._loop.stop()

    def _finish(self) -> None:
        """The rest of the loop ends, on the calling thread."""
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        await self.runtime.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(TURNS_TO_CLOSE):
            await asyncio.sleep(0)


class ForkHearer:
    """Has a function called in each child process that is forked while its owner keeps this.

    The owner itself is not referred to weakly: an object of a compiled class cannot be.
    """

    __slots__ = ("__weakref__", "on_fork")

    def __init__(self, on_fork: Callable[[], object]) -> None:
        self.on_fork = on_fork
        _hearers.add(self)


_hearers: WeakSet[ForkHearer] = WeakSet()


def _tell_of_fork() -> None:
    for each in list(_hearers):
        each.on_fork()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_tell_of_fork)


def runs_a_loop() -> bool:
    """Whether this thread is in the middle of a coroutine: it cannot run another loop then."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _within(coroutine: Coroutine[Any, Any, object], timeout_ms: int) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await coroutine
    except TimeoutError:
        raise KafkaTimeoutError(f"not done within {timeout_ms} ms") from None
