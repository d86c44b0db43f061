"""The registry inside the broker's own process, kept in a directory of its first log dir.

It serves one broker and needs nothing else. The session of that broker is the life of this
object: ephemeral nodes are gone after a restart, however it came about. A copy of them lies beside
the journal while the broker runs, for tools that show the tree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.journal import Journal, encode_session, encode_snapshot
from ottla.registry.node_tree import NodeTree, Write, WriteKind, split_path
from ottla.registry.tree import (
    ANY_VERSION,
    CallbackWatch,
    NoNodeError,
    Operation,
    RegistryFailedError,
    SessionState,
    Stat,
    Watch,
)
from ottla.runtime import Disk, DiskLock, Runtime

REGISTRY_DIRECTORY: Final = "registry"
"""Its name in the first of the log directories."""
logger = logging.getLogger(__name__)

ROUND_BITS: Final = 32
"""Ids are (round << 32) + count; each start is a new round, so that no id is given out twice."""


class EmbeddedRegistry:
    """The tree in memory and its journal: a write is seen at once, acknowledged when durable."""

    def __init__(self, runtime: Runtime, directory: str) -> None:
        self.runtime = runtime
        self.directory = directory
        self._tree = NodeTree()
        self._last_id = 0
        self._lock: DiskLock | None = None
        self._journal = Journal(runtime, directory, self._encode_snapshot)
        self._session_path = f"{directory}/session"
        self._is_session_stale = self._is_showing = False
        self._data_watches: dict[str, list[CallbackWatch]] = {}
        self._children_watches: dict[str, list[CallbackWatch]] = {}

    async def start(self) -> None:
        """Load what was acknowledged; KafkaError where another process has it, or it is damaged."""
        disk = self.runtime.disk
        _make_dirs_durably(disk, self.directory)
        try:
            self._lock = disk.lock(f"{self.directory}/.lock")
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.directory} is in use by another process: {error}",
            ) from error
        try:
            self._tree, last_id = self._journal.load()
            self._last_id = ((last_id >> ROUND_BITS) + 1) << ROUND_BITS
            await self._journal.append(
                Write(WriteKind.OPEN, self._last_id, self.runtime.clock.now_ms(), "/")
            )
        except BaseException:
            self._lock.release()
            self._lock = None
            raise

    async def close(self) -> None:
        """Wait for writes under way and give the directory up; ephemeral nodes are gone."""
        await self._journal.close()
        if self._lock is not None:
            if self.runtime.disk.exists(self._session_path):
                self.runtime.disk.unlink(self._session_path)
            self._lock.release()
            self._lock = None

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        self._require_open()
        if sequential:
            path = self._tree.numbered(path)
        self._tree.check_create(path)
        await _settle(self._apply(WriteKind.CREATE, path, data, ephemeral))
        return path

    async def get(self, path: str) -> tuple[bytes, Stat]:
        self._require_open()
        node = self._tree.find(path)
        return node.data, node.stat()

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        self._require_open()
        node = self._tree.check_write(path, version)
        durable = self._apply(WriteKind.SET, path, data, node.is_ephemeral)
        stat = node.stat()
        await _settle(durable)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._require_open()
        node = self._tree.check_delete(path, version)
        await _settle(self._apply(WriteKind.DELETE, path, b"", node.is_ephemeral))

    async def exists(self, path: str) -> Stat | None:
        self._require_open()
        try:
            return self._tree.find(path).stat()
        except NoNodeError:
            return None

    async def children(self, path: str) -> list[str]:
        self._require_open()
        return sorted(self._tree.find(path).children)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self._require_open()
        done, stats = self._tree.apply_all(operations, self._next_write)
        lasting = [write for write, is_ephemeral in done if not is_ephemeral]
        durable = self._journal.append(*lasting) if lasting else None
        for write, is_ephemeral in done:
            self._tell_of(write, is_ephemeral)
        await _settle(durable)
        return stats

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        return CallbackWatch([], callback)  # never called: the session is the life of the process

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        return CallbackWatch(self._data_watches.setdefault(path, []), callback)

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        return CallbackWatch(self._children_watches.setdefault(path, []), callback)

    def _apply(
        self, kind: WriteKind, path: str, data: bytes, is_ephemeral: bool
    ) -> asyncio.Future[None] | None:
        """Change the tree now; the future is done when the change is durable.

        Ephemeral nodes never are: there is nothing to wait for.
        """
        write = self._next_write(kind, path, data)
        self._tree.apply(write, is_ephemeral)
        durable = None if is_ephemeral else self._journal.append(write)
        self._tell_of(write, is_ephemeral)
        return durable

    def _next_write(self, kind: WriteKind, path: str, data: bytes) -> Write:
        self._last_id += 1
        return Write(kind, self._last_id, self.runtime.clock.now_ms(), path, data)

    def _tell_of(self, write: Write, is_ephemeral: bool) -> None:
        if is_ephemeral and not self._is_session_stale:
            self._is_session_stale = True
            self.runtime.scheduler.call_soon(self._show_session)
        self._notify(self._data_watches, write.path)
        if write.kind is not WriteKind.SET:
            self._notify(self._children_watches, split_path(write.path)[0])

    def _notify(self, watches: dict[str, list[CallbackWatch]], path: str) -> None:
        for watch in watches.get(path, ()):
            self.runtime.scheduler.call_soon(watch.callback)

    def _show_session(self) -> None:
        """Write the ephemeral nodes down for tools, one copy after the other; nothing reads them
        in the broker itself.
        """
        if self._lock is None or self._is_showing:
            return
        self._is_session_stale = False
        self._is_showing = True
        path, disk = self._session_path, self.runtime.disk
        data = encode_session(self._tree.ephemeral())
        self.runtime.background.submit(
            lambda: disk.replace(path, data), lambda _: self._on_shown(), self._on_not_shown
        )

    def _on_shown(self) -> None:
        self._is_showing = False
        if self._is_session_stale:
            self._show_session()

    def _on_not_shown(self, error: BaseException) -> None:
        logger.warning("%s is out of date: %s", self._session_path, error)
        self._is_showing = False

    def _require_open(self) -> None:
        if self._lock is None:
            raise RegistryFailedError(f"the registry in {self.directory} is not open")

    def _encode_snapshot(self) -> bytes:
        return encode_snapshot(self._tree, self._last_id)


def _make_dirs_durably(disk: Disk, path: str) -> None:
    """Make the directory and those above it so that they are there after a power loss, too."""
    if disk.exists(path):
        return
    parent = path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if parent not in ("/", "."):
        _make_dirs_durably(disk, parent)
    disk.make_dirs(path)
    disk.fsync_dir(parent)


async def _settle(durable: asyncio.Future[None] | None) -> None:
    if durable is not None:
        await durable
