"""What the machine itself can do, measured in the same run as whatever is compared with it."""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

MEGABYTE = 1_000_000
CHUNK = 1 << 20
TOTAL = 512 * CHUNK


def median_of(runs: int, measure: Callable[[], float]) -> float:
    """The median of several runs; the machine is shared and noisy."""
    return statistics.median(measure() for _ in range(runs))


def append_mb_per_second(total: int = TOTAL, chunk: int = CHUNK) -> float:
    """Append to a file in the page cache, `chunk` bytes a write."""
    data = os.urandom(chunk)
    with tempfile.NamedTemporaryFile() as file:
        start = time.perf_counter()
        for position in range(0, total, chunk):
            os.pwrite(file.fileno(), data, position)
        return total / MEGABYTE / (time.perf_counter() - start)


def sendfile_mb_per_second(total: int = TOTAL) -> float:
    """Send a file that is in the page cache over a loopback connection."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(CHUNK) * (64 * CHUNK // CHUNK))
        file.flush()
        listener = socket.create_server(("127.0.0.1", 0))
        sink = threading.Thread(target=_drain, args=(listener,))
        sink.start()
        with socket.create_connection(listener.getsockname()) as sender:
            start = time.perf_counter()
            sent = 0
            while sent < total:
                sent += os.sendfile(sender.fileno(), file.fileno(), sent % (32 * CHUNK), CHUNK)
        sink.join()
        listener.close()
        return total / MEGABYTE / (time.perf_counter() - start)


def _drain(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    buffer = bytearray(CHUNK)
    with connection:
        while connection.recv_into(buffer):
            pass


def describe() -> str:
    """The limits in a line."""
    append = median_of(3, append_mb_per_second)
    sendfile = median_of(3, sendfile_mb_per_second)
    return (
        f"machine: {os.cpu_count()} cores, page-cache append {append:,.0f} MB/s, "
        f"loopback sendfile {sendfile:,.0f} MB/s"
    )
