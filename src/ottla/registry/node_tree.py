"""The tree in memory: nodes by path, and the writes that change them.

A `Write` that has been checked always applies; the same writes in the same order make the same
tree. So a journal of writes can stand for the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final

from ottla.registry.tree import (
    ANY_VERSION,
    BadVersionError,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    RegistryError,
    Set,
    Stat,
)
from ottla.structs import NamedTuple


class WriteKind(IntEnum):
    """The kinds of writes; the numbers are those of the journal."""

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


MAX_PATH_BYTES: Final = 0xFFFF


@lru_cache(maxsize=1024)
def split_path(path: str) -> tuple[str, str]:
    """Parent and name; RegistryError for text that is no path below the root."""
    parent, slash, name = path.rpartition("/")
    names = path.split("/")
    data = path.encode(errors="replace")
    is_wrong = "\0" in path or any(part in ("", ".", "..") for part in names[1:])
    if not slash or names[0] or is_wrong or len(data) > MAX_PATH_BYTES or data.decode() != path:
        rule = f"it must be as /brokers/ids/0, and has {MAX_PATH_BYTES} bytes at most"
        raise RegistryError(f"{path[:100]!r} is not a path: {rule}")
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
        """Apply a write; the result puts everything back, if nothing was changed since."""
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
        """Check that the part is allowed; whether the node is ephemeral, and the write."""
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

    def restore(self, path: str, node: TreeNode) -> None:
        """Put a node of a snapshot in its place."""
        if path == "/":
            self.root = node
            return
        parent_path, name = split_path(path)
        self.find(parent_path).children[name] = node
