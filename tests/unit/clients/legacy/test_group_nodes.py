"""What a consumer writes of itself, and what it must not write any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from ottla.clients.legacy.cluster_nodes import live_brokers, registry_of
from ottla.clients.legacy.group_nodes import WRITES_AT_ONCE, ConsumerNodes
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import NodeExistsError, NoNodeError, delete_tree, ensure_path
from ottla.registry.znodes import BrokerNode, ConsumerRegistration
from ottla.structs import Node, TopicPartition
from ottla.testing import mock_runtime

P0, P1 = TopicPartition("pages", 0), TopicPartition("pages", 1)
REGISTRATION = ConsumerRegistration({"pages": 1})


@pytest.fixture
def play() -> Callable[[Callable[[ConsumerNodes], Awaitable[None]]], None]:
    """Runs a scenario with the nodes of a consumer that is in its group."""

    def run(scenario: Callable[[ConsumerNodes], Awaitable[None]]) -> None:
        runtime = mock_runtime()

        async def story() -> None:
            registry = EmbeddedRegistry(runtime, "/registry")
            await registry.start()
            nodes = ConsumerNodes(registry, "g", "me")
            await nodes.register(REGISTRATION)
            await scenario(nodes)
            await registry.close()

        runtime.scheduler.run(story())

    return run


def test_owners_are_taken_all_or_none(play):
    """One that is somebody else's, and nothing was written."""

    async def scenario(nodes: ConsumerNodes) -> None:
        await nodes.take({P0: "me-0"})
        other = ConsumerNodes(nodes.registry, "g", "other")
        await other.register(REGISTRATION)
        with pytest.raises(NodeExistsError):
            await other.take({P1: "other-0", P0: "other-0"})

        assert not await nodes.are_any_owned([P1])
        assert sorted(await nodes.registrations()) == ["me", "other"]

    play(scenario)


def test_many_owners_are_taken_in_parts_and_given_back_together(play):
    """What a part has taken is let go when a later one is refused."""

    async def scenario(nodes: ConsumerNodes) -> None:
        many = {TopicPartition("many", n): "me-0" for n in range(WRITES_AT_ONCE + 10)}
        last = list(many)[-1]
        await nodes.take({last: "other-0"})
        with pytest.raises(NodeExistsError):
            await nodes.take(many)
        assert not await nodes.are_any_owned(list(many)[:-1])

    play(scenario)


def test_whoever_has_left_writes_nothing(play):
    """Neither owners nor offsets: the id is not there any more."""

    async def scenario(nodes: ConsumerNodes) -> None:
        await nodes.take({P0: "me-0"})
        await nodes.leave()
        await nodes.leave()
        for write in (
            nodes.take({P1: "me-0"}),
            nodes.give_up([P0]),
            nodes.commit({P0: 7}),
        ):
            with pytest.raises(NoNodeError):
                await write

        assert await nodes.offsets([P0, P1]) == {}
        assert await nodes.are_any_owned([P0])

    play(scenario)


def test_only_what_is_ones_own_is_given_up(play):
    """A tool has deleted one owner, and another consumer has taken the other."""

    async def scenario(nodes: ConsumerNodes) -> None:
        await nodes.take({P0: "me-0", P1: "me-0"})
        for partition in (P0, P1):
            await nodes.registry.delete(paths.partition_owner("g", *partition))
        await nodes.registry.create(paths.partition_owner("g", *P1), b"other-0", ephemeral=True)
        await nodes.give_up([P0, P1])

        assert await nodes.are_any_owned([P1])

    play(scenario)


def test_offsets_are_made_written_and_made_again(play):
    """Offsets are written also where a tool has made or deleted their nodes meanwhile."""

    async def scenario(nodes: ConsumerNodes) -> None:
        registry = nodes.registry
        assert await nodes.offsets([P0, P1]) == {}
        await nodes.commit({P0: 3})
        await nodes.commit({P0: 4, P1: 1})
        assert await nodes.offsets([P0, P1]) == {P0: 4, P1: 1}

        await delete_tree(registry, "/consumers/g/offsets")
        await nodes.commit({P0: 5})
        assert await nodes.offsets([P0, P1]) == {P0: 5}

        await ensure_path(registry, paths.group_offset("g", *P1))
        await nodes.commit({P1: 2})
        assert (await registry.get("/consumers/g/offsets/pages/1"))[0] == b"2"

    play(scenario)


def test_offsets_that_are_known_are_written_at_once(play, monkeypatch):
    """Whether there is one is looked up once, and what was deleted is not taken for known."""

    async def scenario(nodes: ConsumerNodes) -> None:
        registry, looks, writes, place = nodes.registry, [], [], paths.group_offset("g", *P0)
        exists, multi = registry.exists, registry.multi

        async def look(path: str):
            looks.append(path)
            return await exists(path)

        async def write(operations):
            writes.extend(each.path for each in operations)
            return await multi(operations)

        monkeypatch.setattr(registry, "exists", look)
        monkeypatch.setattr(registry, "multi", write)

        async def cost(offset: int) -> tuple[int, int]:
            before = len(looks), len(writes)
            await nodes.commit({P0: offset})
            return looks[before[0] :].count(place), writes[before[1] :].count(place)

        assert await nodes.offsets([P0]) == {}
        assert [await cost(1), await cost(2)] == [(1, 1), (0, 1)]
        await delete_tree(registry, "/consumers/g/offsets")
        assert await nodes.offsets([P0]) == {}
        assert await cost(3) == (1, 1)
        assert await nodes.offsets([P0]) == {P0: 3}
        assert await cost(4) == (0, 1)

        other = ConsumerNodes(registry, "g", "other")
        await other.register(REGISTRATION)
        before = len(looks)
        assert await other.offsets([P0]) == {P0: 4}
        await other.commit({P0: 5})
        assert place not in looks[before:]

    play(scenario)


def test_brokers_are_those_that_the_old_clients_can_speak_to(play):
    """One without a plaintext listener, or that goes meanwhile, is none of them."""

    async def scenario(nodes: ConsumerNodes) -> None:
        registry = nodes.registry
        assert await live_brokers(registry) == {}
        await ensure_path(registry, paths.BROKER_IDS)
        for broker_id, host in ((3, "h"), (4, None)):
            protocol = "PLAINTEXT" if host else "SSL"
            endpoint = f"{protocol}://h:9092"
            node = BrokerNode((endpoint,), {protocol: protocol}, host, 9092 if host else -1, 0)
            await registry.create(paths.broker(broker_id), node.encode())

        assert await live_brokers(registry) == {3: Node(3, "h", 9092)}

    play(scenario)


def test_registry_is_the_one_of_the_settings():
    """Servers, chroot and times."""
    given = {"zk.connect": "a:1,b:2/root", "groupid": "g", "zk.sessiontimeout.ms": 1234}
    registry = registry_of(mock_runtime(), ZooKeeperConsumerConfig.parse(given))

    assert registry.settings.servers == ("a:1", "b:2")
    assert registry.settings.chroot == "/root"
    assert registry.settings.session_timeout_ms == 1234
