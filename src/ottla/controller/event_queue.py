"""The controller's event queue: each event runs to its end before the next begins."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

T = TypeVar("T")

OnFailure = Callable[[str, Exception], object]
OnEvent = Callable[[str, int, int], object]
"""Gets the name of an event that has ended, how long it waited, and how long it took, in ms."""


class _Event(Generic[T]):
    """One event of the queue, and the future of the caller that waits for its result, if any."""

    __slots__ = ("done", "name", "operation", "queued_ms")

    def __init__(
        self,
        name: str,
        operation: Callable[[], Awaitable[T]],
        done: asyncio.Future[T] | None,
        queued_ms: int,
    ) -> None:
        self.name = name
        self.operation = operation
        self.done = done
        self.queued_ms = queued_ms


class EventQueue:
    """A first-in-first-out queue that one task works off; there is no task while it is empty.

    An operation awaits the registry several times, and the next must not begin before it has
    ended. An error is passed to the caller that waits for the result; `on_failure` gets it where
    no caller waits, or where it is not a KafkaError.
    """

    def __init__(self, runtime: Runtime, on_failure: OnFailure) -> None:
        self.runtime = runtime
        self._on_failure = on_failure
        self._events: deque[_Event[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.on_event: OnEvent | None = None
        self.under_way = ""
        """The name of the event that is being worked on; empty while there is none."""

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._events)

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def put(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Queue it."""
        self._append(_Event(name, operation, None, self._now_ms()))

    def put_once(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Queue it, unless an event of this name waits already: that one does the work of both."""
        if not any(event.done is None and event.name == name for event in self._events):
            self.put(name, operation)

    async def submit(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Queue it and return its result. It continues if the caller is cancelled."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._append(_Event(name, operation, done, self._now_ms()))
        return await asyncio.shield(done)

    def clear(self) -> None:
        """Drop all events that have not begun; their callers get NOT_CONTROLLER."""
        events, self._events = self._events, deque()
        for event in events:
            _refuse(event)

    def close(self) -> None:
        """Drop everything, cancel the event under way, and accept no more."""
        self._is_closed = True
        self.clear()
        if self._task is not None:
            self._task.cancel()

    def _append(self, event: _Event[Any]) -> None:
        if self._is_closed:
            _refuse(event)
            return
        self._events.append(event)
        if self._task is None:
            self._task = self.runtime.scheduler.spawn(self._work(), "controller")

    def _now_ms(self) -> int:
        return self.runtime.clock.monotonic_ms()

    async def _work(self) -> None:
        try:
            while self._events:
                event = self._events.popleft()
                began_ms, self.under_way = self._now_ms(), event.name
                await self._carry_out(event)
                self._note_end(event, began_ms)
        finally:
            self._task, self.under_way = None, ""

    def _note_end(self, event: _Event[Any], began_ms: int) -> None:
        """Report the event to the metrics; an error there does not end the queue."""
        if self.on_event is None:
            return
        took_ms = self._now_ms() - began_ms
        try:
            self.on_event(event.name, began_ms - event.queued_ms, took_ms)
        except Exception:
            logger.exception("the end of the event %r cannot be noted", event.name)

    async def _carry_out(self, event: _Event[Any]) -> None:
        try:
            result = await event.operation()
        except asyncio.CancelledError:
            _refuse(event)
            raise
        except Exception as error:
            if event.done is not None and not event.done.done():
                event.done.set_exception(error)
                event.done.exception()  # the caller may be gone: mark the error as seen
            if event.done is None or not isinstance(error, KafkaError):
                self._on_failure(event.name, error)
        else:
            if event.done is not None and not event.done.done():
                event.done.set_result(result)


def _refuse(event: _Event[Any]) -> None:
    if event.done is not None and not event.done.done():
        event.done.set_exception(
            KafkaError.of(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller")
        )
        event.done.exception()
