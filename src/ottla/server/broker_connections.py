"""This broker's connections to the others, over the listener that brokers use among themselves."""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import NodeConnection, OutgoingTls
from ottla.protocol.message import Request, Response
from ottla.protocol.types import NEWEST
from ottla.runtime import Runtime
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import BROKER_CLIENT_ID, Node, Value

FIRST_BACKOFF_MS: Final = 20
MAX_BACKOFF_MS: Final = 500
CONNECT_TIMEOUT_MS: Final = 3_000


class BrokerConnectionSettings(Value, frozen=True):
    """The settings of a `NodeConnection`; a broker that is back is found again soon."""

    client_id: str
    request_timeout_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    reconnect_backoff_ms: int = FIRST_BACKOFF_MS
    reconnect_backoff_max_ms: int = MAX_BACKOFF_MS
    socket_connection_setup_timeout_ms: int = CONNECT_TIMEOUT_MS


class Purpose(Enum):
    """The purpose of a connection: a broker answers its requests in their order, one by one."""

    CONTROLLER = "controller"
    MARKERS = "markers"
    VERIFICATION = "verification"
    OFFSETS = "offsets"
    AUDIT = "audit"


class BrokerConnections:
    """Makes connections, and keeps one for each broker and purpose that is asked often."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        cache: MetadataCache,
        broker_id: int,
        tls: OutgoingTls | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.listener_name = config.inter_broker_listener_name
        self.request_timeout_ms = config.request_timeout_ms
        self._runtime = runtime
        self._cache = cache
        self._settings = BrokerConnectionSettings(
            client_id=f"{BROKER_CLIENT_ID}{broker_id}",
            request_timeout_ms=config.request_timeout_ms,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        self._tls = tls
        self._login = config.inter_broker_login()
        self._kept: dict[tuple[int, Purpose], NodeConnection] = {}

    def connect(self, node: Node) -> NodeConnection:
        """A connection of the caller's own, to be opened by its first use."""
        return NodeConnection(self._runtime, self._settings, node, self._tls, self._login)

    def node(self, broker_id: int) -> Node:
        """The address of a live broker; BROKER_NOT_AVAILABLE if it does not live."""
        node = self._cache.node(broker_id, self.listener_name)
        if node is None:
            raise KafkaError.of(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker_id} does not live, or has no listener {self.listener_name}",
            )
        return node

    async def ask(
        self, node: Node, purpose: Purpose, request: Request, *, low: int = 0, high: int = NEWEST
    ) -> Response:
        """The answer to a request; KafkaError where there is none in time."""
        connection = self._connection(node, purpose)
        await connection.ready()
        version = connection.version_of(type(request), low, high)
        return await connection.send(request, version, self.request_timeout_ms)

    def drop(self, purpose: Purpose, reason: str) -> None:
        """Close the connections kept for a purpose: callers that wait get an error."""
        for key in [key for key in self._kept if key[1] is purpose]:
            self._kept.pop(key).close(reason)

    def close(self) -> None:
        """Close the kept connections; those made by `connect` are closed by their owners."""
        for connection in self._kept.values():
            connection.close("the broker stops")

    def _connection(self, node: Node, purpose: Purpose) -> NodeConnection:
        key = node.id, purpose
        connection = self._kept.get(key)
        if connection is None or connection.node != node:
            if connection is not None:
                connection.close("the broker is somewhere else now")
            connection = self._kept[key] = self.connect(node)
        return connection
