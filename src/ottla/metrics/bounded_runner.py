"""An HTTP server of aiohttp's that clients cannot fill: they share a broker's file descriptors."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from aiohttp import web

KEEP_S: Final = 75.0
"""How long a connection may be without a whole request; aiohttp keeps it for an hour."""
STOP_TIMEOUT_S: Final = 1.0
MOST_CONNECTIONS: Final = 256
"""One more is closed at once."""


class BoundedRunner(web.AppRunner):
    """Runs an application, with limits of connections and of their time without a request."""

    def __init__(self, application: web.Application) -> None:
        super().__init__(
            application,
            access_log=None,
            shutdown_timeout=STOP_TIMEOUT_S,
            handle_signals=False,
            keepalive_timeout=KEEP_S,
        )

    @property
    def server(self) -> Any:
        """The maker of a protocol for each connection, as sites take it."""
        server = super().server
        return None if server is None else partial(_protocol, server)


def _protocol(server: web.Server) -> asyncio.BaseProtocol:
    if len(server.connections) < MOST_CONNECTIONS:
        return server()
    return _Closing()


class _Closing(asyncio.Protocol):
    """Closes its connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
