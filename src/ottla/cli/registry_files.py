"""The embedded registry read from its files, with the methods of a ZooKeeper client.

It stands alone because only the shell needs it, and only where no ZooKeeper is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from kazoo.exceptions import NoNodeError as NoSuchNodeError
from kazoo.protocol.states import ZnodeStat

from ottla.cli.command_error import CommandError
from ottla.errors import KafkaError
from ottla.registry.journal import read_tree
from ottla.registry.node_tree import NodeTree, TreeNode
from ottla.registry.tree import NoNodeError
from ottla.runtime.local_disk import LocalDisk

REGISTRY = "registry"


class RegistryFiles:
    """Reads the files again for each command, whether or not a broker runs; writes nothing."""

    def __init__(self, directory: str) -> None:
        below = os.path.join(directory, REGISTRY)
        self.directory = below if os.path.isdir(below) else directory
        if not os.path.exists(os.path.join(self.directory, "journal")):
            raise CommandError(
                f"{directory} has no embedded registry: it must be the data directory (log.dirs) "
                "of a broker without zookeeper.connect"
            )

    def get_children(self, path: str, include_data: bool = False) -> Any:
        node = self._find(path)
        return (list(node.children), _stat(node)) if include_data else list(node.children)

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        node = self._find(path)
        return node.data, _stat(node)

    def exists(self, path: str) -> ZnodeStat | None:
        try:
            return _stat(self._find(path))
        except NoSuchNodeError:
            return None

    def ask(self, word: str) -> str:
        if word == "srvr":  # which the command `version` asks for
            return f"Embedded registry version: {self.directory}"
        raise CommandError(f"{word} is for a ZooKeeper server, and {self.directory} are files")

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise CommandError(f"{self.directory} is only shown: its broker alone writes these files")

    create = set = delete = get_acls = add_auth = _refuse

    def _find(self, path: str) -> TreeNode:
        try:
            return self._tree().find(path)
        except NoNodeError as error:
            raise NoSuchNodeError from error
        except KafkaError as error:
            raise CommandError(error.message) from error

    def _tree(self) -> NodeTree:
        return read_tree(LocalDisk(), self.directory, is_open=self._is_open())

    def _is_open(self) -> bool:
        """Whether a broker holds the lock; to take it could keep a broker from starting."""
        try:
            inode = os.stat(os.path.join(self.directory, ".lock")).st_ino
            return f":{inode} " in Path("/proc/locks").read_text()
        except OSError:
            return False


def _stat(node: TreeNode) -> ZnodeStat:
    """An ephemeral node has an owner; the registry has one session, which is numbered 1."""
    return ZnodeStat(
        czxid=node.created_id,
        mzxid=node.modified_id,
        ctime=node.created_ms,
        mtime=node.modified_ms,
        version=node.version,
        cversion=node.children_version,
        aversion=0,
        ephemeralOwner=int(node.is_ephemeral),
        dataLength=len(node.data),
        numChildren=len(node.children),
        pzxid=max([node.created_id, *(child.created_id for child in node.children.values())]),
    )
