"""A snapshot of the registry is kept up to date by its writes."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.registry.node_tree import NodeTree, Write, WriteKind
from ottla.registry.tree import Create, Delete, RegistryError, Set
from ottla.registry.tree_snapshot import TreeSnapshot, decode_snapshot

PATHS = ["/a", "/b", "/a/a", "/a/b", "/a/a/a"]


WRITES = st.tuples(st.sampled_from(WriteKind), st.sampled_from(PATHS), st.booleans())


def operation_of(kind: WriteKind, path: str, is_ephemeral: bool) -> Create | Set | Delete:
    if kind is WriteKind.CREATE:
        return Create(path, b"new", is_ephemeral)
    return Set(path, b"set") if kind is WriteKind.SET else Delete(path)


@given(st.lists(st.lists(WRITES, min_size=1, max_size=4)))
@example(
    [
        [(WriteKind.CREATE, "/a", False)],
        [(WriteKind.DELETE, "/a", False), (WriteKind.CREATE, "/a", True)],
    ]
)
def test_snapshot_follows_the_writes(multis):
    """After any of them, alone or together, it is what one would be of the whole tree."""
    tree = NodeTree()
    snapshot = TreeSnapshot(tree)
    numbers = count(1)

    def next_write(kind, path, data):
        number = next(numbers)
        return Write(kind, number, 10 * number, path, data)

    for writes in multis:
        with suppress(RegistryError):
            done, _ = tree.apply_all([operation_of(*each) for each in writes], next_write)
            snapshot.note(done)

    copy, last_id = decode_snapshot(snapshot.encode(7))
    assert last_id == 7
    assert nodes_of(copy) == nodes_of(tree)


def nodes_of(tree: NodeTree) -> dict:
    """Without the numbers of children, of which ephemeral ones are not stored."""
    return {path: (node.stat()._replace(children_count=0), node.data) for path, node in tree.walk()}
