"""ZooKeeper in a simulated world: a server with sessions, and the registry that talks to it.

Requests and answers travel over streams, and so are late, lost with their connection, and sent
again. In a session each request is executed once, however often it is sent. A session ends when
the server has not heard of it for its timeout, even if the client believes otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.registry.node_tree import NodeTree
from ottla.registry.session_tree import SessionTree, TreeSession, WatchKind
from ottla.registry.tree import (
    ANY_VERSION,
    CallbackWatch,
    Create,
    Delete,
    Operation,
    RegistryError,
    RegistryFailedError,
    SessionEndedError,
    SessionState,
    Set,
    Stat,
    Watch,
)
from ottla.runtime.scheduler import Timer
from ottla.testing.simulation.network import StreamEnd
from ottla.testing.simulation.world import SimulatedProcess

if TYPE_CHECKING:
    from ottla.testing.simulation.world import World

logger = logging.getLogger(__name__)

HOST: Final = "zookeeper"
PORT: Final = 2181
RECONNECT_MS: Final = 100

EXPIRED: Final = -1
"""The id in the answer to a client whose session is over."""


class Session(TreeSession):
    """The server's side of a client."""

    def __init__(self, tree: SessionTree, timeout_ms: int, now_ms: int) -> None:
        super().__init__(tree, tree.next_session_id())
        self.timeout_ms = timeout_ms
        self.last_heard_ms = now_ms
        self.answers: dict[int, tuple[Any, ...]] = {}
        self.watches: dict[tuple[WatchKind, str], None] = {}
        self.connection: ServerConnection | None = None

    def tell(self, kind: WatchKind, path: str) -> None:
        if (kind, path) in self.watches and self.connection is not None:
            self.connection.send("changed", kind, path)

    def on_end(self) -> None:
        if self.connection is not None:
            self.connection.end.close()


class ServerConnection:
    """The server's end of a stream."""

    def __init__(self, server: SimulatedZooKeeper, end: StreamEnd) -> None:
        self.server = server
        self.end = end
        self.session: Session | None = None

    def send(self, *message: Any) -> None:
        self.end.write(pickle.dumps(message))

    def on_bytes(self, data: bytes) -> None:
        self.server.on_message(self, pickle.loads(data))

    def on_end(self, error: Exception | None) -> None:
        if self.session is not None and self.session.connection is self:
            self.session.connection = None


class SimulatedZooKeeper:
    """The server. Its tree and its sessions outlive its process, as they do in an ensemble."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shared = SessionTree(world.clock)
        self.sessions: dict[int, Session] = {}
        self.process = SimulatedProcess(world, HOST)
        self.start()

    @property
    def tree(self) -> NodeTree:
        """The nodes, as the last write has left them."""
        return self.shared.nodes

    def start(self) -> None:
        """Serve, in a new process if the last one was killed."""
        if not self.process.is_alive:
            self.process = SimulatedProcess(self.world, HOST)
        for session in self.sessions.values():
            session.last_heard_ms = self.world.now_ms
            session.connection = None
        self.process.network.serve(HOST, PORT, lambda end: ServerConnection(self, end))
        self.process.scheduler.call_every(500, self._expire)

    def expire(self, session_id: int) -> None:
        """End a session, as its timeout would."""
        del self.sessions[session_id]
        self.shared.end(session_id)

    def _expire(self) -> None:
        now_ms = self.world.now_ms
        for session in list(self.sessions.values()):
            if now_ms - session.last_heard_ms > session.timeout_ms:
                self.expire(session.id)

    def on_message(self, connection: ServerConnection, message: tuple[Any, ...]) -> None:
        kind, *arguments = message
        if kind == "connect":
            self._connect(connection, *arguments)
            return
        session = connection.session
        if session is None or session.id not in self.sessions:
            connection.end.close()
            return
        session.last_heard_ms = self.world.now_ms
        if kind == "ping":
            connection.send("pong")
        elif kind == "watch":
            session.watches[arguments[0], arguments[1]] = None
        elif kind == "close":
            self.expire(session.id)
        else:
            self._request(session, connection, kind, arguments)

    def _connect(self, connection: ServerConnection, session_id: int, timeout_ms: int) -> None:
        if session_id and session_id not in self.sessions:
            connection.send("connected", EXPIRED)
            return
        if not session_id:
            new = self.shared.open(Session(self.shared, timeout_ms, self.world.now_ms))
            self.sessions[new.id] = new
            session_id = new.id
        session = self.sessions[session_id]
        session.last_heard_ms = self.world.now_ms
        if session.connection is not None:
            # As ZooKeeper does: of two connections, maybe out of order, one would hear of nothing.
            session.connection.end.close()
        session.connection = connection
        connection.session = session
        connection.send("connected", session_id)

    def _request(
        self, session: Session, connection: ServerConnection, kind: str, arguments: list[Any]
    ) -> None:
        request_id, *rest = arguments
        if request_id not in session.answers:
            try:
                answer = (True, self._perform(session, kind, rest))
            except RegistryError as error:
                answer = (False, (type(error), error.message))
            session.answers[request_id] = answer
        connection.send("answer", request_id, *session.answers[request_id])

    def _perform(self, session: Session, kind: str, arguments: list[Any]) -> Any:
        if kind == "number":
            return self.tree.numbered(arguments[0])
        if kind == "multi":
            _, stats = session.write(arguments[0])
            return stats
        return getattr(session, kind)(arguments[0])


class SimulatedRegistry:
    """`Registry` over the simulated network: waits without a server, fails with its session."""

    def __init__(self, process: SimulatedProcess, session_timeout_ms: int) -> None:
        self._process = process
        self._timeout_ms = session_timeout_ms
        self.session_id = 0
        self._end: StreamEnd | None = None
        self._is_connected = False
        self._is_closed = False
        self._last_heard_ms = 0
        self._last_request = 0
        self._pending: dict[int, tuple[asyncio.Future[Any], tuple[Any, ...]]] = {}
        self._watches: dict[tuple[WatchKind, str], list[CallbackWatch]] = {}
        self._session_watches: list[CallbackWatch] = []
        self._opened: asyncio.Future[None] | None = None
        self._heartbeat: Timer | None = None

    # Registry

    async def start(self) -> None:
        self._opened = asyncio.get_running_loop().create_future()
        scheduler = self._process.scheduler
        self._heartbeat = scheduler.call_every(max(1, self._timeout_ms // 3), self._beat)
        self._reconnect()
        await self._opened

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._fail_pending(RegistryFailedError("the registry was closed"))
        if self._end is not None:
            self._send("close")
            self._end.close()

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        if sequential:
            path = await self._ask("number", path)
        await self.multi([Create(path, data, ephemeral)])
        return path

    async def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = await self._ask("get", path)
        return data, stat

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([Set(path, data, version)])
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def exists(self, path: str) -> Stat | None:
        found: Stat | None = await self._ask("exists", path)
        return found

    async def children(self, path: str) -> list[str]:
        names: list[str] = await self._ask("children", path)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        stats: list[Stat | None] = await self._ask("multi", list(operations))
        return stats

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watch((WatchKind.DATA, path), callback)

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watch((WatchKind.CHILDREN, path), callback)

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        return CallbackWatch(self._session_watches, callback)

    # The session

    def _reconnect(self) -> None:
        if not self._is_closed:
            self._process.spawn(self._connect(), "connect to ZooKeeper")

    async def _connect(self) -> None:
        try:
            end = await self._process.network.open(HOST, PORT)
        except OSError:
            self._process.scheduler.call_later(RECONNECT_MS, self._reconnect)
            return
        if self._is_closed:
            end.close()
            return
        end.user = self
        self._end = end
        self._last_heard_ms = self._process.world.now_ms
        self._send("connect", self.session_id, self._timeout_ms)

    def _beat(self) -> None:
        if self._end is None:
            return
        if self._process.world.now_ms - self._last_heard_ms > self._timeout_ms * 2 // 3:
            self._end.close()
            self.on_end(None)
        elif self._is_connected:
            self._send("ping")

    def on_bytes(self, data: bytes) -> None:
        self._last_heard_ms = self._process.world.now_ms
        kind, *arguments = pickle.loads(data)
        if kind == "connected":
            self._on_connected(arguments[0])
        elif kind == "answer":
            self._on_answer(*arguments)
        elif kind == "changed":
            for watch in tuple(self._watches.get((arguments[0], arguments[1]), ())):
                watch.callback()

    def on_end(self, error: Exception | None) -> None:
        if self._end is None:
            return
        self._end = None
        if self._is_connected:
            self._is_connected = False
            self._tell(SessionState.SUSPENDED)
        self._process.scheduler.call_later(RECONNECT_MS, self._reconnect)

    def _on_connected(self, session_id: int) -> None:
        if session_id == EXPIRED:
            self.session_id = 0
            self._fail_pending(SessionEndedError("the session has expired"))
            self._tell(SessionState.EXPIRED)
            self._send("connect", 0, self._timeout_ms)
            return
        is_first = self._opened is not None and not self._opened.done()
        is_new = session_id != self.session_id
        self.session_id, self._is_connected = session_id, True
        for kind, path in self._watches:
            self._send("watch", kind, path)
        for _, message in self._pending.values():
            self._send(*message)
        if is_first and self._opened is not None:
            self._opened.set_result(None)
            return
        self._tell(SessionState.RENEWED if is_new else SessionState.RESUMED)
        for watches in list(self._watches.values()):  # something may have changed unseen
            for watch in tuple(watches):
                self._process.scheduler.call_soon(watch.callback)

    def _on_answer(self, request_id: int, is_done: bool, answer: Any) -> None:
        future, _ = self._pending.pop(request_id, (None, ()))
        if future is None or future.done():
            return
        if is_done:
            future.set_result(answer)
        else:
            refusal, text = answer
            future.set_exception(refusal(text))

    async def _ask(self, kind: str, *arguments: Any) -> Any:
        if self._is_closed:
            raise RegistryFailedError("the registry was closed")
        self._last_request += 1
        request_id = self._last_request
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        message = (kind, request_id, *arguments)
        self._pending[request_id] = (future, message)
        if self._is_connected:
            self._send(*message)
        try:
            return await future
        finally:
            self._pending.pop(request_id, None)

    def _watch(self, key: tuple[WatchKind, str], callback: Callable[[], object]) -> Watch:
        if key not in self._watches:
            self._watches[key] = []
            if self._is_connected:
                self._send("watch", *key)
        return CallbackWatch(self._watches[key], callback)

    def _send(self, *message: Any) -> None:
        if self._end is not None:
            self._end.write(pickle.dumps(message))

    def _fail_pending(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(error)

    def _tell(self, state: SessionState) -> None:
        for watch in tuple(self._session_watches):
            watch.callback(state)
