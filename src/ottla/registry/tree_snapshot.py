"""The snapshot of the embedded registry: its whole tree in one file, in frames as the journal's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from zlib import crc32

from ottla.registry.node_tree import Done, NodeTree, TreeNode, Write, WriteKind, split_path
from ottla.registry.tree import NoNodeError

SNAPSHOT_MAGIC: Final = b"OTTLAS1\n"
FRAME: Final = struct.Struct(">iI")
_NODE: Final = struct.Struct(">iiqqqqH")  # versions, ids, times, length of the path
_SNAPSHOT_HEAD: Final = struct.Struct(">qi")  # id of the last write, how many nodes follow


class TreeSnapshot:
    """The nodes of a tree as its snapshot has them, each encoded when it changes.

    To encode a hundred thousand nodes in one step would hold the broker's loop for long.
    """

    def __init__(self, nodes: NodeTree) -> None:
        self._nodes = nodes
        self._frames = {path: frame(_encode_node(path, node)) for path, node in nodes.walk()}
        """The nodes, by path, each behind its parent: one that is made again is put at the end."""

    def note(self, done: Iterable[Done]) -> None:
        """These writes have been applied to the tree."""
        for write, is_ephemeral in done:
            if not is_ephemeral:
                self._encode(write.path)
            if write.kind is not WriteKind.SET:
                self._encode(split_path(write.path)[0])

    def _encode(self, path: str) -> None:
        node = None
        with suppress(NoNodeError):
            node = self._nodes.find(path)
        if node is None or node.is_ephemeral:
            self._frames.pop(path, None)
        else:
            self._frames[path] = frame(_encode_node(path, node))

    def encode(self, last_id: int) -> bytes:
        """The file's content, as of the write with this id."""
        head = frame(_SNAPSHOT_HEAD.pack(last_id, len(self._frames)))
        return b"".join([SNAPSHOT_MAGIC, head, *self._frames.values()])


def decode_snapshot(data: bytes) -> tuple[NodeTree, int]:
    """The tree and the id of its last write; ValueError where it is damaged."""
    if not data.startswith(SNAPSHOT_MAGIC):
        raise ValueError("it does not begin as a snapshot")
    payloads = list(payloads_of(data, len(SNAPSHOT_MAGIC)))
    if not payloads:
        raise ValueError("it ends before its first entry")
    last_id, count = _SNAPSHOT_HEAD.unpack(payloads[0])
    if len(payloads) - 1 != count:
        raise ValueError(f"{len(payloads) - 1} of {count} nodes are readable")
    tree = NodeTree()
    for payload in payloads[1:]:
        tree.restore(*decode_node(payload))
    return tree, last_id


def encode_session(nodes: Iterable[tuple[str, TreeNode]]) -> bytes:
    """The ephemeral nodes of a broker that runs: for readers of the files, not for recovery."""
    return SNAPSHOT_MAGIC + b"".join(frame(_encode_node(path, node)) for path, node in nodes)


def frame(payload: bytes) -> bytes:
    return FRAME.pack(len(payload), crc32(payload)) + payload


def unframe(data: bytes, position: int) -> bytes | None:
    """The payload at `position`; None where there is no whole and sound frame."""
    if position + FRAME.size > len(data):
        return None
    length, crc = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    if not 0 < length <= len(data) - start:
        return None
    payload = data[start : start + length]
    return payload if crc32(payload) == crc else None


def payloads_of(data: bytes, position: int) -> Iterator[bytes]:
    while (payload := unframe(data, position)) is not None:
        yield payload
        position += FRAME.size + len(payload)


def _encode_node(path: str, node: TreeNode) -> bytes:
    name = path.encode()
    head = _NODE.pack(
        node.version,
        node.children_version,
        node.created_id,
        node.modified_id,
        node.created_ms,
        node.modified_ms,
        len(name),
    )
    return head + name + node.data


def decode_node(payload: bytes) -> tuple[str, TreeNode]:
    version, children_version, created_id, modified_id, created_ms, modified_ms, path_length = (
        _NODE.unpack_from(payload)
    )
    data_start = _NODE.size + path_length
    path = payload[_NODE.size : data_start].decode()
    node = TreeNode(Write(WriteKind.CREATE, created_id, created_ms, path, payload[data_start:]))
    node.version, node.children_version = version, children_version
    node.modified_id, node.modified_ms = modified_id, modified_ms
    return path, node
