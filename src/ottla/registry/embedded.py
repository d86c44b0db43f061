"""The registry inside the broker's own process, kept in a directory of its first log dir.

It serves one broker and needs nothing else. The session of that broker is the life of this
object: ephemeral nodes are gone after a restart, however it came about. A copy of them lies beside
the journal while the broker runs, for tools that show the tree.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.journal import Journal
from ottla.registry.node_tree import Done, Write, WriteKind
from ottla.registry.session_tree import SessionTree, TreeRegistry
from ottla.registry.tree_snapshot import TreeSnapshot, encode_session
from ottla.runtime import Disk, DiskLock, Runtime

logger = logging.getLogger(__name__)


REGISTRY_DIRECTORY: Final = "registry"
"""Its name in the first of the log directories."""

ROUND_BITS: Final = 32
"""Ids are (round << 32) + count; each start is a new round, so that no id is given out twice."""


class EmbeddedRegistry(TreeRegistry):
    """The tree in memory and its journal: a write is seen at once, acknowledged when durable."""

    def __init__(self, runtime: Runtime, directory: str) -> None:
        super().__init__(runtime.scheduler, SessionTree(runtime.clock))
        self.runtime = runtime
        self.directory = directory
        self._lock: DiskLock | None = None
        self._snapshot = TreeSnapshot(self.tree.nodes)
        self._journal = Journal(
            runtime, directory, lambda: self._snapshot.encode(self.tree.last_id)
        )
        self._session_path = f"{directory}/session"
        self._is_session_stale = self._is_showing = False

    async def start(self) -> None:
        """Load the acknowledged writes; KafkaError if another process has it, or it is damaged."""
        disk, clock = self.runtime.disk, self.runtime.clock
        _make_dirs_durably(disk, self.directory)
        disk.make_private(self.directory)  # it has the users' SCRAM credentials
        try:
            self._lock = disk.lock(f"{self.directory}/.lock")
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.directory} is in use by another process: {error}",
            ) from error
        try:
            nodes, last_id = self._journal.load()
            first_id = ((last_id >> ROUND_BITS) + 1) << ROUND_BITS
            self.tree = SessionTree(clock, nodes, first_id)
            self._snapshot = TreeSnapshot(nodes)
            await self._journal.append(Write(WriteKind.OPEN, first_id, clock.now_ms(), "/"))
            self._journal.waits_for_room = True
            disk.make_private(self.directory)
        except BaseException:
            self._lock.release()
            self._lock = None
            raise
        await super().start()

    async def close(self) -> None:
        """Wait for writes under way and give the directory up; ephemeral nodes are gone."""
        await self._journal.close()
        self.end_session()
        if self._lock is not None:
            if self.runtime.disk.exists(self._session_path):
                self.runtime.disk.unlink(self._session_path)
            self._lock.release()
            self._lock = None

    async def keep(self, done: Sequence[Done]) -> None:
        self._snapshot.note(done)
        lasting = [write for write, is_ephemeral in done if not is_ephemeral]
        if len(lasting) < len(done) and not self._is_session_stale:
            self._is_session_stale = True
            self.runtime.scheduler.call_soon(self._show_session)
        if lasting:
            await self._journal.append(*lasting)

    def why_closed(self) -> str:
        return f"the registry in {self.directory} is not open"

    def _show_session(self) -> None:
        """Write the ephemeral nodes down for tools, one copy after the other; nothing reads them
        in the broker itself.
        """
        if self._lock is None or self._is_showing:
            return
        self._is_session_stale = False
        self._is_showing = True
        path, disk = self._session_path, self.runtime.disk
        data = encode_session(self.tree.ephemeral())
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


def _make_dirs_durably(disk: Disk, path: str) -> None:
    """Make the directory and those above it so that they are there after a power loss, too."""
    if disk.exists(path):
        return
    parent = path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if parent not in ("/", "."):
        _make_dirs_durably(disk, parent)
    disk.make_dirs(path)
    disk.fsync_dir(parent)
