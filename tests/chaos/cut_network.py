"""A network between processes of this machine that can be cut, one way or both ways, or slowed.

Every server is reached through a proxy. The proxy finds out which process has called by its socket,
so that what goes from A to B can be held while C still reaches B. What is held goes on when the cut
is healed, as TCP would send it again; `reset` ends connections instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Answer = TypeVar("Answer")

CLIENT = "client"
CHUNK = 1 << 16
PACKET = 1448
LIMIT_S = 60
TURNS = 10
TICK_S = 0.05
SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Road:
    """How long data take from one end to the other; a lost packet is sent again a round trip on."""

    delay_s: float
    bytes_per_s: float
    loss: float
    chance: random.Random

    def seconds(self, size: int) -> float:
        packets = -(-size // PACKET)
        lost = any(self.chance.random() < self.loss for _ in range(packets))
        return self.delay_s + size / self.bytes_per_s + (2 * self.delay_s if lost else 0)


class CutNetwork:
    """Proxies on a thread of their own, and the cuts between named ends, each (from, to)."""

    def __init__(self) -> None:
        self.pids: Callable[[], dict[int, str]] = dict
        """The processes that are no clients, and their names as ends."""
        self._cuts: set[tuple[str, str]] = set()
        self._healed = asyncio.Event()
        self._roads: dict[tuple[str, str], Road] = {}
        self._links: set[tuple[str, str, asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self.late_s = 0.0
        """How much later than asked for the machine let the network go on, at the worst."""
        self._loop.call_soon(self._tick, 0.0)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _tick(self, due_s: float) -> None:
        now_s = self._loop.time()
        self.late_s = max(self.late_s, now_s - (due_s or now_s))
        self._loop.call_later(TICK_S, self._tick, now_s + TICK_S)

    def proxy(self, name: str, target: Callable[[], int], caller: str | None = None) -> int:
        """A new port that leads to the end `name` at the target's port of the moment."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._connect(caller, name, target(), reader, writer)
            finally:
                writer.transport.abort()  # also where the target has no port, being dead

        async def listen() -> int:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return self._call(listen())

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Hold whatever goes from the first to the second of a pair."""

        async def change() -> None:
            self._cuts |= set(pairs)

        self._call(change())

    def isolate(self, name: str, *others: str) -> None:
        """Cut both ways between one end and the others."""
        self.cut(*((name, other) for other in others), *((other, name) for other in others))

    def slow(self, road: Road, *pairs: tuple[str, str]) -> None:
        """Let whatever goes from the first to the second of a pair take this road."""

        async def change() -> None:
            self._roads |= dict.fromkeys(pairs, road)

        self._call(change())

    def mend(self, *pairs: tuple[str, str]) -> None:
        """Neither a cut nor a slow road between these any more; others stay as they are."""

        async def change() -> None:
            self._cuts -= set(pairs)
            for pair in pairs:
                self._roads.pop(pair, None)
            self._wake()

        self._call(change())

    def heal(self) -> None:
        """No cuts and no slow roads any more: what was held goes on."""

        async def change() -> None:
            self._cuts.clear()
            self._roads.clear()
            self._wake()

        self._call(change())

    def _wake(self) -> None:
        """Let all that is held look at the cuts again."""
        self._healed.set()
        self._healed = asyncio.Event()

    def reset(self, one: str, other: str) -> None:
        """End the connections between two ends; what was held is gone."""

        async def end() -> None:
            for source, target, reading, writing in list(self._links):
                if {source, target} == {one, other}:
                    for writer in (reading, writing):
                        writer.transport.abort()

        self._call(end())

    def close(self) -> None:
        """The proxies are gone."""

        async def end() -> None:
            # Who has just been let in must find the server open, and gets a task that can be ended.
            for listener in [each for server in self._servers for each in server.sockets]:
                self._loop.remove_reader(listener.fileno())
            await turns()
            for server in self._servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await turns()  # the transports get to close their sockets

        self._call(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def _caller(self, writer: asyncio.StreamWriter) -> str:
        """Whose socket it is at the other end of a connection to a proxy."""
        names = ("peername", "sockname")
        inode = socket_inode(*(writer.get_extra_info(name)[1] for name in names))
        for pid, name in self.pids().items():
            if inode in socket_inodes(pid):
                return name
        return CLIENT

    async def _connect(
        self,
        caller: str | None,
        name: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            answers, target = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        # Who it is takes a while to find out: not for those who come again and again to the dead.
        caller = caller or self._caller(writer)
        link = (caller, name, writer, target)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(caller, name, reader, target), self._pump(name, caller, answers, writer)
            )
        finally:
            self._links.discard(link)
            writer.transport.abort()
            target.transport.abort()

    async def _pump(
        self, source: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if road := self._roads.get((source, target)):
                    passed = asyncio.Event()
                    self._loop.call_later(road.seconds(len(data)), passed.set)
                    await passed.wait()
                while (source, target) in self._cuts:
                    await self._healed.wait()
                writer.write(data)
                await writer.drain()
        # The news of the end must get through the cut as well.
        while (source, target) in self._cuts:
            await self._healed.wait()
        writer.close()


async def turns() -> None:
    """Let whatever is about to happen in the loop happen."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def socket_inode(port: int, remote_port: int) -> str:
    """The inode of the connection between these ports, at its first end; empty if there is none."""
    ends = [f"0100007F:{port:04X}", f"0100007F:{remote_port:04X}"]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == ends:
            return fields[9]
    return ""


def socket_inodes(pid: int) -> set[str]:
    """The inodes of all sockets of a process."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if match := SOCKET.match(os.readlink(path)):
                    found.add(match[1])
    return found
