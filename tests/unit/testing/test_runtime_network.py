"""Streams in memory: two protocols, one at each end."""

from __future__ import annotations

import asyncio

import pytest

from ottla.testing import MockRuntime, mock_runtime


class Recorder(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.received = b""
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Buffered(asyncio.BufferedProtocol):
    """Receives three bytes at a time."""

    def __init__(self) -> None:
        self.buffer = bytearray(3)
        self.received = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]


@pytest.fixture
def runtime() -> MockRuntime:
    return mock_runtime()


def test_bytes_arrive_at_the_other_end_in_a_later_step(runtime: MockRuntime) -> None:
    """In both directions, whichever kind of protocol listens."""
    server = Recorder()
    runtime.network.serve("host", 1, lambda: server)
    transport, client = runtime.scheduler.run(runtime.network.connect(Buffered, "host", 1))
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"question")
    assert server.received == b""
    runtime.scheduler.run_ready()
    assert server.transport is not None
    server.transport.write(b"answer")
    runtime.scheduler.run_ready()

    assert server.received == b"question"
    assert client.received == b"answer"


def test_close_reaches_both_ends(runtime: MockRuntime) -> None:
    """What was written before arrives before."""
    server = Recorder()
    runtime.network.serve("host", 1, lambda: server)
    transport, client = runtime.scheduler.run(runtime.network.connect(Recorder, "host", 1))
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"last words")
    transport.close()
    transport.write(b"too late")
    runtime.scheduler.run_ready()

    assert server.received == b"last words"
    assert server.lost
    assert client.lost
    assert transport.is_closing()


def test_connection_is_refused_where_nobody_serves(runtime: MockRuntime) -> None:
    """Before somebody does, and after they stopped; there are no sockets to listen on."""
    runtime.network.serve("host", 1, Recorder)
    runtime.network.stop_serving("host", 1)
    with pytest.raises(ConnectionRefusedError):
        runtime.scheduler.run(runtime.network.connect(Recorder, "host", 1))
    with pytest.raises(OSError, match="no sockets"):
        runtime.network.listen("host", 1, backlog=5)
