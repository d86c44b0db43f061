"""The registry: a tree of nodes with versions, ephemeral nodes, watches and sessions.

It is ZooKeeper's data model, so that a real ensemble can stand behind it. Paths begin with `/` and
have no empty names. Every write is acknowledged only once it survives the loss of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NamedTuple

ANY_VERSION: Final = -1
REGISTRY_RETRY_MS: Final = 1_000
"""What failed because of the registry is tried again after this time."""


class Stat(NamedTuple):
    """The facts of a node beside its data.

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
    """The state of the session, which owns the ephemeral nodes."""

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

    Writes of others are seen, with several servers, soon after; a watch is called then.
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

        Returns for each part the result of `set`; None for the other kinds.
        """
        ...

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        """Call back after the node is created, written or deleted.

        Changes that come close together may share a call. A read in or after the call is as new as
        the change, or newer.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        """Call back after a child of the node is created or deleted, as `watch_data` does."""
        ...

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        """Call back with the new state of the session."""
        ...


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
