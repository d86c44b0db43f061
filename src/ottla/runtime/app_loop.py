"""The runtime of clients in the event loop of a program, which they share with it."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.runtime.clock import SystemClock
from ottla.runtime.local_disk import LocalDisk
from ottla.runtime.network import TLS_GOODBYE_S, SocketNetwork
from ottla.runtime.runtime import Runtime
from ottla.runtime.scheduler import LoopScheduler

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)


class ExecutorBackground:
    """Jobs on the loop's own executor, whose threads all clients of the program share."""

    __slots__ = ("_loop", "_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: set[asyncio.Future[Any]] = set()

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        future: asyncio.Future[T] = self._loop.run_in_executor(None, job)
        self._under_way.add(future)
        future.add_done_callback(partial(self._finish, job, on_done, on_error))

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` and wait for its result; it also ends if nothing waits for it any longer."""
        return await self._loop.run_in_executor(None, job)

    async def run_at_once(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs at the same time, as far as the program's threads allow it."""
        return await asyncio.gather(*map(self.run, jobs))

    async def close(self) -> None:
        """Wait until the jobs under way are done and called back."""
        while self._under_way:
            await asyncio.wait(self._under_way)
            await asyncio.sleep(0)  # their callbacks have been called then

    def _finish(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None,
        on_error: Callable[[BaseException], object] | None,
        future: asyncio.Future[T],
    ) -> None:
        self._under_way.discard(future)
        if future.cancelled():
            return  # the loop ends
        error = future.exception()
        if error is None:
            if on_done is not None:
                on_done(future.result())
        elif on_error is not None:
            on_error(error)
        else:
            logger.error("The background job %r failed", job, exc_info=error)


class AppScheduler(LoopScheduler):
    """The scheduler of one client in the loop of a program, which continues after the client.

    Calls of the program may wait for timers when the client is closed. These timers stay, and the
    calls end: the client is closed, or their time is over.
    """

    __slots__ = ()

    async def close(self) -> None:
        await super().close()
        self._arm(self._clock.monotonic_ms())


class AppNetwork(SocketNetwork):
    """Connections as the program's loop makes them, which may look names up in its own way."""

    __slots__ = ()

    async def _open(
        self, protocol_factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None
    ) -> tuple[asyncio.BaseTransport, P]:
        goodbye_s = None if tls is None else TLS_GOODBYE_S
        return await self._loop.create_connection(
            protocol_factory, host, port, ssl=tls, ssl_shutdown_timeout=goodbye_s
        )


def app_runtime(loop: asyncio.AbstractEventLoop) -> Runtime:
    """The runtime of the machine, on the loop of a program; it has no thread of its own."""
    clock = SystemClock()
    return Runtime(
        clock=clock,
        scheduler=AppScheduler(loop, clock),
        background=ExecutorBackground(loop),
        disk=LocalDisk(),
        network=AppNetwork(loop),
        random=random.Random(random.getrandbits(64)),  # repeated where the program's own is
    )


def resolve(future: asyncio.Future[None]) -> None:
    """Set the future of any loop, from any thread; one whose loop has ended is left alone."""
    loop = future.get_loop()

    def set_result() -> None:
        if not future.done():
            future.set_result(None)

    try:
        is_here = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_here = False
    if is_here:
        set_result()
        return
    try:
        loop.call_soon_threadsafe(set_result)
    except RuntimeError:
        logger.debug("the loop of %r has ended", future)
