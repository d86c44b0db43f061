"""A snapshot of the registry is kept up to date by its writes."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.node_tree import NodeTree, Write, WriteKind
from ottla.registry.tree import Create, Delete, RegistryError, Set
from ottla.registry.tree_snapshot import TreeSnapshot, decode_snapshot

PATHS = ["/a", "/b", "/a/a", "/a/b", "/a/a/a"]


@given(st.lists(st.tuples(st.sampled_from(WriteKind), st.sampled_from(PATHS), st.booleans())))
def test_snapshot_follows_the_writes(writes):
    """After any of them it is what one would be that is made of the whole tree."""
    tree = NodeTree()
    snapshot = TreeSnapshot(tree)
    for number, (kind, path, is_ephemeral) in enumerate(writes, 1):
        operation = {
            WriteKind.CREATE: Create(path, b"%d" % number, is_ephemeral),
            WriteKind.SET: Set(path, b"%d" % number),
        }.get(kind, Delete(path))

        def next_write(kind, path, data, number=number):
            return Write(kind, number, 10 * number, path, data)

        with suppress(RegistryError):
            done, _ = tree.apply_all([operation], next_write)
            snapshot.note(done)

    copy, last_id = decode_snapshot(snapshot.encode(len(writes)))
    assert last_id == len(writes)
    assert nodes_of(copy) == nodes_of(tree)


def nodes_of(tree: NodeTree) -> dict:
    """Without the numbers of children, of which ephemeral ones are not stored."""
    return {path: (node.stat()._replace(children_count=0), node.data) for path, node in tree.walk()}
