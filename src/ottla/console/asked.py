"""The requests that a page costs the brokers: each with its API, version, broker and time.

A page's requests are found by the context of its task, which the tasks that it starts inherit.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ottla.clients.network_client import NODE_MASK, NetworkClient
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.network.node_connection import NodeConnection
    from ottla.protocol.message import Request
    from ottla.runtime import Clock
    from ottla.runtime.network import Network, StreamOptions


class AskedRequest(NamedTuple):
    """A request that was answered, or has failed; a broker below 0 is a bootstrap server."""

    api: str
    version: int
    broker: int
    ms: float


class PageRequests:
    """The requests of one page, in the order of their answers."""

    def __init__(self, network: CountingNetwork) -> None:
        self.requests: list[AskedRequest] = []
        self._network = network
        self._bytes_before = network.received
        self.ms = 0.0
        """The time from the first request to the last answer."""
        self._began_ns: int | None = None

    @property
    def received_bytes(self) -> int:
        """What the brokers have answered since the page began, to it and to pages beside it."""
        return self._network.received - self._bytes_before

    def note(self, request: AskedRequest, began_ns: int, now_ns: int) -> None:
        """Add a request that was answered, and when it began and ended."""
        self._began_ns = began_ns if self._began_ns is None else min(self._began_ns, began_ns)
        self.requests.append(request)
        self.ms = max(self.ms, (now_ns - self._began_ns) / 1e6)


current: ContextVar[PageRequests | None] = ContextVar("asked", default=None)
"""The requests of the page that this task works for; None for work that is no page's."""


class AskingClient(NetworkClient):
    """A client that notes its requests for the page that they are sent for."""

    def send_on(
        self,
        connection: NodeConnection,
        request: Request,
        version: int,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[Any]:
        """Send on an open connection, at once."""
        asked, clock = current.get(), self.runtime.clock
        began_ns = clock.monotonic_ns()
        answer = super().send_on(connection, request, version, timeout_ms)
        if asked is not None:
            api, broker = type(request).__name__.removesuffix("Request"), connection.node.id
            node = broker & NODE_MASK if broker >= 0 else broker
            answer.add_done_callback(_noting(asked, api, version, node, began_ns, clock))
        return answer


def _noting(
    asked: PageRequests, api: str, version: int, broker: int, began_ns: int, clock: Clock
) -> Callable[[asyncio.Future[Any]], None]:
    def note(_answer: asyncio.Future[Any]) -> None:
        now_ns = clock.monotonic_ns()
        request = AskedRequest(api, version, broker, (now_ns - began_ns) / 1e6)
        asked.note(request, began_ns, now_ns)

    return note


class CountingNetwork:
    """A network that counts the bytes that its connections receive."""

    def __init__(self, network: Network) -> None:
        self.received = 0
        self._network = network

    async def connect(
        self, protocol_factory: Callable[[], Any], host: str, port: int, options: StreamOptions
    ) -> tuple[Any, Any]:
        """As the network below."""

        def counted() -> Any:
            protocol = protocol_factory()
            take = protocol.buffer_updated

            def count(size: int) -> None:
                self.received += size
                take(size)

            protocol.buffer_updated = count
            return protocol

        return await self._network.connect(counted, host, port, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)
