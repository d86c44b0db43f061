"""The controller's one line: events and operations, each carried out to its end before the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Runtime

T = TypeVar("T")

OnFailure = Callable[[str, Exception], object]


class _Turn(Generic[T]):
    """One entry of the line and whoever waits for its result, if anybody does."""

    __slots__ = ("done", "name", "operation")

    def __init__(
        self, name: str, operation: Callable[[], Awaitable[T]], done: asyncio.Future[T] | None
    ) -> None:
        self.name = name
        self.operation = operation
        self.done = done


class EventQueue:
    """A first-in-first-out line that one task works off; there is no task while it is empty.

    An operation awaits the registry several times, and the next must not begin before it has
    come to its end. What fails is told to whoever waits for it; where nobody does, or where it
    was no KafkaError of the operation's own, `on_failure` hears of it.
    """

    def __init__(self, runtime: Runtime, on_failure: OnFailure) -> None:
        self.runtime = runtime
        self._on_failure = on_failure
        self._turns: deque[_Turn[Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def put(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Do it in its turn."""
        self._append(_Turn(name, operation, None))

    def put_once(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Do it in its turn. One of this name that has not begun yet does the work of both."""
        if not any(turn.done is None and turn.name == name for turn in self._turns):
            self.put(name, operation)

    async def submit(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Do it in its turn; returns its result. It goes on if the caller is cancelled."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._append(_Turn(name, operation, done))
        return await asyncio.shield(done)

    def clear(self) -> None:
        """Drop whatever has not begun; whoever waits for it hears NOT_CONTROLLER."""
        turns, self._turns = self._turns, deque()
        for turn in turns:
            _refuse(turn)

    def close(self) -> None:
        """Drop everything and take nothing more."""
        self._is_closed = True
        self.clear()
        if self._task is not None:
            self._task.cancel()

    def _append(self, turn: _Turn[Any]) -> None:
        if self._is_closed:
            _refuse(turn)
            return
        self._turns.append(turn)
        if self._task is None:
            self._task = self.runtime.scheduler.spawn(self._work(), "controller")

    async def _work(self) -> None:
        try:
            while self._turns:
                await self._carry_out(self._turns.popleft())
        finally:
            self._task = None

    async def _carry_out(self, turn: _Turn[Any]) -> None:
        try:
            result = await turn.operation()
        except asyncio.CancelledError:
            _refuse(turn)
            raise
        except Exception as error:
            if turn.done is not None and not turn.done.done():
                turn.done.set_exception(error)
                turn.done.exception()  # whoever waited may have gone: then nobody looks at it
            if turn.done is None or not isinstance(error, KafkaError):
                self._on_failure(turn.name, error)
        else:
            if turn.done is not None and not turn.done.done():
                turn.done.set_result(result)


def _refuse(turn: _Turn[Any]) -> None:
    if turn.done is not None and not turn.done.done():
        turn.done.set_exception(
            KafkaError.of(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
        )
        turn.done.exception()
