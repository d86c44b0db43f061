"""Threads for calls to servers that may never answer, so that no other work waits for them.

The workers of `Runtime.background` are few, and the end of the process waits for their jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.runtime.io_thread import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

CALLS_AT_ONCE: Final = 32


class CallThreads:
    """Runs each call on a thread of its own, a bounded number at once; lives on one loop.

    The process ends without waiting for them.
    """

    def __init__(self, at_once: int = CALLS_AT_ONCE) -> None:
        self._turns = asyncio.Semaphore(at_once)

    async def run(self, call: Callable[[], T]) -> T:
        """The result of a call, or its exception.

        A call counts until it ends, even if its caller was cancelled: a browser that asks again
        and again does not start threads without bound.
        """
        await self._turns.acquire()
        loop = asyncio.get_running_loop()

        def end(_: object) -> None:
            with suppress(RuntimeError):  # the loop has closed: nobody waits
                loop.call_soon_threadsafe(self._turns.release)

        answer = run_in_thread(call, "ottla-call")
        answer.add_done_callback(end)
        return await asyncio.wrap_future(answer)
