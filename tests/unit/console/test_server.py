"""The process of a console: its line, its answers over HTTP, and its end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.console.console_settings import ConsoleSettings
from ottla.console.server import TlsFiles, serve, url_of


async def ask(port: int, path: str) -> bytes:
    """The head and body of an answer over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def test_console_says_its_url_and_serves(ottla_fresh_broker):
    """With a token that lets a browser in, then with one for the next browser."""
    said: asyncio.Queue[str] = asyncio.Queue()
    settings = ConsoleSettings(ottla_fresh_broker.bootstrap_servers, port=0)

    async def run() -> None:
        serving = asyncio.create_task(serve(settings, said.put_nowait))
        line = await said.get()
        assert f"{settings.bootstrap_servers} is ready at http://127.0.0.1:" in line
        address, _, token = line.rpartition(" ")[2].partition("?token=")
        port = int(address.rstrip("/").rpartition(":")[2])
        assert (await ask(port, "/")).startswith(b"HTTP/1.1 401")
        assert (await ask(port, f"/?token={token}")).startswith(b"HTTP/1.1 303")
        assert "another one" in await said.get()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(run())


def test_console_with_logins_has_a_form():
    """Its line has no token; no broker is asked before somebody logs in."""
    said: asyncio.Queue[str] = asyncio.Queue()
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    settings = ConsoleSettings("127.0.0.1:1", client, port=0, has_login=True)

    async def run() -> None:
        serving = asyncio.create_task(serve(settings, said.put_nowait))
        line = await said.get()
        assert "token" not in line
        answer = await ask(int(line.rstrip("/").rpartition(":")[2]), "/")
        assert answer.startswith(b"HTTP/1.1 401")
        assert b'action="/login"' in answer
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(run())


def test_port_in_use_is_an_error():
    """Before anything is asked of brokers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ConsoleSettings("127.0.0.1:1", port=taken.getsockname()[1])
        with pytest.raises(OSError, match="cannot listen"):
            asyncio.run(serve(settings, print))


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("127.0.0.1", None, "http://127.0.0.1:8090/"),
        ("0.0.0.0", None, "http://127.0.0.1:8090/"),
        ("::1", TlsFiles("c", "k"), "https://[::1]:8090/"),
        ("console.example", TlsFiles("c", "k"), "https://console.example:8090/"),
    ],
)
def test_url_is_one_for_this_machine(host, tls, url):
    """An address for all interfaces is none that a browser opens."""
    assert url_of(ConsoleSettings("", host=host), tls) == url
