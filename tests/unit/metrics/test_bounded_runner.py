"""Limits of the HTTP servers that share a process with a broker or a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from ottla.metrics import bounded_runner
from ottla.metrics.bounded_runner import BoundedRunner
from ottla.testing import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def served(runner: BoundedRunner) -> int:
    """The port at which the runner serves."""
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return int(runner.addresses[0][1])


def application() -> web.Application:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    found = web.Application()
    found.add_routes([web.get("/", hello)])
    return found


async def answer(port: int) -> bytes:
    """The answer to a request of a new connection, empty where that is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(REQUEST)
        return await reader.read(12)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two connections at once."""
    monkeypatch.setattr(bounded_runner, "MOST_CONNECTIONS", 2)


async def silent(port: int, count: int) -> AsyncIterator[tuple[asyncio.StreamReader, object]]:
    for _ in range(count):
        yield await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.usefixtures("small")
def test_connections_have_a_limit():
    """One more is closed; it is served once another has gone."""

    async def run() -> None:
        runner = BoundedRunner(application())
        port = await served(runner)
        try:
            first, second = [each async for each in silent(port, 2)]
            await wait_until_async(lambda: len(runner._server.connections) == 2, "both of them")
            assert await answer(port) == b""
            first[1].close()
            await wait_until_async(lambda: len(runner._server.connections) == 1, "the end of one")
            assert await answer(port) == b"HTTP/1.1 200"
            second[1].close()
        finally:
            await runner.cleanup()

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", REQUEST[:20], REQUEST + REQUEST[:20]])
def test_connection_without_a_whole_request_ends(monkeypatch, sent):
    """Also behind a request that was answered: others have its place then."""
    monkeypatch.setattr(bounded_runner, "KEEP_S", 0.05)

    async def run() -> bytes:
        runner = BoundedRunner(application())
        port = await served(runner)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            found = await reader.read()
            writer.close()
        finally:
            await runner.cleanup()
        return found

    assert asyncio.run(run()).startswith(b"HTTP/1.1 200" if len(sent) > len(REQUEST) else b"")
