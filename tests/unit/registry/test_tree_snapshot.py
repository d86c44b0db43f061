"""The file that has the whole tree of a registry."""

import pytest

from ottla.registry.node_tree import NodeTree, Write, WriteKind
from ottla.registry.tree_snapshot import TreeSnapshot, decode_snapshot


def test_snapshot_is_the_tree():
    """Nodes, versions and times survive; ephemeral ones are left out."""
    tree = NodeTree()
    tree.apply(Write(WriteKind.CREATE, 1, 10, "/a", b"1"))
    tree.apply(Write(WriteKind.CREATE, 2, 20, "/a/b", b"2"))
    tree.apply(Write(WriteKind.SET, 3, 30, "/a", b"3"))
    tree.apply(Write(WriteKind.CREATE, 4, 40, "/e"), is_ephemeral=True)
    copy, last_id = decode_snapshot(TreeSnapshot(tree).encode(4))

    assert last_id == 4
    assert [path for path, _ in copy.walk()] == ["/", "/a", "/a/b"]
    assert copy.find("/a").stat() == tree.find("/a").stat()
    assert copy.find("/a").data == b"3"
    assert copy.root.children_version == tree.root.children_version


def test_snapshot_cut_at_any_byte_is_damaged():
    """Unlike the journal, it was complete when it was put in place."""
    tree = NodeTree()
    tree.apply(Write(WriteKind.CREATE, 1, 10, "/a", b"1"))
    whole = TreeSnapshot(tree).encode(1)
    for size in range(len(whole)):
        with pytest.raises(ValueError, match=r"it |readable"):
            decode_snapshot(whole[:size])
