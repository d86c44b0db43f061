"""Where a producer may send to: from broker.list, and from ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients.legacy.cluster_nodes import BrokerPartition, ClusterNodes
from ottla.clients.legacy.producer import (
    StaticPartitionInfo,
    ZooKeeperPartitionInfo,
)
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import ensure_path
from ottla.registry.znodes import BrokerNode, TopicNode, encode_partition_state
from ottla.structs import LeaderAndIsr, Node
from ottla.testing import mock_runtime


class Link:
    """A broker that answers every question about a topic with the same leaders."""

    def __init__(self, leaders: list[int], error: ErrorCode = ErrorCode.NONE) -> None:
        self.leaders = leaders
        self.error = error
        self.asked: list[str] = []

    async def metadata(self, topic: str) -> MetadataResponse:
        self.asked.append(topic)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in enumerate(self.leaders)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=i, host=f"h{i}", port=1) for i in (1, 2)],
            topics=[
                MetadataResponseTopic(name=topic, error_code=self.error, partitions=partitions)
            ],
        )


def learn(brokers: dict[int, Node], link: Any) -> StaticPartitionInfo:
    runtime = mock_runtime()
    info = StaticPartitionInfo(runtime, brokers, lambda broker_id: link)
    runtime.scheduler.run(info.learn("pages"))
    return info


def test_only_brokers_of_the_list_are_used():
    """Partitions that others lead are not sent to."""
    info = learn({1: Node(1, "h1", 1)}, Link([1, 2, 1, -1]))

    assert info.known["pages"] == (BrokerPartition(1, 0, 1), BrokerPartition(1, 2, 1))


def test_behind_a_load_balancer_the_leaders_are_used():
    """No broker has the id of the list: what was asked stands for all of them."""
    info = learn({9: Node(9, "vip", 1)}, Link([1, 2]))

    assert info.known["pages"] == (BrokerPartition(1, 0, 1), BrokerPartition(2, 1, 2))
    assert info.brokers[2] == Node(2, "h2", 1)


def test_what_the_brokers_answer_is_told():
    """A topic that may not be, and one of which the listed brokers lead nothing."""
    with pytest.raises(KafkaError, match="topic pages"):
        learn({1: Node(1, "h1", 1)}, Link([], ErrorCode.INVALID_TOPIC_EXCEPTION))
    with pytest.raises(InvalidMetadataError, match=r"broker\.list"):
        learn({1: Node(1, "h1", 1)}, Link([2]))


def test_zookeeper_tells_of_brokers_topics_and_leaders():
    """Sorted by the broker that should lead; changes are heard of, and a new topic is asked for."""
    runtime = mock_runtime()
    registry = EmbeddedRegistry(runtime, "/registry")
    seen: list[list[int]] = []
    link = Link([])
    info = ZooKeeperPartitionInfo(
        runtime,
        ClusterNodes(registry),
        lambda broker_id: link,
        lambda brokers: seen.append(sorted(brokers)),
    )

    async def add_broker(broker_id: int) -> None:
        node = BrokerNode((f"PLAINTEXT://h{broker_id}:1",), {}, f"h{broker_id}", 1, 0)
        await registry.create(paths.broker(broker_id), node.encode(), ephemeral=True)

    async def add_topic(replicas: dict[int, tuple[int, ...]], leaders: dict[int, int]) -> None:
        await registry.create(paths.topic("pages"), TopicNode(replicas).encode())
        for partition, leader in leaders.items():
            path = paths.partition_state("pages", partition)
            await ensure_path(registry, path)
            state = LeaderAndIsr(leader, 0, (leader,))
            await registry.set(path, encode_partition_state(state, 1))

    async def story() -> None:
        await info.start()
        with pytest.raises(KafkaError, match="no broker in ZooKeeper"):
            await info.learn("pages")
        await ensure_path(registry, paths.BROKER_IDS)
        await ensure_path(registry, paths.TOPICS)
        await add_broker(2)
        learning = runtime.scheduler.spawn(info.learn("pages"), "learn")
        await add_topic({0: (2, 1), 1: (1, 2), 2: (2,)}, {0: 2, 1: 2})
        await learning
        assert info.known["pages"] == (
            BrokerPartition(1, 1, 2),
            BrokerPartition(2, 0, 2),
            BrokerPartition(2, 2, -1),
        )
        await add_broker(1)

    runtime.scheduler.run(story())
    runtime.scheduler.run_ready()

    assert link.asked == ["pages"]
    assert seen[-1] == [1, 2]
    assert info.brokers[1] == Node(1, "h1", 1)
    runtime.scheduler.run(info.close())
