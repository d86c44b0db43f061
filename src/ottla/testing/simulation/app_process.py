"""A process of the user's own app in a simulated world: an asyncio program, as it stands.

Its event loop connects over the simulated network. The rest that a program takes from its machine,
the time and randomness of Python's own modules, comes from the world while that runs.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from typing import Any, ClassVar, Final, TypeVar, TypeVarTuple

from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.agenda import Agenda
from ottla.testing.simulation.world import ProcessLoop, SimulatedProcess, World
from ottla.testing.virtual_loop import MAX_STEPS_WITHOUT_TIME, MockClock, TimelessError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Address = tuple[str, int]

NS_PER_MS: Final = 1_000_000
MS_PER_S: Final = 1_000
PRODUCER_COUNT: Final = "_PRODUCER_CLIENT_ID_SEQUENCE"


class AppProcess(SimulatedProcess):
    """One life of an instance of an app."""

    def __init__(self, world: World, host: str, names: Mapping[Address, Address]) -> None:
        """`names` has other names of addresses, as `/etc/hosts` has."""
        self.app_loop = AppLoop.over(world.clock, world.agenda)
        self.app_loop.process = self
        self.names = names
        self.is_asked_to_stop = False
        self._main: asyncio.Task[Any] | None = None
        super().__init__(world, host, MemoryDisk(), self.app_loop)

    def run(self, main: Coroutine[Any, Any, object]) -> None:
        """Begin to run the program."""
        self._main = self.app_loop.create_task(main, name=self.host)

    def stop(self) -> None:
        """Ask it to end (SIGTERM): by its own handler, or else as asyncio.run does for Ctrl-C."""
        self.is_asked_to_stop = True
        handler = self.app_loop.signal_handlers.get(signal.SIGTERM)
        if handler is not None:
            self.loop.call_soon(handler)
        elif self._main is not None:
            self.loop.call_soon(self._main.cancel)


class AppTask(asyncio.Task[Any]):
    """A task with a number, so that a set of tasks has the same order in each run."""

    def __init__(self, coro: Any, *, loop: AppLoop, name: str | None, context: Any) -> None:
        self._number = next(loop.numbers)  # asyncio asks for the hash at once
        super().__init__(coro, loop=loop, name=name or f"Task-{self._number}", context=context)

    def __hash__(self) -> int:
        return self._number


class AppFuture(asyncio.Future[Any]):
    """A future with a number, for the same reason."""

    def __init__(self, *, loop: AppLoop) -> None:
        self._number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class AppLoop(ProcessLoop):
    """The loop of an app, with further calls of asyncio's own: connections, jobs, signals."""

    task_class: ClassVar[type[asyncio.Task[Any]]] = AppTask
    future_class: ClassVar[type[asyncio.Future[Any]]] = AppFuture
    min_delay_ms: ClassVar[int] = 1  # programs wait for the rest of a millisecond, again and again
    slow_callback_duration = 0.1

    def __init__(self, clock: MockClock, agenda: Agenda) -> None:
        super().__init__(clock, agenda)
        self.numbers = count(1)
        self.process: AppProcess | None = None
        self.ahead_ms = 0
        """How long the app has blocked its loop in the present call."""
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None

    # Calls that block: the rest of the world goes on meanwhile

    def block(self, ms: int) -> None:
        """Let the app be ahead of the world; it sleeps until that has come as far."""
        self.ahead_ms += ms
        assert self.process is not None
        if not self.is_asleep:
            self.process.pause()
        self.process.world.loop.add_timer(self.ahead_ms, partial(self._end_block, self.ahead_ms))

    def _end_block(self, ms: int) -> None:
        if ms == self.ahead_ms:
            self.ahead_ms = 0
            if self.process is not None:
                self.process.resume()

    def _run_ready_handles(self) -> None:
        for _ in range(MAX_STEPS_WITHOUT_TIME):
            if not self._ready or self.is_asleep:
                return
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()
        raise TimelessError(f"{self.process!r}: {self._ready[0]!r} goes on without time passing")

    # Connections

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        host, port = _address(*args, **options)
        if options.get("ssl"):
            raise ValueError(f"{host}:{port}: a simulated cluster has no listener with TLS")
        assert self.process is not None
        return await self.process.network.connect(
            protocol_factory, *self.process.names.get((host, port), (host, port))
        )

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    # Jobs for threads run in one step, at a random moment

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        assert self.process is not None
        self.process.runtime.background.submit(
            partial(func, *args),
            lambda result: None if done.done() else done.set_result(result),
            lambda error: None if done.done() else done.set_exception(error),
        )
        return done

    def set_default_executor(self, executor: Any) -> None:
        """Do nothing: there are no threads."""

    async def shutdown_default_executor(self, *_limit: Any) -> None:
        """Do nothing: there are no threads."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: the collector closes generators when the world is over."""

    # Signals and errors

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        self.signal_handlers[sig] = partial(callback, *args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.signal_handlers.pop(sig, None) is not None

    def get_task_factory(self) -> None:
        """None: tasks are made by the loop itself. anyio asks for it."""

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: there is no debug mode."""

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is None:
            super().call_exception_handler(context)
        else:
            self._exception_handler(self, context)


def _address(host: str | None = None, port: int | None = None, **options: Any) -> Address:
    if host is None or port is None:
        raise OSError(errno.EOPNOTSUPP, "the simulated network connects to a host and a port only")
    return host, port
