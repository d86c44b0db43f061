"""Where clients of the 0.7 design find brokers and partitions in a registry of Kafka 0.7."""

from __future__ import annotations

import pytest

from ottla.clients.legacy.cluster_nodes import BrokerPartition, FirstDesignNodes, PlacedPartition
from ottla.registry.embedded import EmbeddedRegistry
from ottla.structs import Node

NODES = {
    "/brokers/ids/0": b"kafka-0-1300000000000:kafka-0:9092",
    "/brokers/ids/1": b"no address",
    "/brokers/ids/2": b"::1-1300000000000:::1:9094",
    "/brokers/topics/pages/0": b"2",
    "/brokers/topics/pages/1": b"1",
    "/brokers/topics/pages/2": b"0",
}
LIVE = {0: Node(0, "kafka-0", 9092), 2: Node(2, "::1", 9094)}


def place(broker_id: int, number: int) -> BrokerPartition:
    partition = PlacedPartition.of(broker_id, number)
    return BrokerPartition(broker_id, partition, broker_id)


@pytest.fixture
def nodes(runtime) -> FirstDesignNodes:
    registry = EmbeddedRegistry(runtime, "/data/registry")
    runtime.scheduler.run(registry.start())
    folders = dict.fromkeys(
        ["/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/pages"], b""
    )
    for path, data in (folders | NODES).items():
        runtime.scheduler.run(registry.create(path, data))
    return FirstDesignNodes(registry)


def test_brokers_are_those_with_an_address(runtime, nodes):
    """Also one whose host has colons."""
    assert runtime.scheduler.run(nodes.live_brokers()) == LIVE


def test_partitions_are_numbered_on_each_broker(runtime, nodes):
    """A broker may have none, and so may a topic."""
    found = runtime.scheduler.run(nodes.replicas_of(["pages", "missing"]))

    assert {topic: list(map(str, each)) for topic, each in found.items()} == {
        "pages": ["0-0", "0-1", "1-0"]
    }
    assert list(found["pages"].values()) == [(0,), (0,), (1,)]


def test_messages_go_to_partitions_of_live_brokers(runtime, nodes):
    """A topic that no broker has can be made by each."""
    run = runtime.scheduler.run

    assert run(nodes.placed("pages", LIVE)) == [place(0, 0), place(0, 1)]
    assert run(nodes.placed("missing", LIVE)) == [place(0, 0), place(2, 0)]
