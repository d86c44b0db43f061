"""What every registry does, whether it is embedded, shared in memory or a real ZooKeeper server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.session_tree import SessionTree, TreeRegistry
from ottla.registry.tree import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Registry,
    RegistryError,
    RegistryFailedError,
    Set,
    create_or_set,
    delete_tree,
    ensure_path,
)
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.registry.zookeeper_session import ZooKeeperSettings
from ottla.runtime import Runtime, real_runtime

Scenario = Callable[[Registry], Awaitable[None]]
LIMIT_S = 100


def shared_registry(runtime: Runtime, _: str) -> TreeRegistry:
    """One of those that share a tree in memory."""
    return TreeRegistry(runtime.scheduler, SessionTree(runtime.clock))


@pytest.fixture(params=["embedded", "shared", "zookeeper"])
def run(request, tmp_path, unique) -> Callable[[Scenario], None]:
    """Runs a scenario on a loop of its own with an open registry."""
    if request.param == "embedded":
        kind, place = EmbeddedRegistry, str(tmp_path)
    elif request.param == "shared":
        kind, place = shared_registry, ""
    else:
        process = request.getfixturevalue("zookeeper")
        kind = ZooKeeperRegistry
        place = ZooKeeperSettings((process.connect,), "/" + unique("contract"))

    async def play(scenario: Scenario) -> None:
        runtime = real_runtime(asyncio.get_running_loop())
        registry = kind(runtime, place)
        await registry.start()
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario(registry)
        finally:
            await registry.close()
            await runtime.close()

    return lambda scenario: asyncio.run(play(scenario))


class Calls:
    """Counts what watches tell, and waits for it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = asyncio.Event()

    def of(self, name: str) -> Callable[[], None]:
        def tell() -> None:
            self.told.append(name)
            self._news.set()

        return tell

    async def take(self) -> set[str]:
        """The next calls; waits for the first one."""
        await self._news.wait()
        self._news.clear()
        told, self.told = self.told, []
        return set(told)


def test_node_has_data_and_a_stat(run):
    """Versions count writes and changes of children; ids follow the order of writes."""

    async def scenario(registry: Registry) -> None:
        assert await registry.create("/a", b"1") == "/a"
        assert (await registry.set("/a", b"22")).version == 1
        await registry.create("/a/b", b"")
        await registry.create("/a/e", b"", ephemeral=True)
        data, stat = await registry.get("/a")

        assert data == b"22"
        assert (stat.version, stat.children_version, stat.children_count) == (1, 2, 2)
        assert stat.data_length == 2
        assert stat.modified_id > stat.created_id
        assert stat.modified_ms >= stat.created_ms > 1_500_000_000_000
        assert not stat.is_ephemeral
        ephemeral = await registry.exists("/a/e")
        assert ephemeral is not None
        assert ephemeral.is_ephemeral
        assert (stat.is_own, ephemeral.is_own) == (False, True)
        assert ephemeral.created_id > stat.modified_id
        assert await registry.exists("/no") is None
        assert await registry.children("/a") == ["b", "e"]
        assert await registry.children("/") == ["a"]
        await registry.delete("/a/b", 0)
        assert await registry.children("/a") == ["e"]

    run(scenario)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (lambda registry: registry.create("/a", b""), NodeExistsError),
        (lambda registry: registry.create("/no/b", b""), NoNodeError),
        (lambda registry: registry.create("/e/b", b""), EphemeralParentError),
        (lambda registry: registry.get("/no"), NoNodeError),
        (lambda registry: registry.children("/no"), NoNodeError),
        (lambda registry: registry.set("/no", b""), NoNodeError),
        (lambda registry: registry.set("/a", b"", 7), BadVersionError),
        (lambda registry: registry.delete("/no"), NoNodeError),
        (lambda registry: registry.delete("/a"), NotEmptyError),
        (lambda registry: registry.delete("/a/b", 7), BadVersionError),
        (lambda registry: registry.delete("/"), RegistryError),
        (lambda registry: registry.create("a", b""), RegistryError),
        (lambda registry: registry.create("/a/../b", b""), RegistryError),
        (lambda registry: registry.get("/a//b"), RegistryError),
        (lambda registry: registry.get("/a\0"), RegistryError),
        (lambda registry: registry.create("/a/" + 32_767 * "ä", b""), RegistryError),
        (lambda registry: registry.create("/a/\ud800", b""), RegistryError),
        (lambda registry: registry.set("/a/" + 70_000 * "x", b""), RegistryError),
        (lambda registry: registry.multi([Create("/c\udfff", b"")]), RegistryError),
        (lambda registry: registry.multi([Create("/c", b""), Create("/a", b"")]), NodeExistsError),
        (lambda registry: registry.multi([Delete("/a/b"), Check("/a", 3)]), BadVersionError),
        (lambda registry: registry.multi([Set("/a", b"!"), Set("/no", b"")]), NoNodeError),
        (lambda registry: registry.multi([Delete("/a/b"), Delete("/no")]), NoNodeError),
        (
            lambda registry: registry.multi(
                [Create("/c", b""), Create("/c/d", b""), Set("/c", b"!"), Delete("/c")]
            ),
            NotEmptyError,
        ),
    ],
)
def test_what_the_tree_does_not_permit_is_refused(run, operation, error):
    """Each refusal has its own class and names the path, and nothing is changed."""

    async def scenario(registry: Registry) -> None:
        for path in ("/a", "/a/b"):
            await registry.create(path, b"")
        await registry.create("/e", b"", ephemeral=True)
        before = await registry.get("/a")
        with pytest.raises(error, match=r"/|'a'"):
            await operation(registry)

        assert await registry.children("/") == ["a", "e"]
        assert await registry.children("/a") == ["b"]
        assert await registry.get("/a") == before

    run(scenario)


def test_several_writes_are_done_at_once(run):
    """As the election of a controller: its node and the epoch, if nobody raised it before."""

    async def scenario(registry: Registry) -> None:
        await registry.create("/epoch", b"4")
        await registry.create("/old", b"")
        stats = await registry.multi(
            [
                Check("/epoch", 0),
                Create("/controller", b"1", ephemeral=True),
                Set("/epoch", b"5", 0),
                Delete("/old", 0),
            ]
        )

        assert [stat and stat.version for stat in stats] == [None, None, 1, None]
        assert (await registry.get("/epoch"))[0] == b"5"
        controller = await registry.exists("/controller")
        assert controller is not None
        assert controller.is_ephemeral
        assert await registry.children("/") == ["controller", "epoch"]
        assert await registry.multi([]) == []

    run(scenario)


def test_sequential_nodes_get_growing_numbers(run):
    """Ten digits, which sort as they were given, also after deletions."""

    async def scenario(registry: Registry) -> None:
        paths = [await registry.create("/n_", b"", sequential=True) for _ in range(2)]
        await registry.delete(paths[-1])
        paths.append(await registry.create("/n_", b"3", sequential=True))

        assert paths == sorted(set(paths))
        assert all(len(path) == len("/n_") + 10 for path in paths)
        assert (await registry.get(paths[-1]))[0] == b"3"

    run(scenario)


def test_watch_tells_of_each_kind_of_change(run):
    """Created, written, deleted; a child that comes or goes, also below a node to come."""

    async def scenario(registry: Registry) -> None:
        calls = Calls()
        registry.watch_data("/a", calls.of("data"))
        registry.watch_children("/a", calls.of("children"))
        for change, names in (
            (registry.create("/a", b""), {"data"}),
            (registry.set("/a", b"1"), {"data"}),
            (registry.create("/a/b", b""), {"children"}),
            (registry.delete("/a/b"), {"children"}),
            (registry.delete("/a"), {"data"}),
            (registry.create("/a", b""), {"data"}),
        ):
            await change
            told: set[str] = set()
            while not names <= told:
                told |= await calls.take()

    run(scenario)


def test_watch_misses_no_change(run):
    """Whoever reads after each call has read the last state in the end."""

    async def scenario(registry: Registry) -> None:
        await registry.create("/a", b"0")
        seen: list[int] = []
        news = asyncio.Event()
        registry.watch_data("/a", news.set)

        async def follow() -> None:
            while not seen or seen[-1] < 100:
                await news.wait()
                news.clear()
                seen.append(int((await registry.get("/a"))[0]))

        follower = asyncio.ensure_future(follow())
        for number in range(1, 101):
            await registry.set("/a", str(number).encode())
        await follower

        assert seen == sorted(seen)

    run(scenario)


def test_cancelled_watch_is_silent(run):
    """Others of the same node are still told."""

    async def scenario(registry: Registry) -> None:
        calls = Calls()
        await registry.create("/a", b"")
        cancelled = registry.watch_data("/a", calls.of("cancelled"))
        alone = registry.watch_children("/a", calls.of("alone"))
        registry.watch_data("/a", calls.of("other"))
        for watch in (cancelled, cancelled, alone):
            watch.cancel()
        await registry.create("/a/b", b"")
        await registry.set("/a", b"1")

        assert await calls.take() == {"other"}

    run(scenario)


def test_many_operations_at_once_are_all_done(run):
    """Far more than may be in flight."""

    async def scenario(registry: Registry) -> None:
        await asyncio.gather(*(registry.create(f"/n{n:03}", b"") for n in range(200)))

        assert len(await registry.children("/")) == 200

    run(scenario)


def test_conveniences_work(run):
    """Paths are made, nodes written, trees removed, over and over."""

    async def scenario(registry: Registry) -> None:
        for _ in range(2):
            await ensure_path(registry, "/a/b/c")
            await create_or_set(registry, "/a/d", b"1")
        assert (await registry.get("/a/d"))[1].version == 1
        for _ in range(2):
            await delete_tree(registry, "/a")

        assert await registry.children("/") == []

    run(scenario)


def test_closed_registry_refuses(run):
    """Nothing is promised any more."""

    async def scenario(registry: Registry) -> None:
        await registry.close()
        with pytest.raises(RegistryFailedError):
            await registry.create("/a", b"")

    run(scenario)
