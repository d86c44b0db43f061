"""A storm of connections: 3,000 and 10,000 clients that connect one after another.

Each client connects, asks for ApiVersions and stays, as after a broker's restart; the time ends
when all are answered. Where the backlog of the listener overflows, the kernel of the client asks
again after a second: `worst` is the longest connect. The peers are a bare loop that accepts and
answers by the same epoll, and the broker with Kafka's default backlog of 50.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import encode_request
from ottla.testing.processes import BrokerProcess

RUNS = 5
LOCALHOST = "127.0.0.1"
KAFKAS_BACKLOG = 50
LIMIT_SECONDS = 120
REQUEST = encode_request(
    3, 1, "storm", ApiVersionsRequest(client_software_name="storm", client_software_version="1")
)
ANSWER = bytes(400)


def storm(address: tuple[str, int], count: int) -> tuple[float, float]:
    """Seconds until `count` new clients are answered, and the longest connect of one."""
    clients: list[socket.socket] = []
    worst = 0.0
    start = time.perf_counter()
    try:
        for _ in range(count):
            before = time.perf_counter()
            client = socket.create_connection(address, LIMIT_SECONDS)
            worst = max(worst, time.perf_counter() - before)
            client.sendall(REQUEST)
            clients.append(client)
        for client in clients:
            assert client.recv(1_000), "the client was closed"
        return time.perf_counter() - start, worst
    finally:
        for client in clients:
            client.close()


def serve_bare(port: multiprocessing.Queue[int]) -> None:
    """Accept all that come, then answer each: the least that any server does."""
    with (
        socket.create_server((LOCALHOST, 0), backlog=2**31 - 1) as listener,
        select.epoll() as ready,
    ):
        listener.setblocking(False)
        port.put(listener.getsockname()[1])
        ready.register(listener.fileno(), select.EPOLLIN)
        clients: dict[int, socket.socket] = {}
        while True:
            for fd, _ in ready.poll():
                if fd != listener.fileno():
                    if clients[fd].recv(1_000):
                        clients[fd].send(ANSWER)
                    else:
                        clients.pop(fd).close()
                    continue
                client = listener.accept()[0]
                clients[client.fileno()] = client
                ready.register(client.fileno(), select.EPOLLIN)


def report(name: str, address: tuple[str, int], count: int, runs: int = RUNS) -> None:
    results = [storm(address, count) for _ in range(runs)]
    seconds = statistics.median(seconds for seconds, _ in results)
    worst = max(worst for _, worst in results)
    print(f"{name:<34} {count:>7,} {seconds:8.2f} s {worst:8.2f} s", flush=True)


def main() -> None:
    print(machine.describe())
    print(f"medians of {RUNS} runs, Kafka's backlog once; net.core.somaxconn is {_somaxconn()}")
    print(f"{'':<34} {'clients':>7} {'answered':>10} {'worst':>10}")
    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    bare = multiprocessing.Process(target=serve_bare, args=(queue,), daemon=True)
    bare.start()
    address = (LOCALHOST, queue.get())
    for count in (3_000, 10_000):
        report("bare epoll loop", address, count)
    bare.terminate()
    bare.join()
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            for count in (3_000, 10_000):
                report("Ottla", (LOCALHOST, broker.port), count)
        finally:
            broker.stop()
        small = {"socket_listen_backlog_size": KAFKAS_BACKLOG}
        broker = BrokerProcess(Path(folder) / "small", **small).start()
        try:
            report(f"Ottla, a backlog of {KAFKAS_BACKLOG}", (LOCALHOST, broker.port), 3_000, 1)
        finally:
            broker.stop()


def _somaxconn() -> str:
    path = Path("/proc/sys/net/core/somaxconn")
    return path.read_text().strip() if path.exists() else os.name


if __name__ == "__main__":
    main()
