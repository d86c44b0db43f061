"""The whole runtime in virtual time and memory; in its network a test plays the server."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.runtime.background import logger as background_logger
from ottla.runtime.network import DEFAULT_OPTIONS, USE_SYSTEM_DEFAULT, StreamOptions
from ottla.runtime.runtime import Runtime
from ottla.runtime.scheduler import PeriodicTimer, Scheduler, Timer, log_task_death
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.virtual_loop import MockClock, VirtualLoop

P = TypeVar("P", bound=asyncio.BaseProtocol)


class MemoryTransport(asyncio.Transport):
    """One end of a stream: bytes written here arrive at the peer's protocol in a later step."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._peer: MemoryTransport | None = None
        self._is_closing = False

    def join(self, peer: MemoryTransport) -> None:
        """Connect the two as the ends of one stream."""
        self._peer = peer
        peer._peer = self

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._peer is not None and not self._is_closing:
            self._loop.call_soon(self._peer._receive, bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here, so that no limit is reached."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            feed(self._protocol, data)

    def _lose(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.call_soon(self._protocol.connection_lost, error)
        if self._peer is not None:
            self._loop.call_soon(self._peer._lose, None)


def feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give received bytes to a protocol, in the way that asyncio does for its kind."""
    if isinstance(protocol, asyncio.BufferedProtocol):
        while data:
            target = memoryview(protocol.get_buffer(len(data))).cast("B")
            count = min(len(target), len(data))
            target[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]
    elif isinstance(protocol, asyncio.Protocol):
        protocol.data_received(data)


Connect = Callable[[asyncio.BaseProtocol], asyncio.BaseTransport]
"""Attaches a protocol to this end of a stream that has been opened."""


class ChannelNetwork(ABC):
    """`Network` for channels only: its streams are no sockets, and it cannot listen."""

    def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int,
        receive_buffer_bytes: int = USE_SYSTEM_DEFAULT,
    ) -> list[socket.socket]:
        raise OSError(errno.EOPNOTSUPP, "this network has no sockets to listen on: use `serve`")

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        options: StreamOptions = DEFAULT_OPTIONS,
    ) -> tuple[asyncio.BaseTransport, P]:
        connect = await self.way_to(host, port)
        protocol = protocol_factory()
        transport = connect(protocol)
        protocol.connection_made(transport)
        return transport, protocol

    @abstractmethod
    async def way_to(self, host: str, port: int) -> Connect:
        """Open a stream to `host:port`; OSError where no server listens."""


class MemoryNetwork(ChannelNetwork):
    """Connects to the protocols that `serve` has put on addresses."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], Callable[[], asyncio.BaseProtocol]] = {}

    def serve(
        self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """From now on, a connection to `host:port` meets a new protocol of this kind."""
        self._servers[host, port] = protocol_factory

    def stop_serving(self, host: str, port: int) -> None:
        """Refuse new connections; those that are open stay open."""
        del self._servers[host, port]

    async def way_to(self, host: str, port: int) -> Connect:
        await asyncio.sleep(0)
        server_factory = self._servers.get((host, port))
        if server_factory is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        return partial(_join_to, server_factory)


def _join_to(
    server_factory: Callable[[], asyncio.BaseProtocol], client: asyncio.BaseProtocol
) -> MemoryTransport:
    loop = asyncio.get_running_loop()
    server = server_factory()
    client_end, server_end = MemoryTransport(loop, client), MemoryTransport(loop, server)
    client_end.join(server_end)
    server.connection_made(server_end)
    return client_end


T = TypeVar("T")


class MockScheduler:
    """A scheduler whose time passes when a test says so.

    `advance(ms)` runs timers, callbacks and spawned coroutines, each at its own moment;
    `run(coroutine)` is for the coroutines of a test. Called from code that runs under an asyncio
    loop of its own, `call_soon` and `spawn` go to that loop, so that they mix with real sockets
    and `asyncio.run`; timers wait for `advance` everywhere.
    """

    def __init__(self, clock: MockClock) -> None:
        self.clock = clock
        self.loop = VirtualLoop.on(clock)
        self._tasks: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._current_loop().call_soon(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Timer:
        return self.loop.add_timer(delay_ms, callback)

    def call_every(self, period_ms: int, callback: Callable[[], object]) -> Timer:
        return PeriodicTimer(self, self.clock, period_ms, callback)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = self._current_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(log_task_death)
        return task

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass; everything that falls due runs before this returns."""
        self.loop.advance(ms)

    def run_ready(self) -> None:
        """Run everything that can run now, without time passing."""
        self.loop.run_ready()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Run a coroutine to its result; time passes as far as necessary."""
        return self.loop.run_until_complete(awaitable)

    async def close(self) -> None:
        """Cancel the spawned tasks, as the real scheduler does."""
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    def _current_loop(self) -> asyncio.AbstractEventLoop:
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            return self.loop


class MockBackground:
    """Background work without threads: a job runs in a later step of the loop, its callback after.

    So no callback runs within `submit`, as with real workers, but the order is always the same.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def submit(
        self,
        job: Callable[[], T],
        on_done: Callable[[T], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> None:
        scheduler = self._scheduler
        scheduler.call_soon(partial(run_job, scheduler, job, on_done, on_error))

    async def run(self, job: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return job()

    async def run_at_once(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        return await asyncio.gather(*map(self.run, jobs))


def run_job(
    scheduler: Scheduler,
    job: Callable[[], T],
    on_done: Callable[[T], object] | None,
    on_error: Callable[[BaseException], object] | None,
) -> None:
    """Run a job of the background in this step of the loop, and its callback in a later one."""
    try:
        result = job()
    except Exception as error:
        if on_error is None:
            background_logger.error("The background job %r failed", job, exc_info=error)
        else:
            scheduler.call_soon(partial(on_error, error))
        return
    if on_done is not None:
        scheduler.call_soon(partial(on_done, result))


class MockRuntime(Runtime, frozen=True):
    """A `Runtime` whose parts a test can get at under their own types."""

    clock: MockClock
    scheduler: MockScheduler
    background: MockBackground
    disk: MemoryDisk
    network: MemoryNetwork

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass, and run everything that falls due."""
        self.scheduler.advance(ms)


def mock_runtime(seed: int = 0, disk: MemoryDisk | None = None) -> MockRuntime:
    """A new runtime: time stands still, the disk is empty or given, randomness is seeded."""
    clock = MockClock()
    scheduler = MockScheduler(clock)
    disk = disk or MemoryDisk()
    disk.now_ms = clock.now_ms
    return MockRuntime(
        clock=clock,
        scheduler=scheduler,
        background=MockBackground(scheduler),
        disk=disk,
        network=MemoryNetwork(),
        random=random.Random(seed),
    )
