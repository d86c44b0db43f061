"""The sessions of a tree, as several clients share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TypeVar

from ottla.registry.node_tree import Done, NodeTree, TreeNode, Write, WriteKind, split_path
from ottla.registry.tree import (
    ANY_VERSION,
    CallbackWatch,
    Create,
    Delete,
    NoNodeError,
    Operation,
    RegistryFailedError,
    SessionState,
    Set,
    Stat,
    Watch,
)
from ottla.runtime import Clock, Scheduler

SessionT = TypeVar("SessionT", bound="TreeSession")


class WatchKind(Enum):
    """The part of a node that is watched."""

    DATA = "data"
    CHILDREN = "children"


"""Is told what has changed, and the path."""


class TreeSession:
    """A client of the tree, which owns the ephemeral nodes that it has created."""

    def __init__(self, tree: SessionTree, session_id: int) -> None:
        self.id = session_id
        self.ephemerals: dict[str, None] = {}
        self._tree = tree

    def tell(self, kind: WatchKind, path: str) -> None:
        """A node has changed, by a write of this session or of another; called within the write."""

    def on_end(self) -> None:
        """The session is over, and its ephemeral nodes are gone."""

    def get(self, path: str) -> tuple[bytes, Stat]:
        node = self._tree.nodes.find(path)
        return node.data, self._stat(path, node)

    def exists(self, path: str) -> Stat | None:
        try:
            return self._stat(path, self._tree.nodes.find(path))
        except NoNodeError:
            return None

    def children(self, path: str) -> list[str]:
        return sorted(self._tree.nodes.find(path).children)

    def write(self, operations: Sequence[Operation]) -> tuple[list[Done], list[Stat | None]]:
        """Do all of it or nothing; returns the writes, and the answers of `Registry.multi`."""
        return self._tree.write(operations, self)

    def _stat(self, path: str, node: TreeNode) -> Stat:
        return node.stat()._replace(is_own=path in self.ephemerals)


class SessionTree:
    """The tree and its sessions: a write of one of them is seen by all at once.

    Invariant: an ephemeral node is in `ephemerals` of one session, which is in `sessions`.
    """

    def __init__(self, clock: Clock, nodes: NodeTree | None = None, last_id: int = 0) -> None:
        self.nodes = nodes or NodeTree()
        self.last_id = last_id
        """The number of the last write."""
        self.sessions: dict[int, TreeSession] = {}
        self._clock = clock
        self._last_session = 0

    def next_session_id(self) -> int:
        """An id that no session of this tree has had."""
        self._last_session += 1
        return self._last_session

    def open(self, session: SessionT) -> SessionT:
        """A new session, which sees changes from now on."""
        self.sessions[session.id] = session
        return session

    def end(self, session_id: int) -> None:
        """End a session, if it is not over; its ephemeral nodes go, and watches are called."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            for path in list(session.ephemerals):
                self.write([Delete(path)], session)
            session.on_end()

    def ephemeral(self) -> Iterator[tuple[str, TreeNode]]:
        """Every ephemeral node."""
        for session in self.sessions.values():
            yield from ((path, self.nodes.find(path)) for path in session.ephemerals)

    def write(
        self, operations: Sequence[Operation], owner: TreeSession | None = None
    ) -> tuple[list[Done], list[Stat | None]]:
        """Write like `TreeSession.write`; without an owner nothing ephemeral can be created."""
        done, stats = self.nodes.apply_all(operations, self._next_write)
        for write, is_ephemeral in done:
            if is_ephemeral and write.kind is WriteKind.CREATE:
                assert owner is not None, "an ephemeral node belongs to a session"
                owner.ephemerals[write.path] = None
            elif write.kind is WriteKind.DELETE:
                for session in self.sessions.values():
                    session.ephemerals.pop(write.path, None)
            self.announce(write)
        return done, stats

    def announce(self, write: Write) -> None:
        """Tell every session of a write."""
        for session in list(self.sessions.values()):
            session.tell(WatchKind.DATA, write.path)
            if write.kind is not WriteKind.SET:
                session.tell(WatchKind.CHILDREN, split_path(write.path)[0])

    def _next_write(self, kind: WriteKind, path: str, data: bytes) -> Write:
        self.last_id += 1
        return Write(kind, self.last_id, self._clock.now_ms(), path, data)


class RegistrySession(TreeSession):
    """The session of a registry in the same process."""

    def __init__(self, tree: SessionTree, registry: TreeRegistry) -> None:
        super().__init__(tree, tree.next_session_id())
        self._registry = registry

    def tell(self, kind: WatchKind, path: str) -> None:
        self._registry.on_change(kind, path)

    def on_end(self) -> None:
        self._registry.on_session_end(self)


class TreeRegistry:
    """`Registry` on a tree in this process, with a session of its own."""

    def __init__(self, scheduler: Scheduler, tree: SessionTree) -> None:
        self.tree = tree
        self._scheduler = scheduler
        self._session: RegistrySession | None = None
        self._watches: dict[tuple[WatchKind, str], list[CallbackWatch]] = {}
        self._session_watches: list[CallbackWatch] = []

    async def start(self) -> None:
        self._session = self.tree.open(RegistrySession(self.tree, self))

    async def close(self) -> None:
        self.end_session()

    def end_session(self) -> None:
        """Give the session up, as its process does when it ends."""
        session, self._session = self._session, None
        if session is not None:
            self.tree.end(session.id)

    def expire(self) -> None:
        """End the session as its timeout does: a new one follows."""
        if self._session is not None:
            self.tree.end(self._session.id)

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        self._open_session()
        if sequential:
            path = self.tree.nodes.numbered(path)
        await self.multi([Create(path, data, ephemeral)])
        return path

    async def get(self, path: str) -> tuple[bytes, Stat]:
        return self._open_session().get(path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi([Set(path, data, version)])
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def exists(self, path: str) -> Stat | None:
        return self._open_session().exists(path)

    async def children(self, path: str) -> list[str]:
        return self._open_session().children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        done, stats = self._open_session().write(operations)
        await self.keep(done)
        return stats

    async def keep(self, done: Sequence[Done]) -> None:
        """Return when the writes, which all see already, will outlive the process."""

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watch(WatchKind.DATA, path, callback)

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watch(WatchKind.CHILDREN, path, callback)

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        return CallbackWatch(self._session_watches, callback)

    def on_change(self, kind: WatchKind, path: str) -> None:
        """A node has changed: its watches are called in the next turn."""
        for watch in self._watches.get((kind, path), ()):
            self._scheduler.call_soon(watch.callback)

    def on_session_end(self, session: RegistrySession) -> None:
        """If the session was ended by the tree, there is a new one."""
        if session is not self._session:
            return
        self._session = self.tree.open(RegistrySession(self.tree, self))
        for state in (SessionState.EXPIRED, SessionState.RENEWED):
            for watch in tuple(self._session_watches):
                watch.callback(state)
        for kind, path in self._watches:  # nodes that have changed meanwhile, such as its own
            self.on_change(kind, path)

    def _watch(self, kind: WatchKind, path: str, callback: Callable[[], object]) -> Watch:
        return CallbackWatch(self._watches.setdefault((kind, path), []), callback)

    def _open_session(self) -> TreeSession:
        if self._session is None:
            raise RegistryFailedError(self.why_closed())
        return self._session

    def why_closed(self) -> str:
        """The error of an operation before `start` or after `close`."""
        return "the registry is not open"
