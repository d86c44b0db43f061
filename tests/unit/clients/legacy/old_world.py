"""Brokers, and a registry in the place of ZooKeeper, for the old clients in a virtual world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import HOST, MockCluster
from virtual_thread import virtual_threads

from ottla.errors import ErrorCode
from ottla.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.record.record_batch import RecordBatch
from ottla.registry import paths
from ottla.registry.session_tree import SessionTree, TreeRegistry
from ottla.registry.tree import NoNodeError, delete_tree, ensure_path
from ottla.registry.znodes import BrokerNode, TopicNode, encode_partition_state
from ottla.structs import LeaderAndIsr
from ottla.testing import MockRuntime

MODULES = ("ottla.clients.legacy.producer", "ottla.clients.legacy.consumer_connector")
GROUP = f"{paths.CONSUMERS}/g"


class OldWorld:
    """`registries` are those of the clients, in the order in which they were made."""

    def __init__(
        self, runtime: MockRuntime, cluster: MockCluster, patch: pytest.MonkeyPatch
    ) -> None:
        self.runtime, self.cluster = runtime, cluster
        self.world = ConsumerWorld(runtime, cluster)
        self.run(self.world.core.close(self.world.deadline()))  # its brokers and logs are used
        self.tree = SessionTree(runtime.clock)
        self.registries: list[TreeRegistry] = []
        self.registry = TreeRegistry(runtime.scheduler, self.tree)
        self.run(self.registry.start())
        for path in paths.PERSISTENT:
            self.run(ensure_path(self.registry, path))
        for module in MODULES:
            virtual_threads(patch, runtime, module)
            patch.setattr(f"{module}.registry_of", self._registry_of)
        for broker_id, broker in cluster.brokers.items():
            self.add_broker(broker_id, broker.port)
            broker.on(ProduceRequest, produced())

    def _registry_of(self, runtime: MockRuntime, config: Any) -> TreeRegistry:
        self.registries.append(TreeRegistry(runtime.scheduler, self.tree))
        return self.registries[-1]

    def run(self, call: Any) -> Any:
        return self.runtime.scheduler.run(call)

    def advance(self, ms: int = 100) -> None:
        self.runtime.advance(ms)

    # The nodes

    def add_broker(self, broker_id: int, port: int) -> None:
        node = BrokerNode((f"PLAINTEXT://{HOST}:{port}",), {}, HOST, port, 0)
        self.run(self.registry.create(paths.broker(broker_id), node.encode(), ephemeral=True))

    def remove_broker(self, broker_id: int) -> None:
        self.run(self.registry.delete(paths.broker(broker_id)))

    def add_topic(self, name: str, leaders: Mapping[int, int]) -> None:
        self.run(self.make_topic(name, leaders))

    async def make_topic(self, name: str, leaders: Mapping[int, int]) -> None:
        """A topic whose partitions have these leaders, which are their only replicas."""
        self.cluster.topics[name] = len(leaders)
        self.cluster.leaders |= {(name, p): leader for p, leader in leaders.items()}
        replicas = {partition: (max(leader, 0),) for partition, leader in leaders.items()}
        for partition, leader in leaders.items():
            await self.lead(name, partition, leader)
        await self.registry.set(paths.topic(name), TopicNode(replicas).encode())

    async def remove_topic(self, name: str) -> None:
        """A topic that was deleted, and may not be made again."""
        del self.cluster.topics[name]
        self.cluster.errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        await delete_tree(self.registry, paths.topic(name))

    async def lead(self, name: str, partition: int, leader: int) -> None:
        """Give a partition another leader."""
        self.cluster.leaders[name, partition] = leader
        path = paths.partition_state(name, partition)
        state = encode_partition_state(LeaderAndIsr(leader, 0, (leader,)), 1)
        await ensure_path(self.registry, path)
        await self.registry.set(path, state)

    def soon(self, change: Any) -> None:
        """Have something change while a client waits."""
        self.runtime.scheduler.spawn(change, "a change")

    def node(self, path: str) -> str | None:
        """The text of a node; None if there is none."""
        try:
            return self.run(self.registry.get(path))[0].decode()
        except NoNodeError:
            return None

    def names(self, path: str) -> list[str]:
        """The children of a node; none if there is no such node."""
        try:
            return sorted(self.run(self.registry.children(path)))
        except NoNodeError:
            return []

    def offsets(self, topic: str = "pages") -> dict[int, int]:
        """What the group has committed, by partition."""
        path = f"{GROUP}/offsets/{topic}"
        return {int(name): int(self.node(f"{path}/{name}") or -1) for name in self.names(path)}

    def commit(self, partition: int, offset: int) -> None:
        """Have the group begin at an offset."""
        path = f"{GROUP}/offsets/pages/{partition}"
        self.run(ensure_path(self.registry, path))
        self.run(self.registry.set(path, str(offset).encode()))

    # What the brokers got

    def sent(self) -> list[tuple[int, str, int, list[bytes]]]:
        """By request and partition: broker, topic, partition, values."""
        return [
            (broker_id, topic.name, data.index, values_of(data.records))
            for broker_id, broker in self.cluster.brokers.items()
            for request in broker.sent(ProduceRequest)
            for topic in request.topic_data
            for data in topic.partition_data
        ]


def values_of(records: Any) -> list[bytes]:
    return [record.value for record in RecordBatch(records).records()]


def produced(code: int = 0) -> Any:
    """An answer to a produce request: the same for all partitions."""

    def answer(request: ProduceRequest, version: int) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=data.index, error_code=code)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return answer
