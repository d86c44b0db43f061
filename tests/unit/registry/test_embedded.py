"""The embedded registry: the tree's rules, watches, and what is there after a restart."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.journal import read_tree
from ottla.registry.tree import (
    BadVersionError,
    NoNodeError,
    RegistryFailedError,
    create_or_set,
    delete_tree,
    ensure_path,
)
from ottla.testing import MockRuntime, mock_runtime

DIRECTORY = "/data/registry"


class World:
    """A registry that can be restarted, and crashed."""

    def __init__(self) -> None:
        self.runtime: MockRuntime = mock_runtime()
        self.registry = self.start()

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    def start(self) -> EmbeddedRegistry:
        registry = EmbeddedRegistry(self.runtime, DIRECTORY)
        self.run(registry.start())
        return registry

    def restart(self) -> EmbeddedRegistry:
        self.run(self.registry.close())
        self.registry = self.start()
        return self.registry

    def crash(self) -> EmbeddedRegistry:
        self.runtime.disk.crash()
        self.registry = self.start()
        return self.registry


@pytest.fixture
def world() -> World:
    """An empty registry in a world in memory."""
    return World()


def test_node_has_data_and_a_stat(world):
    """Versions count writes and changes of children; ids follow the order of writes."""
    registry = world.registry
    world.run(registry.create("/a", b"1"))
    world.runtime.advance(5)
    world.run(registry.set("/a", b"22"))
    world.run(registry.create("/a/b", b""))
    data, stat = world.run(registry.get("/a"))

    assert data == b"22"
    assert (stat.version, stat.children_version, stat.children_count) == (1, 1, 1)
    assert stat.modified_ms - stat.created_ms == 5
    assert stat.modified_id == stat.created_id + 1
    assert stat.data_length == 2


def test_conditional_write_needs_the_newest_version(world):
    """Of two writers who read the same version the second one loses."""
    registry = world.registry
    world.run(registry.create("/a", b""))
    stat = world.run(registry.set("/a", b"first", 0))

    assert stat.version == 1
    with pytest.raises(BadVersionError):
        world.run(registry.set("/a", b"second", 0))


def test_sequential_nodes_get_growing_numbers(world):
    """Ten digits, also after a restart and after deletions."""
    names = [world.run(world.registry.create("/n_", b"", sequential=True)) for _ in range(2)]
    world.run(world.registry.delete(names[-1]))
    registry = world.restart()
    names.append(world.run(registry.create("/n_", b"", sequential=True)))

    assert names == ["/n_0000000000", "/n_0000000001", "/n_0000000003"]


def test_sequential_number_is_free_even_if_counting_was_lost(world):
    """Changes of ephemeral children are counted in memory only."""
    world.run(world.registry.create("/e", b"", ephemeral=True))
    first = world.run(world.registry.create("/n_", b"", sequential=True))
    second = world.run(world.restart().create("/n_", b"", sequential=True))

    assert first == "/n_0000000001"
    assert second == "/n_0000000002"


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_acknowledged_writes_are_there_after_a_restart(world, how):
    """Data, versions and times; ephemeral nodes are gone."""
    registry = world.registry
    for path in ("/a", "/a/b", "/a/c"):
        world.run(registry.create(path, b"1"))
    world.run(registry.set("/a/b", b"2"))
    world.run(registry.delete("/a/c"))
    world.run(registry.create("/a/e", b"", ephemeral=True))
    before = world.run(registry.get("/a/b"))
    registry = getattr(world, how)()

    assert world.run(registry.get("/a/b")) == before
    assert world.run(registry.children("/a")) == ["b"]


def test_ids_are_never_given_out_twice(world):
    """An ephemeral node of the next life has a larger id than any before: a broker's epoch."""
    epochs = []
    for _ in range(3):
        world.run(world.registry.create("/e", b"", ephemeral=True))
        epochs.append(world.run(world.registry.exists("/e")).created_id)
        world.crash()

    assert epochs == sorted(set(epochs))


def test_missing_node_has_no_stat(world):
    """`exists` asks without an exception."""
    assert world.run(world.registry.exists("/no")) is None


def test_watches_call_back_after_each_change(world):
    """Data watches: created, written, deleted. Children watches: a child comes or goes."""
    registry, calls = world.registry, []
    registry.watch_data("/a", lambda: calls.append("data"))
    watch = registry.watch_children("/", lambda: calls.append("children"))

    async def change() -> None:
        await registry.create("/a", b"")
        await registry.set("/a", b"1")
        watch.cancel()
        watch.cancel()
        await registry.delete("/a")

    world.run(change())

    assert calls == ["data", "children", "data", "data"]


def test_writes_that_come_together_share_an_fsync(world):
    """A topic with many partitions costs a few rounds, not one for each node."""
    never = world.runtime.disk.fail("fsync", f"{DIRECTORY}/journal", skip=1000)

    async def create_many() -> None:
        await asyncio.gather(*(world.registry.create(f"/n{n}", b"") for n in range(100)))

    world.run(create_many())

    assert never.skip == 1000 - 2
    assert len(world.run(world.crash().children("/"))) == 100


def test_second_process_is_kept_out(world):
    """Two brokers must not share a journal."""
    with pytest.raises(KafkaError, match="another process"):
        world.start()


def test_closed_registry_refuses(world):
    """Nothing is promised any more."""
    world.run(world.registry.close())
    with pytest.raises(RegistryFailedError):
        world.run(world.registry.create("/a", b""))


@pytest.mark.parametrize("operation", ["pwrite", "fsync"])
def test_failed_disk_is_not_written_again(world, operation):
    """A failed fsync is not repeated and believed; what was acknowledged is there."""
    registry = world.registry
    world.run(registry.create("/a", b""))
    world.runtime.disk.fail(operation, f"{DIRECTORY}/journal")
    for _ in range(2):
        with pytest.raises(RegistryFailedError, match="could not be written"):
            world.run(registry.set("/a", b"lost"))
    data, _ = world.run(world.crash().get("/a"))

    assert data == b""


@pytest.mark.parametrize("room", [0, 20])
def test_write_waits_while_the_disk_is_full(world, room):
    """Once there is room it is done, in order, and is there after a crash."""
    registry, disk = world.registry, world.runtime.disk
    world.run(registry.create("/a", b""))
    disk.fill(room)  # of a frame that is larger, a part is written

    async def write() -> list[None]:
        return await asyncio.gather(*(registry.create(f"/a/{n}", b"x" * 99) for n in range(3)))

    writing = world.runtime.scheduler.spawn(write(), "writes")
    world.runtime.advance(10_000)
    assert not writing.done()
    disk.capacity_in_bytes = None
    world.runtime.advance(1_000)

    assert writing.done()
    assert world.run(world.crash().children("/a")) == ["0", "1", "2"]


def test_full_disk_does_not_hold_up_the_end(world):
    """Writes that wait for room fail then, and so does a start without room."""
    world.run(world.registry.create("/a", b""))
    world.runtime.disk.fill()
    writing = world.runtime.scheduler.spawn(world.registry.set("/a", b"lost"), "write")
    world.runtime.advance(1_500)
    world.run(world.registry.close())
    with pytest.raises(RegistryFailedError, match="No space left"):
        world.start()
    world.runtime.disk.capacity_in_bytes = None
    registry = world.start()

    assert isinstance(writing.exception(), RegistryFailedError)
    assert world.run(registry.get("/a"))[0] == b""


def test_failed_start_gives_the_lock_back(world):
    """The next attempt finds the directory free."""
    world.run(world.registry.close())
    world.runtime.disk.fail("open", f"{DIRECTORY}/journal")
    with pytest.raises(OSError, match="Input/output"):
        world.start()

    assert world.run(world.start().children("/")) == []


def test_error_code_is_that_of_the_servers_fault():
    """Should one reach a client, it says that the server is at fault."""
    assert NoNodeError("x").error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_paths_are_made_and_trees_removed(world):
    """The three conveniences over the interface."""
    registry = world.registry
    for _ in range(2):
        world.run(ensure_path(registry, "/a/b/c"))
        world.run(create_or_set(registry, "/a/d", b"1"))
    assert world.run(registry.get("/a/d"))[1].version == 1
    for _ in range(2):
        world.run(delete_tree(registry, "/a"))

    assert world.run(registry.children("/")) == []


def names(world, is_open):
    """The children of /a as a tool reads them from the files."""
    return sorted(read_tree(world.runtime.disk, DIRECTORY, is_open=is_open).find("/a").children)


def test_tools_read_the_tree_beside_the_broker(world, monkeypatch):
    """With ephemeral nodes while the broker runs; nothing in the files is touched."""
    registry = world.registry
    world.run(registry.create("/a", b""))
    world.run(registry.create("/a/kept", b""))
    world.run(registry.create("/a/mine", b"1", ephemeral=True))
    world.runtime.advance(0)
    before = world.runtime.disk.read_bytes(f"{DIRECTORY}/journal")

    assert names(world, is_open=True) == ["kept", "mine"]
    assert names(world, is_open=False) == ["kept"]
    world.run(registry.delete("/a/mine"))
    world.runtime.advance(0)
    assert names(world, is_open=True) == ["kept"]
    assert world.runtime.disk.read_bytes(f"{DIRECTORY}/journal") == before


def test_tools_read_a_tree_that_was_folded_into_a_snapshot(world, monkeypatch):
    """Ephemeral nodes are shown beside those of the snapshot and of what follows it."""
    monkeypatch.setattr("ottla.registry.journal.COMPACTION_BYTES", 100)
    world.run(world.registry.create("/a", b""))
    world.run(world.registry.create("/a/mine", b"", ephemeral=True))
    for number in range(20):
        world.run(world.registry.create(f"/a/{number:02d}", b"x" * 20))
    world.runtime.advance(0)

    assert world.runtime.disk.exists(f"{DIRECTORY}/snapshot")
    assert names(world, is_open=True) == [*(f"{n:02d}" for n in range(20)), "mine"]
