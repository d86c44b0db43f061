"""Requests a second: the processor, and in the same run what it could be compared with.

Each server answers every frame with its first bytes. The client is one process with a raw epoll;
it keeps `depth` requests in flight on each of its connections, and shares the two cores of a
small machine with the server. The raw epoll server only counts bytes, so it is the limit of the
machine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import os
import select
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import cast

from ottla.network.connection import Connection
from ottla.network.processor import Processor
from ottla.network.socket_config import SocketConfig
from ottla.runtime import real_runtime
from ottla.runtime.serving_loop import ServingLoop

RUNS = int(os.environ.get("BENCH_RUNS", "3"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "1.0"))
CONNECTIONS = 8
ANSWER_BYTES = 100
# The others leave the socket buffers to the system, too.
CONFIG = SocketConfig(socket_send_buffer_bytes=-1, socket_receive_buffer_bytes=-1)
SIZE = struct.Struct(">i")
ANSWER_SIZE = SIZE.pack(ANSWER_BYTES)
Server = Callable[[Pipe, int], None]


def answer(connection: Connection, frame: memoryview) -> None:
    connection.send((ANSWER_SIZE + frame[:ANSWER_BYTES],))


def serve_with_processor(ready: Pipe, size: int) -> None:
    with asyncio.Runner(loop_factory=ServingLoop) as runner:
        runner.run(_run_processor(ready, size))


async def _run_processor(ready: Pipe, size: int) -> None:
    runtime = real_runtime(asyncio.get_running_loop())
    processor = Processor(runtime, CONFIG, answer)
    ready.send(processor.listen("PLAINTEXT", "127.0.0.1", 0).port)
    processor.start()
    await asyncio.Event().wait()


class EchoProtocol(asyncio.Protocol):
    """The plain way: one callback per socket and turn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= SIZE.size:
            end = SIZE.size + SIZE.unpack_from(self.buffer)[0]
            if len(self.buffer) < end:
                return
            self.transport.write(ANSWER_SIZE + self.buffer[SIZE.size : SIZE.size + ANSWER_BYTES])
            del self.buffer[:end]


def serve_with_protocol(ready: Pipe, size: int) -> None:
    asyncio.run(_run_protocol(ready, size))


def serve_with_protocol_on_uvloop(ready: Pipe, size: int) -> None:
    import uvloop

    uvloop.run(_run_protocol(ready, size))


async def _run_protocol(ready: Pipe, size: int) -> None:
    server = await asyncio.get_running_loop().create_server(EchoProtocol, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def serve_with_raw_epoll(ready: Pipe, size: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    ready.send(listener.getsockname()[1])
    sockets: dict[int, socket.socket] = {}
    received: dict[int, int] = {}
    buffer = memoryview(bytearray(65536))
    answer = ANSWER_SIZE + bytes(ANSWER_BYTES)
    while True:
        for fd, _ in epoll.poll():
            if fd == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets[client.fileno()] = client
                received[client.fileno()] = 0
                epoll.register(client, select.EPOLLIN)
                continue
            client = sockets[fd]
            count = client.recv_into(buffer)
            if not count:
                epoll.unregister(fd)
                sockets.pop(fd).close()
                continue
            frames, received[fd] = divmod(received[fd] + count, SIZE.size + size)
            if frames:
                client.send(answer * frames)


def requests_per_second(port: int, size: int, depth: int, seconds: float) -> float:
    """Keep `depth` requests of `size` bytes in flight on each connection, and count answers."""
    burst = (SIZE.pack(size) + b"x" * size) * depth
    expected = (SIZE.size + ANSWER_BYTES) * depth
    epoll = select.epoll()
    missing: dict[int, int] = {}
    sockets: dict[int, socket.socket] = {}
    for _ in range(CONNECTIONS):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[client.fileno()] = client
        missing[client.fileno()] = expected
        epoll.register(client, select.EPOLLIN)
        client.sendall(burst)
    buffer = bytearray(1 << 20)
    bursts = 0
    start = now = time.perf_counter()
    while any(missing.values()):
        for fd, _ in epoll.poll():
            missing[fd] -= sockets[fd].recv_into(buffer)
            if missing[fd] == 0:
                bursts += 1
                if now - start < seconds:
                    missing[fd] = expected
                    sockets[fd].sendall(burst)
        now = time.perf_counter()
    for client in sockets.values():
        client.close()
    return bursts * depth / (now - start)


def cpu_seconds(pid: int) -> float:
    """How long a process has been on a CPU so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def measure(server: Server, size: int, depth: int) -> tuple[float, float]:
    """Requests a second, and the server's CPU microseconds for each: medians, after a warm-up."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=server, args=(there, size), daemon=True
    )
    process.start()
    assert process.pid is not None
    port = here.recv()
    requests_per_second(port, size, depth, SECONDS / 4)
    rates, costs = [], []
    for _ in range(RUNS):
        before, start = cpu_seconds(process.pid), time.perf_counter()
        rate = requests_per_second(port, size, depth, SECONDS)
        used = cpu_seconds(process.pid) - before
        rates.append(rate)
        costs.append(used / (rate * (time.perf_counter() - start)) * 1e6)
    process.terminate()
    process.join()
    return statistics.median(rates), statistics.median(costs)


def servers() -> dict[str, Server]:
    found: dict[str, Server] = {
        "raw epoll, no framing": serve_with_raw_epoll,
        "processor": serve_with_processor,
        "asyncio Protocol": serve_with_protocol,
    }
    if importlib.util.find_spec("uvloop") is None:
        print("uvloop is not installed: without its lines", file=sys.stderr)
        return found
    found["uvloop Protocol"] = serve_with_protocol_on_uvloop
    return found


def main() -> None:
    cases = ((100, 1), (100, 16), (100_000, 1))
    print(f"{CONNECTIONS} connections; requests/s (server CPU us each), median of {RUNS}")
    print(" " * 24 + "".join(f"{f'{size} B, {depth} ahead':>24}" for size, depth in cases))
    for name, server in servers().items():
        print(f"{name:24}", end="")
        for size, depth in cases:
            rate, cost = measure(server, size, depth)
            print(f"{f'{rate:,.0f} ({cost:.1f})':>24}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
