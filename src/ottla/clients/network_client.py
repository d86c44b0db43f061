"""The connections of one client: to the brokers of the metadata, and to bootstrap servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar, cast

from ottla.clients.client_metrics import ClientMetrics, RequestTimes
from ottla.clients.troubles import Troubles
from ottla.config.client_config import ClientConfig
from ottla.errors import (
    ConfigError,
    ErrorCode,
    InvalidMetadataError,
    KafkaError,
    KafkaTimeoutError,
    UnusableConnectionError,
)
from ottla.network.node_connection import NodeConnection
from ottla.network.tls_context import client_tls
from ottla.protocol.message import Request
from ottla.runtime import Runtime, Timer
from ottla.runtime.scheduler import is_under_way, pause, within
from ottla.runtime.timing import Deadline
from ottla.structs import Node

FIRST_BOOTSTRAP_ID = -2
BOOTSTRAP_LINGER_MS = 1000
PURPOSE_SHIFT = 32
NODE_MASK = (1 << PURPOSE_SHIFT) - 1
PATIENCE_MS: Final = 3_000
"""How long a broker may be silent before another one is asked what any of them knows."""

T = TypeVar("T")


class RequestKind(IntEnum):
    """Purposes with separate connections, as a broker handles one request of each at a time.

    A fetch waits for records and a JoinGroup for members; other requests must not wait for them.
    """

    CONTROL = 0
    FETCH = 1
    GROUP = 2


def connection_id(node_id: int, purpose: RequestKind) -> int:
    """The id under which the client knows its connection to a broker for a purpose."""
    return node_id | purpose << PURPOSE_SHIFT


class NetworkClient:
    """Sends requests to brokers by their ids.

    The addresses of bootstrap.servers are nodes with ids below -1, used while no broker is known,
    and again when none of the known brokers can be reached.
    """

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self.runtime = runtime
        self.config = config
        self.last_failure = "nothing was answered"  # why a broker could not be reached, or used
        self.troubles = Troubles(runtime.clock)
        tls = client_tls(config)
        self._tls = None if tls is None else tls.current
        self._login = config.sasl_login()
        self._bootstrap = bootstrap_nodes(config.bootstrap_servers)
        self._nodes: Mapping[int, Node] = {}
        self._connections: dict[int, NodeConnection] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._bootstrap_timer: Timer | None = None
        self.times = RequestTimes(runtime)
        self._is_closed = False

    def update_nodes(self, nodes: Mapping[int, Node]) -> None:
        """Take over the brokers of the metadata; connections to others are closed."""
        self._nodes = nodes
        for node_id, connection in list(self._connections.items()):
            if node_id >= 0 and nodes.get(node_id & NODE_MASK) != connection.node:
                self._forget(node_id, "the broker has left or moved")
        if self._bootstrap_timer is None and nodes:
            self._bootstrap_timer = self.runtime.scheduler.call_later(
                BOOTSTRAP_LINGER_MS, self._close_bootstrap
            )

    def update_bootstrap(self, servers: Iterable[str]) -> None:
        """Replace the bootstrap addresses, if they are learned while the client runs."""
        self._bootstrap = bootstrap_nodes(servers)
        for node_id, connection in list(self._connections.items()):
            if node_id < 0 and self._bootstrap.get(node_id) != connection.node:
                self._forget(node_id, "the brokers have changed")

    def metrics(self, group: str) -> ClientMetrics:
        """The metrics of this client's requests, as the first part of a producer's metrics."""
        connections = self._connections
        return ClientMetrics(
            self.runtime,
            group,
            self.times,
            lambda: sum(each.is_ready for each in connections.values()),
            lambda: sum(each.in_flight for each in connections.values()),
        )

    @property
    def node_ids(self) -> list[int]:
        """The ids of the brokers in the metadata."""
        return list(self._nodes)

    def connection(self, node_id: int) -> NodeConnection:
        """The connection with an id, open or not; raises if there is no such node."""
        if self._is_closed:
            raise RuntimeError("the client is closed")
        connection = self._connections.get(node_id)
        if connection is None:
            node = self._bootstrap.get(node_id) or self._nodes.get(node_id & NODE_MASK)
            if node is None:
                raise InvalidMetadataError(
                    ErrorCode.NETWORK_EXCEPTION, f"no broker with the id {node_id & NODE_MASK}"
                )
            connection = NodeConnection(self.runtime, self.config, node, self._tls, self._login)
            self._connections[node_id] = connection
        return connection

    async def ready(self, node_id: int) -> NodeConnection:
        """The open connection to a node, after waiting for its backoff and its throttling."""
        connection = self.connection(node_id)
        if not connection.is_ready:
            wait_ms = connection.retry_at_ms - self.runtime.clock.monotonic_ms()
            if wait_ms > 0:
                await pause(self.runtime.scheduler, wait_ms)
            await connection.ready()
        if connection.throttle_left_ms:
            await self._wait_out(connection)
        return connection

    async def _wait_out(self, connection: NodeConnection) -> None:
        """Wait until the broker reads requests again; no longer than for an answer."""
        throttle_ms, limit_ms = connection.throttle_left_ms, self.config.request_timeout_ms
        await pause(self.runtime.scheduler, min(throttle_ms, limit_ms))
        if connection.throttle_left_ms:
            raise KafkaTimeoutError(
                f"broker {connection.node} throttles this client for {throttle_ms} ms, longer than "
                f"request.timeout.ms ({limit_ms})"
            )
        await connection.ready()

    def why_not_ready(self, node_id: int) -> str:
        """Why a known node takes no requests now, behind a semicolon; empty if it does."""
        connection = self._connections.get(node_id)
        if connection is not None and connection.is_ready and not connection.throttle_left_ms:
            return ""
        return f"; {self.last_failure}"

    def ready_now(self, node_id: int, on_change: Callable[[], object]) -> NodeConnection | None:
        """The open connection to a node that takes requests now.

        If there is none, `on_change` is called when it was opened, or is no longer throttled.
        """
        connection = self.connection(node_id)
        if connection.is_ready and not connection.throttle_left_ms:
            return connection
        if not is_under_way(self._connecting.get(node_id)):
            self._connecting[node_id] = self.runtime.scheduler.spawn(
                self._connect(node_id, on_change), f"connect to broker {node_id}"
            )
        return None

    async def _connect(self, node_id: int, on_change: Callable[[], object]) -> None:
        try:
            if not self._is_closed:
                await self.ready(node_id)
        except KafkaError as error:
            self.last_failure = error.message  # the caller checks again, and finds it still closed
        finally:
            self._connecting.pop(node_id, None)
        if not self._is_closed:
            on_change()

    async def any_ready(
        self, deadline: Deadline, besides: NodeConnection | None = None
    ) -> NodeConnection:
        """An open connection to any broker: the least busy one that is open, else a new one.

        Each has a share of the time, so that one that hangs leaves some to the others; `besides` is
        none of them. Raises UnusableConnectionError if a broker does not match the connection
        settings, and no other can be reached.
        """
        failures: dict[str, None] = {}
        while True:
            refusal: UnusableConnectionError | None = None
            chosen = [each for each in self._by_preference() if each is not besides]
            late: list[NodeConnection] = []
            for left, each in zip(range(len(chosen), 0, -1), chosen, strict=True):
                # A share may be shorter than a login, which goes on behind it.
                connection = next((other for other in late if other.is_ready), each)
                try:
                    await within(
                        self.runtime.scheduler,
                        -(-deadline.left_ms // left),
                        self._ready(connection),
                        f"cannot connect to {connection.node}",
                    )
                    return connection
                except KafkaError as error:
                    failures[error.message] = None
                    self.last_failure = error.message
                    refusal = error if isinstance(error, UnusableConnectionError) else refusal
                    late += [connection] * (not connection.is_ready)
                if deadline.has_passed:
                    break
            if refusal is not None:
                raise refusal
            if deadline.has_passed:
                reasons = "; ".join(failures) or "all of them failed a moment ago"
                raise deadline.timeout(f"none of the brokers could be reached ({reasons})")
            await pause(self.runtime.scheduler, min(self._next_try_ms(), deadline.left_ms))

    async def ask_any(
        self, ask: Callable[[NodeConnection], asyncio.Future[T]], deadline: Deadline
    ) -> T:
        """The answer of any broker, or of a second one where the first is silent for long.

        `ask` sends a request that may be answered twice. Much may wait for the answer: a broker
        that hangs would stop it for request.timeout.ms, though all others know as much.
        """
        connection = await self.any_ready(deadline)
        first = ask(connection)
        waiting = {first}
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE_MS / 1000)
        if done:
            return first.result()
        # It is not given up: a connection on which something waits is not the next one's choice.
        first.add_done_callback(lambda answer: answer.cancelled() or answer.exception())

        async def ask_another() -> T:
            return await ask(await self.any_ready(deadline, connection))

        second = asyncio.ensure_future(ask_another())
        waiting.add(second)
        try:
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                answered = [each for each in done if each.exception() is None]
                if answered or not waiting:
                    return (answered or list(done))[0].result()
        finally:
            second.cancel()

    async def _ready(self, connection: NodeConnection) -> None:
        await connection.ready()
        if connection.throttle_left_ms:
            await self._wait_out(connection)

    async def send(
        self, node_id: int, request: Request, *, low: int = 0, timeout_ms: int | None = None
    ) -> Any:
        """Connect if needed, send in the highest common version from `low` on, and wait."""
        connection = await self.ready(node_id)
        version = connection.version_of(type(request), low)
        return await self.send_on(connection, request, version, timeout_ms)

    def send_on(
        self,
        connection: NodeConnection,
        request: Request,
        version: int,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[Any]:
        """Send on an open connection, at once."""
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        answer = cast("asyncio.Future[Any]", connection.send(request, version, limit_ms))
        self.times.watch(request.api_key, answer)
        return answer

    def send_unanswered(
        self, connection: NodeConnection, request: Request, version: int
    ) -> asyncio.Future[Any] | None:
        """Send what is not answered; the future, if any, is done when it has left this process."""
        return connection.send_without_response(request, version, self.config.request_timeout_ms)

    async def version_for(self, node_id: int, request: type[Request]) -> int:
        """The version in which a request of that kind will be sent to the node."""
        return (await self.ready(node_id)).version_of(request)

    def close_idle(self) -> None:
        """Close connections that have not been used for connections.max.idle.ms."""
        idle_ms = self.config.connections_max_idle_ms
        now_ms = self.runtime.clock.monotonic_ms()
        for node_id, connection in list(self._connections.items()):
            is_idle = connection.is_ready and not connection.in_flight
            if is_idle and 0 <= idle_ms <= now_ms - connection.last_used_ms:
                self._forget(node_id, f"not used for {idle_ms} ms")

    def disconnect(self) -> None:
        """Close connections that are idle, so that the next request comes by a new one."""
        for node_id, connection in list(self._connections.items()):
            if connection.is_ready and not connection.in_flight:
                self._forget(node_id, "a new connection is wanted")

    def close(self) -> None:
        """Close all connections; requests that wait for a response fail."""
        if self._bootstrap_timer is not None:
            self._bootstrap_timer.cancel()
        for node_id in list(self._connections):
            self._forget(node_id, "the client is closed")
        self._is_closed = True

    def _close_bootstrap(self) -> None:
        """Close idle bootstrap connections, some time after the brokers became known.

        Not at once, as a request may be about to use the connection.
        """
        self._bootstrap_timer = None
        for node_id, connection in list(self._connections.items()):
            if node_id < 0 and not connection.in_flight:
                self._forget(node_id, "the brokers are known now")

    def _forget(self, node_id: int, reason: str) -> None:
        self._connections.pop(node_id).close(reason)

    def _by_preference(self) -> list[NodeConnection]:
        """Open connections first, the least busy one in front; then those worth a try."""
        known = [self.connection(node_id) for node_id in self._nodes]
        ready = [c for c in known if c.is_ready]
        ready.sort(key=lambda c: (c.throttle_left_ms, c.in_flight))
        closed = self._worth_a_try(known)
        bootstrap = self._worth_a_try(map(self.connection, self._bootstrap))
        return ready + closed + bootstrap

    def _worth_a_try(self, connections: Iterable[NodeConnection]) -> list[NodeConnection]:
        chosen = [c for c in connections if c.is_ready or not c.is_backing_off]
        self.runtime.random.shuffle(chosen)
        return chosen

    def _next_try_ms(self) -> int:
        now_ms = self.runtime.clock.monotonic_ms()
        waits = [c.retry_at_ms - now_ms for c in self._connections.values()]
        # None waits where the only broker is the one that hangs: others may become known.
        default_ms = self.config.reconnect_backoff_ms
        return max(1, min((wait for wait in waits if wait >= 0), default=default_ms))


def bootstrap_nodes(servers: Iterable[str]) -> dict[int, Node]:
    """The addresses of bootstrap.servers as nodes, under ids that no broker has."""
    nodes = {}
    for index, server in enumerate(servers):
        host, _, port = server.rpartition(":")
        node_id = FIRST_BOOTSTRAP_ID - index
        nodes[node_id] = Node(node_id, host.strip("[]"), int(port))
    if not nodes:
        raise ConfigError("bootstrap.servers=: must name at least one broker as host:port")
    return nodes


def response_error(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """The exception for the error code of a response, with the subject of the request; None for 0.

    `what` is a kind and a name, as in `topic orders`; a message with the name gets no prefix.
    """
    if code == ErrorCode.NONE:
        return None
    name = what.partition(" ")[2]
    if message and name and name in message:
        return KafkaError.of(code, message)
    return KafkaError.of(code, f"{what}: {message or ErrorCode.of(code).sentence}")


def check_code(code: int, what: str, message: str | None = None) -> None:
    """Raise the exception for the error code of a response, unless it is 0."""
    error = response_error(code, what, message)
    if error is not None:
        raise error
