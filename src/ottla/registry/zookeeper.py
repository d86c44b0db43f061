"""The registry on a real ZooKeeper ensemble, at Kafka's paths below the chroot.

`zookeeper_session` has its connection, `node_watch` its watches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from ottla.registry.node_tree import split_path
from ottla.registry.node_watch import NodeWatches
from ottla.registry.session_tree import WatchKind
from ottla.registry.tree import (
    ANY_VERSION,
    BadVersionError,
    CallbackWatch,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    RegistryError,
    SessionState,
    Set,
    Stat,
    Watch,
)
from ottla.registry.zookeeper_session import (
    Landed,
    PartRefusedError,
    Send,
    ZooKeeperSession,
    ZooKeeperSettings,
)
from ottla.runtime import Runtime

MAX_PACKET_BYTES: Final = 0xFFFFF
"""jute.maxbuffer: a server closes the connection on which a larger request comes."""
ROOM_FOR_HEADERS: Final = 512

_REFUSALS: Final = {
    kazoo_errors.NoNodeError: (NoNodeError, "there is no node {}, or not the one above it"),
    kazoo_errors.NodeExistsError: (NodeExistsError, "there is a node {} already"),
    kazoo_errors.BadVersionError: (BadVersionError, "{} was written since it was read"),
    kazoo_errors.NotEmptyError: (NotEmptyError, "{} has children"),
    kazoo_errors.NoChildrenForEphemeralsError: (
        EphemeralParentError,
        "{} cannot be created: the node above it is ephemeral",
    ),
    kazoo_errors.NoAuthError: (
        RegistryError,
        "{}: ZooKeeper's ACLs do not permit it to the user of zookeeper.digest.username",
    ),
}


_NOT_TO_BLAME: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""What a `multi` says of the parts before and after the one that was refused."""


class ZooKeeperRegistry:
    """The tree of an ensemble, seen from the chroot.

    While no server answers, operations wait; they fail when the session has ended. A write whose
    connection broke is repeated, and if the repetition is refused, the tree is asked whether the
    first one was done.
    """

    def __init__(self, runtime: Runtime, settings: ZooKeeperSettings) -> None:
        self.runtime = runtime
        self.settings = settings
        self._session_watches: list[CallbackWatch] = []
        self.session = ZooKeeperSession(runtime, settings, self._on_connected, self._on_state)
        self._watches = NodeWatches(self.session)

    async def start(self) -> None:
        """Connect, and make the nodes of the chroot where they are missing."""
        await self.session.open()
        try:
            await self._make_chroot()
        except BaseException:
            await self.close()
            raise

    async def _make_chroot(self) -> None:
        names = self.settings.chroot.split("/")[1:]
        acl = self.settings.acl("/")
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            try:
                # Asked first, because a client that may not create a node does not learn that it is
                # there.
                if await self.session.perform(_sends_exists(path)) is None:
                    await self.session.perform(_sends_create(path, b"", acl))
            except kazoo_errors.NodeExistsError:
                pass  # another broker was faster
            except kazoo_errors.ZookeeperError as error:
                raise _refusal(error, path) from None

    async def close(self) -> None:
        await self.session.close()

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        full_path, acl = self._full_path(path), self.settings.acl(path)
        send = _sends_create(full_path, data, acl, ephemeral=ephemeral, sequence=sequential)
        operation = Create(path, data, ephemeral)

        async def landed() -> str | None:
            return full_path if await self._is_as_after(operation) else None

        # Nobody knows which number the first one got.
        created = await self._write([operation], send, None if sequential else landed)
        return str(created).removeprefix(self.settings.chroot)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = await self._get(path)
        return data, self._stat(stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        full_path = self._full_path(path)
        operation = Set(path, data, version)

        async def landed() -> ZnodeStat | None:
            return (await self._get(path))[1] if await self._is_as_after(operation) else None

        stat = await self._write(
            [operation], lambda client: client.set_async(full_path, data, version), landed
        )
        return self._stat(stat)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        split_path(path)
        full_path = self._full_path(path)
        operation = Delete(path, version)

        async def landed() -> bool | None:
            return await self._is_as_after(operation) or None

        await self._write(
            [operation], lambda client: client.delete_async(full_path, version), landed
        )

    async def exists(self, path: str) -> Stat | None:
        stat = await self._read(path, _sends_exists(self._full_path(path)))
        return None if stat is None else self._stat(stat)

    async def children(self, path: str) -> list[str]:
        full_path = self._full_path(path)
        return sorted(await self._read(path, lambda client: client.get_children_async(full_path)))

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        parts = [(operation, self._full_path(operation.path)) for operation in operations]

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            for operation, full_path in parts:
                self._add_to(transaction, operation, full_path)
            return transaction.commit_async()

        def check(answers: list[Any]) -> None:
            for (operation, _), answer in zip(parts, answers, strict=True):
                if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
                    raise PartRefusedError(operation.path, answer)

        async def landed() -> list[Any] | None:
            states = [await self._is_as_after(operation) for operation in operations]
            if not all(states):
                return None
            return [await self._stat_if_set(operation) for operation in operations]

        if not parts:
            return []
        answers = await self._write(operations, send, landed, check)
        return [self._stat(answer) if isinstance(answer, ZnodeStat) else None for answer in answers]

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watches.add(self._full_path(path), WatchKind.DATA, callback)

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watches.add(self._full_path(path), WatchKind.CHILDREN, callback)

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        return CallbackWatch(self._session_watches, callback)

    def _on_connected(self) -> None:
        self._watches.arm_all()

    def _on_state(self, state: SessionState) -> None:
        for watch in tuple(self._session_watches):
            watch.callback(state)

    def _full_path(self, path: str) -> str:
        if path == "/":
            return self.settings.chroot or "/"
        split_path(path)
        return self.settings.chroot + path

    async def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        full_path = self._full_path(path)
        data, stat = await self._read(path, lambda client: client.get_async(full_path))
        return data or b"", stat

    async def _read(self, path: str, send: Send) -> Any:
        try:
            return await self.session.perform(send)
        except kazoo_errors.ZookeeperError as error:
            raise _refusal(error, path) from None

    async def _write(
        self,
        operations: Sequence[Operation],
        send: Send,
        landed: Landed | None,
        check: Callable[[Any], object] | None = None,
    ) -> Any:
        _check_size(operations)
        try:
            return await self.session.perform(send, landed, check)
        except (kazoo_errors.ZookeeperError, PartRefusedError) as error:
            raise _refusal(error, operations[0].path) from None

    def _add_to(self, transaction: Any, operation: Operation, full_path: str) -> None:
        if isinstance(operation, Create):
            acl = self.settings.acl(operation.path)
            transaction.create(full_path, operation.data, acl, operation.ephemeral)
            if not operation.data:  # kazoo takes "none" only outside of transactions
                transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
        elif isinstance(operation, Set):
            transaction.set_data(full_path, operation.data, operation.version)
        elif isinstance(operation, Delete):
            transaction.delete(full_path, operation.version)
        else:
            transaction.check(full_path, operation.version)

    async def _is_as_after(self, operation: Operation) -> bool:
        """Whether the tree is as the operation leaves it: then an earlier sending has done it."""
        try:
            data, stat = await self._get(operation.path)
        except NoNodeError:
            return isinstance(operation, Delete)
        if isinstance(operation, Create):
            owner = self.session.session_id if operation.ephemeral else 0
            return bool(data == operation.data and stat.ephemeralOwner == owner)
        if isinstance(operation, Set):
            is_next = operation.version in (ANY_VERSION, stat.version - 1)
            return data == operation.data and is_next
        return isinstance(operation, Check)  # its version may be raised by a set beside it

    def _stat(self, stat: ZnodeStat) -> Stat:
        return Stat(
            stat.version,
            stat.cversion,
            stat.czxid,
            stat.mzxid,
            stat.ctime,
            stat.mtime,
            stat.ephemeralOwner != 0,
            stat.dataLength,
            stat.numChildren,
            is_own=stat.ephemeralOwner not in (0, None)
            and stat.ephemeralOwner == self.session.session_id,
        )

    async def _stat_if_set(self, operation: Operation) -> ZnodeStat | None:
        return (await self._get(operation.path))[1] if isinstance(operation, Set) else None


def _sends_create(full_path: str, data: bytes, acl: Any, **kind: bool) -> Send:
    """Nodes that are only places have no data at all, not empty ones, as Kafka makes them."""
    return lambda client: client.create_async(full_path, data or None, acl, **kind)


def _sends_exists(full_path: str) -> Send:
    return lambda client: client.exists_async(full_path)


def _check_size(operations: Sequence[Operation]) -> None:
    size = sum(
        len(operation.path) + len(getattr(operation, "data", b"")) + ROOM_FOR_HEADERS
        for operation in operations
    )
    if size > MAX_PACKET_BYTES:
        raise RegistryError(
            f"{operations[0].path}: {size} bytes are more than ZooKeeper takes at once "
            f"({MAX_PACKET_BYTES})"
        )


def _refusal(error: Exception, path: str) -> RegistryError:
    """The server's answer as the registry's error."""
    if isinstance(error, PartRefusedError):
        return _refusal(error.reason, error.path)
    for kind, (refusal, text) in _REFUSALS.items():
        if isinstance(error, kind):
            return refusal(text.format(path))
    return RegistryError(f"{path}: ZooKeeper answered {type(error).__name__}")
