"""The process of a console: its loop, its HTTP server, and the line that names its URL."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from ottla.console.console_cluster import ConsoleCluster
from ottla.console.frame import ConsoleApp
from ottla.console.http_protocol import HttpProtocol
from ottla.console.pages import CHANGES, COLLECTORS, EXPORTS, PAGES, STREAMS
from ottla.console.sessions import Sessions
from ottla.console.user_sessions import UserSessions
from ottla.runtime.runtime import real_runtime
from ottla.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.console.console_settings import ConsoleSettings
    from ottla.runtime import Runtime

WAITING_BROWSERS: Final = 128
LAST_ANSWERS_S: Final = 1
"""How long open pages may take to end; a live stream never ends by itself."""

logger = logging.getLogger(__name__)


class ConsoleServer(uvicorn.Server):
    """Calls `on_ready` once it takes requests."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    def end_with(self, lifeline: int) -> None:
        """End when the input at a file descriptor does."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(lifeline, 1024):
                loop.remove_reader(lifeline)
                self.should_exit = True

        loop.add_reader(lifeline, look)

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


class TlsFiles:
    """The certificate and the key of a console that speaks HTTPS, as files in PEM."""

    def __init__(self, certificate: str, key: str) -> None:
        self.certificate = certificate
        self.key = key


def run_console(
    settings: ConsoleSettings,
    say: Callable[[str], object],
    tls: TlsFiles | None = None,
    lifeline: int | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; `say` gets the lines for the terminal.

    It also ends with the input at the file descriptor `lifeline`. Raises OSError where the address
    is in use.
    """
    asyncio.run(serve(settings, say, tls, lifeline))


async def serve(
    settings: ConsoleSettings,
    say: Callable[[str], object],
    tls: TlsFiles | None = None,
    lifeline: int | None = None,
) -> None:
    """The same on the running loop."""
    runtime = real_runtime(asyncio.get_running_loop(), background_workers=2)
    sockets = runtime.network.listen(settings.host, settings.port, backlog=WAITING_BROWSERS)
    settings = replace(settings, port=sockets[0].getsockname()[1])
    try:
        await _serve_on(sockets, runtime, settings, say, tls, lifeline)
    finally:
        for each in sockets:
            each.close()
        await runtime.close()


async def _serve_on(
    sockets: list[Any],
    runtime: Runtime,
    settings: ConsoleSettings,
    say: Callable[[str], object],
    tls: TlsFiles | None,
    lifeline: int | None,
) -> None:
    address = url_of(settings, tls) + ("run" if settings.report else "")
    sessions: Sessions
    cluster = None
    if settings.has_login:
        sessions = UserSessions(runtime, settings, COLLECTORS)
    else:
        sessions = Sessions(
            settings.has_token,
            lambda token: say(f"A browser has come in; for another one: {address}?token={token}"),
        )
        cluster = ConsoleCluster(runtime, settings)
        cluster.start(COLLECTORS)
    entrance = f"{address}?token={sessions.token}" if sessions.token else address
    ready = f"The console of {settings.bootstrap_servers} is ready at {entrance}"
    app = ConsoleApp(cluster, settings, sessions, PAGES, CHANGES, STREAMS, EXPORTS)
    server = ConsoleServer(http_config(app, tls), lambda: say(ready))
    if lifeline is not None:
        server.end_with(lifeline)
    try:
        await server.serve(sockets)
    finally:
        sessions.close()
        if cluster is not None:
            cluster.close()


def http_config(app: ConsoleApp, tls: TlsFiles | None) -> uvicorn.Config:
    """The HTTP server: quiet, without WebSocket, and without trust in headers of proxies."""
    return uvicorn.Config(
        app.asgi,
        log_config=None,
        access_log=False,
        log_level="warning",
        lifespan="off",
        ws="none",
        http=HttpProtocol,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
        ssl_certfile=tls.certificate if tls is not None else None,
        ssl_keyfile=tls.key if tls is not None else None,
    )


def url_of(settings: ConsoleSettings, tls: TlsFiles | None) -> str:
    """The address for a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(settings.host)
    host = host or (f"[{settings.host}]" if ":" in settings.host else settings.host)
    return f"{'http' if tls is None else 'https'}://{host}:{settings.port}/"
