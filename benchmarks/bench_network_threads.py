"""What threads for TLS would bring: handshakes and megabytes a second, with none and with some.

A bare server hands sockets to threads, or does the work of OpenSSL in its one thread as the broker
does; two processes are its clients, on the same machine. It has none of a broker's own work, and
threads here block, so that it is the most that `num.network.threads` could bring. The runs take
turns; the CPU is that of the server for a handshake, or for a megabyte.
"""

from __future__ import annotations

import os
import socket
import ssl
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import trustme

from benchmarks import machine

RUNS = int(os.environ.get("BENCH_RUNS", "5"))
THREADS = (0, 1, 2, 3)
CLIENTS = 2
RUN_S = 2.0
CHUNK = bytes(1 << 20)
CHUNKS = 150


class Certificates:
    """A key and its authority, of RSA with 2048 bits as most are."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        leaf = authority.issue_cert("localhost", key_type=trustme.KeyType.RSA)
        self.key, self.ca = str(folder / "key.pem"), str(folder / "ca.pem")
        leaf.private_key_and_cert_chain_pem.write_to_path(self.key)
        authority.cert_pem.write_to_path(self.ca)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.key)
        return context


def shake_hands(port: int, ca: str, ready: Barrier) -> None:
    """A client that connects again and again, until the server has gone."""
    context = ssl.create_default_context(cafile=ca)
    ready.wait()
    try:
        while True:
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as endpoint,
            ):
                endpoint.recv(1)
    except OSError:
        return


def read_all(port: int, ca: str, ready: Barrier) -> None:
    """A client that reads what comes."""
    context, buffer = ssl.create_default_context(cafile=ca), bytearray(1 << 20)
    ready.wait()
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as endpoint,
    ):
        while endpoint.recv_into(buffer):
            pass


def serve_handshakes(
    listener: socket.socket, context: ssl.SSLContext, pool: Executor | None
) -> int:
    """Shake hands for a while; how many times."""

    def one(plain: socket.socket) -> None:
        with plain, context.wrap_socket(plain, server_side=True) as endpoint:
            endpoint.send(b"x")

    count, end_s, under_way = 0, time.monotonic() + RUN_S, set()
    while time.monotonic() < end_s:
        plain, _ = listener.accept()
        count += 1
        if pool is None:
            one(plain)
        else:
            under_way.add(pool.submit(one, plain))
    wait(under_way)
    return count


def serve_records(listener: socket.socket, context: ssl.SSLContext, pool: Executor | None) -> int:
    """Send megabytes to each client; how many."""
    plain = [listener.accept()[0] for _ in range(CLIENTS)]
    endpoints = [context.wrap_socket(each, server_side=True) for each in plain]
    for _ in range(CHUNKS):
        if pool is None:
            for each in endpoints:
                each.sendall(CHUNK)
        else:
            wait([pool.submit(each.sendall, CHUNK) for each in endpoints])
    for each in endpoints:
        each.close()
    return CHUNKS * CLIENTS


def run(
    serve: Callable[..., int], client: Callable[..., None], made: Certificates, threads: int
) -> tuple[float, float]:
    """How many a second, and the milliseconds of CPU for each."""
    context, processes = made.server(), get_context("spawn")
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        port = listener.getsockname()[1]
        ready = processes.Barrier(CLIENTS + 1)
        arguments = (port, made.ca, ready)
        clients = [processes.Process(target=client, args=arguments) for _ in range(CLIENTS)]
        for each in clients:
            each.start()
        pool = ThreadPoolExecutor(threads) if threads else None
        ready.wait()
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        count = serve(listener, context, pool)
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
        if pool is not None:
            pool.shutdown()
    for each in clients:
        each.terminate()
        each.join()
    return count / took_s, 1000 * cpu_s / count


def main() -> None:
    """Both kinds of work, by the number of threads."""
    print(machine.describe())
    with tempfile.TemporaryDirectory() as folder:
        made = Certificates(Path(folder))
        for what, serve, client in (
            ("handshakes", serve_handshakes, shake_hands),
            ("MB", serve_records, read_all),
        ):
            found = defaultdict(list)
            for _ in range(RUNS):
                for threads in THREADS:
                    found[threads].append(run(serve, client, made, threads))
            for threads, runs in found.items():
                rate, cpu_ms = (statistics.median(values) for values in zip(*runs, strict=True))
                print(f"{threads} threads: {rate:7,.0f} {what}/s, {cpu_ms:.2f} ms of CPU for each")


if __name__ == "__main__":
    main()
