"""Nodes of the registry in which clients of the 0.7 design find the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.config.zookeeper_config import parse_connect
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, Registry
from ottla.registry.znodes import BrokerNode, TopicNode, decode_partition_state
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.registry.zookeeper_session import ZooKeeperSettings
from ottla.structs import NO_LEADER, Node

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
    found = {}
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
