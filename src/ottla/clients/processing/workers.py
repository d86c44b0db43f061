"""Workers call the handler: threads for a function, tasks of the loop for a coroutine function."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

from ottla.clients.processing.work_queue import WorkItem
from ottla.runtime.io_thread import run_in_thread

Work = Callable[[WorkItem], BaseException | None]
AsyncWork = Callable[[WorkItem], Awaitable[BaseException | None]]
OnOutcome = Callable[[WorkItem, BaseException | None], object]


class HandlerCancelledError(Exception):
    """A handler has let out a CancelledError, but the work continues."""


class ThreadWorkers:
    """Threads; each takes the next record when it is free.

    They are daemons: none of them keeps a process alive.
    """

    def __init__(self, count: int, work: Work, on_outcome: OnOutcome) -> None:
        self._ready: SimpleQueue[WorkItem | None] = SimpleQueue()
        self.put: Callable[[WorkItem], object] = self._ready.put
        """Have a record worked on as soon as possible; in any thread."""
        self._work = work
        self._on_outcome = on_outcome
        self._count = count
        try:
            for number in range(count):
                run_in_thread(self._run, f"ottla-process-{number}")
        except BaseException:  # the system has no room for so many
            self.close()
            raise

    def close(self) -> None:
        """End each thread after the record that it works on."""
        for _ in range(self._count):
            self._ready.put(None)

    def _run(self) -> None:
        work, on_outcome, take = self._work, self._on_outcome, self._ready.get
        while (item := take()) is not None:
            on_outcome(item, work(item))


class TaskWorkers:
    """Tasks of the running loop, as many as have something to do."""

    def __init__(self, count: int, work: AsyncWork, on_outcome: OnOutcome) -> None:
        self._loop = asyncio.get_running_loop()
        self._work = work
        self._on_outcome = on_outcome
        self._count = count
        self._ready: deque[WorkItem] = deque()
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, item: WorkItem) -> None:
        """Have a record worked on as soon as possible."""
        self._ready.append(item)
        if len(self._tasks) < self._count:
            task = self._loop.create_task(self._run(), name=f"process {len(self._tasks)}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel the tasks."""
        self._is_closed = True
        self._ready.clear()
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        while self._ready:
            item = self._ready.popleft()
            error: BaseException | None = None
            try:
                error = await self._work(item)
            except asyncio.CancelledError as cancelled:
                if self._is_closed:
                    self._on_outcome(item, cancelled)
                    raise
                # Something that the handler awaits was cancelled, by somebody else.
                error = HandlerCancelledError("the handler was cancelled")
                error.__cause__ = cancelled
            self._on_outcome(item, error)


def is_coroutine_function(handler: Any) -> bool:
    """Whether a handler is awaited: a coroutine function, or an object with such a `__call__`."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - its kind is asked for
    return asyncio.iscoroutinefunction(handler) or asyncio.iscoroutinefunction(call)
