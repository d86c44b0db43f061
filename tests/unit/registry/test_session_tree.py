"""The tree as several sessions share it: who owns what, who is told, and what ends with whom."""

from __future__ import annotations

import pytest

from ottla.registry.session_tree import SessionTree, TreeRegistry
from ottla.registry.tree import (
    Create,
    NodeExistsError,
    NoNodeError,
    RegistryFailedError,
    SessionState,
)
from ottla.testing import MockRuntime, mock_runtime


class World:
    """Two registries on one tree."""

    def __init__(self) -> None:
        self.runtime: MockRuntime = mock_runtime()
        self.tree = SessionTree(self.runtime.clock)
        self.one, self.other = (TreeRegistry(self.runtime.scheduler, self.tree) for _ in range(2))
        self.told: list[object] = []
        for registry in (self.one, self.other):
            self.run(registry.start())

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    def news(self) -> list[object]:
        """What the watches have told since the last question."""
        self.runtime.scheduler.run_ready()
        told = list(self.told)
        self.told.clear()
        return told


@pytest.fixture
def world() -> World:
    """A tree in memory, with two sessions."""
    return World()


def test_both_see_what_one_writes(world):
    """At once, with one order of writes; the second of two creators loses."""
    world.run(world.one.create("/a", b"1"))
    with pytest.raises(NodeExistsError):
        world.run(world.other.create("/a", b"2"))
    stat = world.run(world.other.set("/a", b"3"))

    assert world.run(world.one.get("/a")) == (b"3", stat)
    assert stat.modified_id == stat.created_id + 1


def test_ephemeral_nodes_are_their_sessions_own(world):
    """They are for all to see, and gone when the registry that has made them is closed."""
    world.run(world.one.create("/ids", b""))
    world.run(world.one.create("/ids/1", b"", ephemeral=True))
    world.run(world.other.create("/ids/2", b"", ephemeral=True))
    owners = [world.run(world.one.exists(f"/ids/{number}")).is_own for number in (1, 2)]
    world.run(world.one.close())

    assert owners == [True, False]
    assert world.run(world.other.children("/ids")) == ["2"]
    with pytest.raises(RegistryFailedError, match="not open"):
        world.run(world.one.exists("/ids"))


def test_a_node_that_was_made_again_stays_with_its_new_owner(world):
    """A session that ends takes only what is still its own."""
    world.run(world.one.create("/e", b"", ephemeral=True))
    world.run(world.other.delete("/e"))
    world.run(world.other.create("/e", b"", ephemeral=True))
    world.run(world.one.close())

    assert world.run(world.other.exists("/e")).is_own


def test_watches_tell_of_the_other_sessions_writes(world):
    """Of data and of children, until they are cancelled; the end of a session is such a write."""
    data = world.one.watch_data("/a", lambda: world.told.append("data"))
    world.one.watch_children("/", lambda: world.told.append("children"))
    world.run(world.other.create("/a", b"", ephemeral=True))
    created = world.news()
    world.run(world.other.set("/a", b"1"))
    written = world.news()
    data.cancel()
    world.run(world.other.close())

    assert created == ["data", "children"]
    assert written == ["data"]
    assert world.news() == ["children"]


def test_a_session_that_expires_is_followed_by_a_new_one(world):
    """Its owner is told of the end and of the beginning; the nodes are gone, the watches stay."""
    world.one.watch_session(world.told.append)
    world.one.watch_data("/e", lambda: world.told.append("data"))
    world.run(world.one.create("/e", b"", ephemeral=True))
    world.news()
    (expired, _) = list(world.tree.sessions)
    world.tree.end(expired)
    told = world.news()
    with pytest.raises(NoNodeError):
        world.run(world.other.get("/e"))
    world.run(world.one.create("/e", b"", ephemeral=True))

    assert told == [SessionState.EXPIRED, SessionState.RENEWED, "data"]
    assert world.run(world.one.exists("/e")).is_own
    assert world.news() == ["data"]


def test_a_refused_multi_changes_nothing_and_tells_nobody(world):
    """Neither session sees a part of it."""
    world.other.watch_children("/", lambda: world.told.append("children"))
    with pytest.raises(NodeExistsError):
        world.run(world.one.multi([Create("/a", b"", True), Create("/a", b"")]))

    assert world.run(world.other.children("/")) == []
    assert world.news() == []
    assert not any(session.ephemerals for session in world.tree.sessions.values())
