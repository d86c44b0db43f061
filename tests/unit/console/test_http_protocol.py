"""Limits of the console's connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn

from ottla.console import http_forms, http_protocol
from ottla.console.http_forms import form_of
from ottla.console.http_protocol import HttpProtocol
from ottla.console.refusals import Refused
from ottla.testing import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def console(is_over: asyncio.Event | None = None) -> AsyncIterator[int]:
    """The port of a server whose answer ends when the event is set."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if is_over is not None:
            await is_over.wait()
        await send({"type": "http.response.body", "body": b"ended"})

    endpoint = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=HttpProtocol, lifespan="off", log_config=None, ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([endpoint]))
    await wait_until_async(lambda: server.started, "the server")
    try:
        yield endpoint.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@pytest.mark.parametrize("sent", [b"", REQUEST[:20], REQUEST + REQUEST[:20]])
def test_connection_without_a_whole_request_ends(monkeypatch, sent):
    """Also behind a request that was answered, where the server waits for the next one."""
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.05)

    async def run() -> bytes:
        async with console() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            found = await reader.read()
            writer.close()
        return found

    assert (b"ended" in asyncio.run(run())) is (len(sent) > len(REQUEST))


def test_answer_that_takes_longer_is_sent_to_its_end(monkeypatch):
    """A page may follow a topic for hours: of such a connection no request is due."""
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.05)

    async def run() -> bytes:
        is_over = asyncio.Event()
        async with console(is_over) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await reader.readuntil(b"begun")
            other, of_other = await asyncio.open_connection("127.0.0.1", port)
            assert await other.read() == b"", "the time of one without a request is over"
            of_other.close()
            is_over.set()
            found = await reader.read()
            writer.close()
        return found

    assert b"ended" in asyncio.run(run())


def test_connections_have_a_limit(monkeypatch):
    """One more is closed, and the others are served."""
    monkeypatch.setattr(http_protocol, "MOST_CONNECTIONS", 1)

    async def run() -> tuple[bytes, bytes]:
        async with console() as port:
            first, to_first = await asyncio.open_connection("127.0.0.1", port)
            second, to_second = await asyncio.open_connection("127.0.0.1", port)
            refused = await second.read()
            to_first.write(REQUEST)
            found = await first.readuntil(b"ended")
            for each in (to_first, to_second):
                each.close()
        return found, refused

    found, refused = asyncio.run(run())
    assert (found[:12], refused) == (b"HTTP/1.1 200", b"")


def test_form_that_does_not_come_is_not_waited_for(monkeypatch):
    """Whoever is not logged in may begin to send one."""
    monkeypatch.setattr(http_forms, "FORM_S", 0.01)

    async def receive():
        await asyncio.Event().wait()

    with pytest.raises(Refused, match="has not come") as caught:
        asyncio.run(form_of(receive, {}, "csrf"))
    assert caught.value.status == 408
