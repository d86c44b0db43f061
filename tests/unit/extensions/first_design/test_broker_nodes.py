"""The nodes of Kafka 0.7 in the registry: ephemeral, and there again in each session."""

from __future__ import annotations

import pytest

from ottla.extensions.first_design.broker_nodes import BrokerNodes
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import NoNodeError, SessionState
from ottla.testing import MockRuntime, mock_runtime


class NodesWorld:
    """A registry, and the nodes of a broker in it."""

    def __init__(self, runtime: MockRuntime) -> None:
        self.runtime = runtime
        self.runtime.disk.make_dirs("/logs")
        self.registry = EmbeddedRegistry(runtime, "/logs/registry")
        self.run(self.registry.start())
        self.nodes = BrokerNodes(runtime, self.registry, "/old", 7)

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    def get(self, path: str) -> bytes:
        data, stat = self.run(self.registry.get(path))
        assert stat.is_ephemeral
        return data


@pytest.fixture
def world() -> NodesWorld:
    """Nothing is registered yet."""
    return NodesWorld(mock_runtime())


def test_brokers_ids_has_creator_host_and_port(world):
    """As text with colons, in a node of the broker's session."""
    now_ms = world.runtime.clock.now_ms()
    world.nodes.start("host", 9091, {})
    world.runtime.advance(10)

    assert world.get("/old/brokers/ids/7") == b"host-%d:host:9091" % now_ms


def test_brokers_topics_topic_broker_has_the_number_of_partitions(world):
    """/brokers/topics/[topic]/[broker], for the topics of the start and for those made later."""
    world.nodes.start("host", 9091, {"pages": 2})
    world.runtime.advance(10)
    world.nodes.add_topic("clicks", 3)
    world.runtime.advance(10)

    assert world.get("/old/brokers/topics/pages/7") == b"2"
    assert world.get("/old/brokers/topics/clicks/7") == b"3"


def test_nodes_are_made_again_in_a_new_session(world):
    """The old ones have gone with the old one."""
    world.nodes.start("host", 9091, {"pages": 2})
    world.runtime.advance(10)
    for path in ("/old/brokers/ids/7", "/old/brokers/topics/pages/7"):
        world.run(world.registry.delete(path))
    for state in (SessionState.EXPIRED, SessionState.RENEWED):
        world.nodes._on_session(state)
    world.runtime.advance(10)

    assert world.get("/old/brokers/topics/pages/7") == b"2"
    world.nodes.stop()
    world.run(world.registry.delete("/old/brokers/ids/7"))
    world.nodes.add_topic("late", 1)
    world.runtime.advance(5000)
    with pytest.raises(NoNodeError):
        world.get("/old/brokers/topics/late/7")


def test_node_of_a_killed_predecessor_is_waited_for(world):
    """It is another session's, and vanishes with it."""

    class Other:
        is_own = False

    async def exists_of_another(path):
        return Other if path.endswith("/7") else await exists(path)

    exists, world.registry.exists = world.registry.exists, exists_of_another
    world.run(world.registry.create("/old", b""))
    world.run(world.registry.create("/old/brokers", b""))
    world.run(world.registry.create("/old/brokers/ids", b""))
    world.run(world.registry.create("/old/brokers/ids/7", b"another", ephemeral=True))
    world.nodes.start("host", 9091, {})
    world.runtime.advance(3000)
    assert world.get("/old/brokers/ids/7") == b"another"
    world.run(world.registry.delete("/old/brokers/ids/7"))
    world.runtime.advance(1000)

    assert world.get("/old/brokers/ids/7").endswith(b":host:9091")
