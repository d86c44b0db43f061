"""The registry: a tree of nodes with versions, ephemeral nodes, watches and sessions.

It is ZooKeeper's data model, so that a real ensemble can stand behind it. Paths begin with `/` and
have no empty names. Every write is acknowledged only once it survives the loss of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.runtime import Clock, Scheduler

SessionT = TypeVar("SessionT", bound="TreeSession")

ANY_VERSION: Final = -1
REGISTRY_RETRY_MS: Final = 1_000
"""What failed because of the registry is tried again after this time."""


class Stat(NamedTuple):
    """What is known of a node beside its data.

    `version` counts the writes of the data since its creation (0), `children_version` the changes
    of the list of children. `created_id` and `modified_id` number the writes of the whole tree in
    their order; Kafka takes the first of a broker's node as the broker's epoch (KIP-380). `is_own`
    is an ephemeral node of the session in which it was asked for.
    """

    version: int
    children_version: int
    created_id: int
    modified_id: int
    created_ms: int
    modified_ms: int
    is_ephemeral: bool
    data_length: int
    children_count: int
    is_own: bool = False


class RegistryError(KafkaError):
    """The registry refused an operation; the text names the path."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class NoNodeError(RegistryError):
    """There is no node at the path, or its parent is missing."""


class NodeExistsError(RegistryError):
    """There is a node at the path already."""


class BadVersionError(RegistryError):
    """The node has been written since the version that the caller knows."""


class NotEmptyError(RegistryError):
    """The node has children and cannot be deleted."""


class EphemeralParentError(RegistryError):
    """Ephemeral nodes cannot have children."""


class RegistryFailedError(RegistryError):
    """The registry can no longer be reached or written, or it was closed."""


class SessionEndedError(RegistryFailedError):
    """The session ended before the answer came: a write may have been done or not."""


class Create(NamedTuple):
    """Part of a `multi`: make a node."""

    path: str
    data: bytes
    ephemeral: bool = False


class Set(NamedTuple):
    """Part of a `multi`: write a node, if it still has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Part of a `multi`: delete a node, if it still has this version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Part of a `multi`: continue only if the node has this version."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class SessionState(Enum):
    """What became of the session, which owns the ephemeral nodes."""

    SUSPENDED = "suspended"
    """No server answers; the session may still live."""
    RESUMED = "resumed"
    """A server answers again, and the session has lived on."""
    EXPIRED = "expired"
    """The session is over and its ephemeral nodes are gone."""
    RENEWED = "renewed"
    """There is a new session: whoever had ephemeral nodes has to make them again."""


class Watch(Protocol):
    """A callback that runs on the loop until it is cancelled."""

    def cancel(self) -> None: ...


class CallbackWatch:
    """A watch that the owner of its list calls."""

    __slots__ = ("_watches", "callback")

    def __init__(self, watches: list[CallbackWatch], callback: Callable[..., object]) -> None:
        self.callback = callback
        self._watches = watches
        watches.append(self)

    def cancel(self) -> None:
        if self in self._watches:
            self._watches.remove(self)


class Registry(Protocol):
    """The tree. Reads see every write that this object has acknowledged before them.

    What others write is seen, with several servers, soon after; a watch tells when.
    """

    async def start(self) -> None:
        """Open it; KafkaError where that is not possible."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes are gone."""
        ...

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Make a node below an existing parent; returns its path, numbered if `sequential`.

        A sequential node may be made twice when the connection breaks in between.
        """
        ...

    async def get(self, path: str) -> tuple[bytes, Stat]: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Write the data of an existing node, if it still has this version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node that has no children, if it still has this version."""
        ...

    async def exists(self, path: str) -> Stat | None: ...

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Do all of it or nothing; the error is that of the first part that is refused.

        Returns for each part what `set` would; None for the other kinds.
        """
        ...

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        """Call back after the node is created, written or deleted.

        Changes that come close together may share a call. What is read in or after the call is
        as new as the change, or newer.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        """Call back after a child of the node is created or deleted, as `watch_data` does."""
        ...

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        """Call back with what became of the session."""
        ...


# The tree in memory: nodes by path, and the writes that change them.
#
# A `Write` that has been checked always applies; the same writes in the same order make the same
# tree. That is what lets a journal of writes stand for the tree.


class WriteKind(IntEnum):
    """What a write does; the numbers are those of the journal."""

    OPEN = 0
    CREATE = 1
    SET = 2
    DELETE = 3


class Write(NamedTuple):
    """One change of the tree. `id` numbers the writes in their order."""

    kind: WriteKind
    id: int
    time_ms: int
    path: str
    data: bytes = b""


Done = tuple[Write, bool]
"""A write, and whether its node is ephemeral."""


class TreeNode:
    """A node and its children by name."""

    __slots__ = (
        "children",
        "children_version",
        "created_id",
        "created_ms",
        "data",
        "is_ephemeral",
        "modified_id",
        "modified_ms",
        "version",
    )

    def __init__(self, write: Write, is_ephemeral: bool = False) -> None:
        self.data = write.data
        self.version = 0
        self.children_version = 0
        self.created_id = self.modified_id = write.id
        self.created_ms = self.modified_ms = write.time_ms
        self.is_ephemeral = is_ephemeral
        self.children: dict[str, TreeNode] = {}

    def stat(self) -> Stat:
        return Stat(
            self.version,
            self.children_version,
            self.created_id,
            self.modified_id,
            self.created_ms,
            self.modified_ms,
            self.is_ephemeral,
            len(self.data),
            len(self.children),
        )


@lru_cache(maxsize=1024)
def split_path(path: str) -> tuple[str, str]:
    """Parent and name; RegistryError for what is not a path below the root."""
    parent, slash, name = path.rpartition("/")
    names = path.split("/")
    if not slash or names[0] or "\0" in path or any(part in ("", ".", "..") for part in names[1:]):
        raise RegistryError(f"{path!r} is not a path: it must be as /brokers/ids/0")
    return parent or "/", name


class NodeTree:
    """All nodes, reached from the root."""

    def __init__(self) -> None:
        self.root = TreeNode(Write(WriteKind.OPEN, 0, 0, "/"))

    def find(self, path: str) -> TreeNode:
        """The node, or NoNodeError."""
        if path == "/":
            return self.root
        split_path(path)
        node: TreeNode | None = self.root
        for name in path.split("/")[1:]:
            node = node.children.get(name) if node is not None else None
        if node is None:
            raise NoNodeError(f"there is no node {path}")
        return node

    def numbered(self, path: str) -> str:
        """The path with ten digits after it: as ZooKeeper, the parent's count of changes."""
        parent_path, name = split_path(path)
        parent = self.find(parent_path)
        number = parent.children_version
        while f"{name}{number:010d}" in parent.children:  # ephemeral changes were not journalled
            number += 1
        return f"{path}{number:010d}"

    def check_create(self, path: str) -> None:
        parent_path, name = split_path(path)
        parent = self.find(parent_path)
        if name in parent.children:
            raise NodeExistsError(f"there is a node {path} already")
        if parent.is_ephemeral:
            raise EphemeralParentError(f"{parent_path} is ephemeral and cannot have children")

    def check_write(self, path: str, version: int) -> TreeNode:
        node = self.find(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path} has version {node.version}, not {version}")
        return node

    def check_delete(self, path: str, version: int) -> TreeNode:
        split_path(path)
        node = self.check_write(path, version)
        if node.children:
            raise NotEmptyError(f"{path} has {len(node.children)} children")
        return node

    def apply(self, write: Write, is_ephemeral: bool = False) -> None:
        """Change the tree; the write has been checked, or comes from the journal."""
        if write.kind is WriteKind.SET:
            node = self.find(write.path)
            node.data = write.data
            node.version += 1
            node.modified_id, node.modified_ms = write.id, write.time_ms
        elif write.kind is not WriteKind.OPEN:
            parent_path, name = split_path(write.path)
            parent = self.find(parent_path)
            parent.children_version += 1
            if write.kind is WriteKind.CREATE:
                parent.children[name] = TreeNode(write, is_ephemeral)
            else:
                del parent.children[name]

    def apply_undoably(self, write: Write, is_ephemeral: bool = False) -> Callable[[], None]:
        """As `apply`; the result puts everything back, if nothing was changed since."""
        node = self.find(write.path) if write.kind is not WriteKind.CREATE else None
        parent_path, name = split_path(write.path)
        parent = self.find(parent_path)
        children_version = parent.children_version
        before = (
            None if node is None else (node.data, node.version, node.modified_id, node.modified_ms)
        )
        self.apply(write, is_ephemeral)

        def undo() -> None:
            parent.children_version = children_version
            if node is None or before is None:
                del parent.children[name]
            else:
                (node.data, node.version, node.modified_id, node.modified_ms) = before
                parent.children[name] = node

        return undo

    def apply_all(
        self, operations: Sequence[Operation], next_write: Callable[[WriteKind, str, bytes], Write]
    ) -> tuple[list[Done], list[Stat | None]]:
        """Do all of it or nothing, as `Registry.multi`; the error is of the first refused part.

        Returns the writes, each with whether its node is ephemeral, and the answers of the parts.
        """
        done: list[Done] = []
        undo: list[Callable[[], None]] = []
        stats: list[Stat | None] = []
        try:
            for operation in operations:
                is_ephemeral, kind = self._check(operation)
                if kind is not None:
                    write = next_write(kind, operation.path, getattr(operation, "data", b""))
                    undo.append(self.apply_undoably(write, is_ephemeral))
                    done.append((write, is_ephemeral))
                is_set = isinstance(operation, Set)
                stats.append(self.find(operation.path).stat() if is_set else None)
        except RegistryError:
            for put_back in reversed(undo):
                put_back()
            raise
        return done, stats

    def _check(self, operation: Operation) -> tuple[bool, WriteKind | None]:
        """Check that the part is allowed; whether the node is ephemeral, and what to write."""
        if isinstance(operation, Create):
            self.check_create(operation.path)
            return operation.ephemeral, WriteKind.CREATE
        if isinstance(operation, Set):
            node = self.check_write(operation.path, operation.version)
            return node.is_ephemeral, WriteKind.SET
        if isinstance(operation, Delete):
            node = self.check_delete(operation.path, operation.version)
            return node.is_ephemeral, WriteKind.DELETE
        self.check_write(operation.path, operation.version)
        return False, None

    def walk(self) -> Iterator[tuple[str, TreeNode]]:
        """Every node that is not ephemeral, each after its parent; the root is the first."""
        pending = [("/", self.root)]
        while pending:
            path, node = pending.pop()
            yield path, node
            prefix = "" if path == "/" else path
            pending += [
                (f"{prefix}/{name}", child)
                for name, child in node.children.items()
                if not child.is_ephemeral
            ]

    def ephemeral(self) -> Iterator[tuple[str, TreeNode]]:
        """Every ephemeral node; they have no children."""
        for path, node in self.walk():
            for name, child in node.children.items():
                if child.is_ephemeral:
                    yield f"{path.rstrip('/')}/{name}", child

    def restore(self, path: str, node: TreeNode) -> None:
        """Put a node of a snapshot in its place."""
        if path == "/":
            self.root = node
            return
        parent_path, name = split_path(path)
        self.find(parent_path).children[name] = node


# Sessions: the tree as several clients share it.


class WatchKind(Enum):
    """What is watched of a node."""

    DATA = "data"
    CHILDREN = "children"


Tell = Callable[[WatchKind, str], object]
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
        """Do all of it or nothing; returns what was done, and the answers of `Registry.multi`."""
        return self._tree.write(operations, self)

    def _stat(self, path: str, node: TreeNode) -> Stat:
        return node.stat()._replace(is_own=path in self.ephemerals)


class SessionTree:
    """The tree and its sessions: what one of them writes, all see at once.

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
        """A new session, which is told of changes from now on."""
        self.sessions[session.id] = session
        return session

    def end(self, session_id: int) -> None:
        """End a session, if it is not over; its ephemeral nodes go, and the others are told."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            for path in list(session.ephemerals):
                self.write([Delete(path)], session)
            session.on_end()

    def write(
        self, operations: Sequence[Operation], owner: TreeSession | None = None
    ) -> tuple[list[Done], list[Stat | None]]:
        """As `TreeSession.write`; without an owner nothing ephemeral can be created."""
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
        for kind, path in self._watches:  # what has changed meanwhile, such as nodes of its own
            self.on_change(kind, path)

    def _watch(self, kind: WatchKind, path: str, callback: Callable[[], object]) -> Watch:
        return CallbackWatch(self._watches.setdefault((kind, path), []), callback)

    def _open_session(self) -> TreeSession:
        if self._session is None:
            raise RegistryFailedError(self.why_closed())
        return self._session

    def why_closed(self) -> str:
        """What an operation before `start` or after `close` is told."""
        return "the registry is not open"


async def ensure_path(registry: Registry, path: str) -> None:
    """Make the node with empty data, and those above it, where they are missing."""
    if await registry.exists(path) is not None:
        return
    parent = path.rpartition("/")[0]
    if parent:
        await ensure_path(registry, parent)
    try:
        await registry.create(path, b"")
    except NodeExistsError:
        pass  # another caller was faster: that is as good


async def create_or_set(registry: Registry, path: str, data: bytes) -> None:
    """Write the node, making it (below an existing parent) if it is not there."""
    try:
        await registry.set(path, data)
    except NoNodeError:
        await registry.create(path, data)


async def delete_tree(registry: Registry, path: str) -> None:
    """Delete the node and everything below it; nothing happens if it is not there."""
    try:
        for name in await registry.children(path):
            await delete_tree(registry, f"{path}/{name}")
        await registry.delete(path)
    except NoNodeError:
        pass  # gone already: that is what was wanted
