"""Nodes of the registry in which clients of the 0.7 design find the cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.config.legacy_config import is_first_design
from ottla.config.zookeeper_config import parse_connect
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, Registry, Watch
from ottla.registry.znodes import BrokerNode, TopicNode, decode_partition_state
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.registry.zookeeper_session import ZooKeeperSettings
from ottla.structs import NO_LEADER, NamedTuple, Node

if TYPE_CHECKING:
    from ottla.config.legacy_config import LegacyConfig
    from ottla.runtime import Runtime

Replicas = Mapping[int, tuple[int, ...]]


def registry_of(runtime: Runtime, config: LegacyConfig) -> ZooKeeperRegistry:
    """The registry that zk.connect names, not yet started."""
    address = parse_connect("zk.connect", config.zk_connect or "")
    settings = ZooKeeperSettings(
        address.servers,
        address.chroot,
        session_timeout_ms=config.zk_sessiontimeout_ms,
        connection_timeout_ms=config.zk_connectiontimeout_ms,
    )
    return ZooKeeperRegistry(runtime, settings)


async def live_brokers(registry: Registry) -> dict[int, Node]:
    """The live brokers by id; those without a plaintext listener are left out."""
    found: dict[int, Node] = {}
    for name in await names_below(registry, paths.BROKER_IDS):
        try:
            data, _ = await registry.get(paths.broker(int(name)))
        except NoNodeError:
            continue  # it is gone meanwhile, and the watch will report that
        node = BrokerNode.decode(int(name), data)
        if node.host is not None:
            found[int(name)] = Node(int(name), node.host, node.port, node.rack)
    return found


async def names_below(registry: Registry, path: str) -> list[str]:
    """The children of a node; none if the node does not exist yet."""
    try:
        return await registry.children(path)
    except NoNodeError:
        return []


async def replicas_of(registry: Registry, topics: Iterable[str]) -> dict[str, Replicas]:
    """The partitions of topics and their replicas; topics that do not exist are left out."""
    found: dict[str, Replicas] = {}
    for topic in topics:
        try:
            data, _ = await registry.get(paths.topic(topic))
        except NoNodeError:
            continue
        found[topic] = TopicNode.decode(topic, data).assignment
    return found


async def leader_of(registry: Registry, topic: str, partition: int) -> int:
    """The leader of a partition; -1 if it has none, or does not exist yet."""
    path = paths.partition_state(topic, partition)
    try:
        data, stat = await registry.get(path)
    except NoNodeError:
        return NO_LEADER
    return decode_partition_state(path, data, stat.version)[0].leader


class BrokerPartition(NamedTuple):
    """A partition, the broker that it belongs to, and its current leader."""

    broker_id: int
    partition: int
    leader: int


class ClusterNodes:
    """The nodes of a registry in which clients find brokers and partitions."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def live_brokers(self) -> dict[int, Node]:
        """The live brokers by id."""
        return await live_brokers(self.registry)

    async def replicas_of(self, topics: Iterable[str]) -> dict[str, Replicas]:
        """The partitions of the topics that exist, and the owner of each."""
        return await replicas_of(self.registry, topics)

    async def placed(self, topic: str, brokers: Mapping[int, Node]) -> list[BrokerPartition]:
        """The partitions that messages for a topic can be sent to; none if there is no topic."""
        replicas = (await self.replicas_of([topic])).get(topic, {})
        leaders = await asyncio.gather(
            *(leader_of(self.registry, topic, partition) for partition in replicas)
        )
        return sorted(
            BrokerPartition((ids or (NO_LEADER,))[0], partition, leader)
            for (partition, ids), leader in zip(replicas.items(), leaders, strict=True)
        )

    def watch_topic(self, topic: str, callback: Callable[[], object]) -> Watch:
        """Call back when a topic is made, deleted, or gets partitions."""
        return self.registry.watch_data(paths.topic(topic), callback)


_BROKER: Final = re.compile(r"(?:.*?-[0-9]+|[^:]*):(.+):([0-9]+)")
"""creator:host:port; the creator is the host with a time behind it, and a host may have colons."""
NUMBER_BITS: Final = 32


class PlacedPartition(int):
    """A partition of the first design, which belongs to a broker, as a number: `0-3` as text.

    The numbers are in the order of the brokers, and for one broker in that of its partitions.
    """

    @classmethod
    def of(cls, broker_id: int, number: int) -> PlacedPartition:
        return cls(broker_id << NUMBER_BITS | number & (1 << NUMBER_BITS) - 1)

    @property
    def broker_id(self) -> int:
        return self >> NUMBER_BITS

    @property
    def number(self) -> int:
        """The broker's number of it; -1 is any of them."""
        number: int = self & (1 << NUMBER_BITS) - 1
        return number - (1 << NUMBER_BITS) if number >> NUMBER_BITS - 1 else number

    def __repr__(self) -> str:
        return f"{self.broker_id}-{self.number}"

    __str__ = __repr__


class FirstDesignNodes(ClusterNodes):
    """The nodes of Kafka 0.7: brokers as text, and for each topic how many partitions each has."""

    async def live_brokers(self) -> dict[int, Node]:
        found: dict[int, Node] = {}
        for name in await names_below(self.registry, paths.BROKER_IDS):
            text = await self._text(paths.broker(int(name)))
            match = None if text is None else _BROKER.fullmatch(text)
            if match is not None:
                found[int(name)] = Node(int(name), match[1], int(match[2]))
        return found

    async def replicas_of(self, topics: Iterable[str]) -> dict[str, Replicas]:
        found: dict[str, Replicas] = {}
        for topic in topics:
            path = paths.topic(topic)
            partitions: dict[int, tuple[int, ...]] = {}
            for name in await names_below(self.registry, path):
                count = await self._text(f"{path}/{name}")
                broker_id = int(name)
                for number in range(int(count or 0)):
                    partitions[PlacedPartition.of(broker_id, number)] = (broker_id,)
            if partitions:
                found[topic] = partitions
        return found

    async def placed(self, topic: str, brokers: Mapping[int, Node]) -> list[BrokerPartition]:
        """Those that the topic has; for one that no broker has, the first that each would make."""
        replicas = (await self.replicas_of([topic])).get(topic)
        partitions = replicas or [PlacedPartition.of(broker_id, 0) for broker_id in brokers]
        return sorted(
            BrokerPartition(each.broker_id, each, each.broker_id)
            for each in partitions
            if isinstance(each, PlacedPartition) and each.broker_id in brokers
        )

    def watch_topic(self, topic: str, callback: Callable[[], object]) -> Watch:
        return self.registry.watch_children(paths.topic(topic), callback)

    async def _text(self, path: str) -> str | None:
        try:
            return (await self.registry.get(path))[0].decode()
        except NoNodeError:
            return None  # it is gone meanwhile, and the watch will report that


def cluster_nodes(registry: Registry, version: str) -> ClusterNodes:
    """The nodes of a cluster whose brokers have this version."""
    return FirstDesignNodes(registry) if is_first_design(version) else ClusterNodes(registry)
