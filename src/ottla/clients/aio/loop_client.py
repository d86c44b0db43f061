"""A client that lives on the event loop of its program: opened by the first call, in one loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from ottla.runtime.app_loop import app_runtime
from ottla.runtime.io_thread import TURNS_TO_CLOSE, ForkHearer, get_ident

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ottla.runtime import Runtime

C = TypeVar("C")


class LoopClient(ABC):
    """Opens where it is first used, refuses other loops, and closes once.

    It may be made anywhere, also where no loop runs. `async with` closes it at the end.
    """

    title: ClassVar[str]
    """The kind of client, as it is called in errors."""

    def __init__(self) -> None:
        self._is_closed = False
        self._is_left_behind = False  # in a child process: the loop is the parent's
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_runtime: Runtime | None = None
        # What takes less time to check than `get_running_loop`, which asks the system for the pid.
        self._thread = 0
        self._is_running: Callable[[], bool] = lambda: False
        self._closing: asyncio.Task[None] | None = None
        self._fork_hearer = ForkHearer(self._on_fork)

    def _on_fork(self) -> None:
        """Refuse calls in a child process from now on, if it was opened before."""
        self._thread = 0
        self._is_left_behind = self._loop is not None

    @abstractmethod
    def _open(self, runtime: Runtime) -> None:
        """Make the parts of the client, on the loop that runs."""

    @abstractmethod
    async def _finish(self, timeout_ms: int | None) -> None:
        """End its work within a time, by default that of its settings, and close its parts."""

    def _here(self) -> None:
        """Check that the client can be used in the loop that runs; the first call opens it."""
        loop = self._checked_loop()
        if self._is_closed:
            raise RuntimeError(f"the {self.title} is closed")
        if self._loop is None:
            runtime = app_runtime(loop)
            self._open(runtime)
            self._loop, self._loop_runtime = loop, runtime
            self._thread, self._is_running = get_ident(), loop.is_running

    def _checked_loop(self) -> asyncio.AbstractEventLoop:
        if self._is_left_behind:
            raise RuntimeError(
                f"the {self.title} was started in another process: make a client in each, after "
                "the fork"
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                f"no event loop runs here: a {self.title} of ottla.aio is called in coroutines"
            ) from None
        if self._loop is not None and self._loop is not loop:
            raise RuntimeError(
                f"the {self.title} belongs to another event loop, in which it was first used: "
                "make one for each loop"
            )
        return loop

    async def _close(self, timeout_ms: int | None) -> None:
        """Close once; a call that is cancelled leaves the rest to the background."""
        self._is_closed = True
        if self._loop is None or self._is_left_behind:
            return
        loop = self._checked_loop()
        if self._closing is None:
            self._closing = loop.create_task(self._end(timeout_ms), name=f"close the {self.title}")
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

    async def _end(self, timeout_ms: int | None) -> None:
        assert self._loop_runtime is not None, "it was not opened"
        try:
            await self._finish(timeout_ms)
        finally:
            await self._loop_runtime.close()
            for _ in range(TURNS_TO_CLOSE):
                await asyncio.sleep(0)

    @abstractmethod
    async def close(self) -> None:
        """Release everything that the client holds. Closing twice does nothing."""

    async def __aenter__(self) -> Self:
        self._here()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def documented_by(twin: type[object]) -> Callable[[type[C]], type[C]]:
    """Give methods without a docstring those of the blocking client, which are called alike."""

    def document(client: type[C]) -> type[C]:
        for name in dir(twin):
            method = getattr(client, name, None)
            if not name.startswith("_") and callable(method) and not method.__doc__:
                method.__doc__ = getattr(twin, name).__doc__
        return client

    return document
