"""Finds the brokers that are registered in ZooKeeper, for tools that are given --zookeeper.

Kafka's tools of that time wrote into ZooKeeper what the controller should do. Today the brokers
change topics, settings and replicas, with the same outcome and with an answer, so the brokers are
found in ZooKeeper and asked. What those tools only read, and preferred elections, need no broker
here either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_session import child_names, node_data, session

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ottla.registry.znodes import BrokerNode


def registered_brokers(text: str, security_protocol: str, log_level: str) -> str:
    """The addresses of the live brokers' listeners that speak the protocol, as host:port,..."""
    with session(text, log_level) as client:
        nodes = dict(_nodes(client))
    if not nodes:
        raise CommandError(f"no brokers are registered in ZooKeeper at {text}")
    found = [
        listener for node in nodes.values() if (listener := _listener(node, security_protocol))
    ]
    if not found:
        raise CommandError(
            f"the brokers {', '.join(map(str, nodes))} registered in ZooKeeper at {text} have no "
            f"listener for security.protocol={security_protocol}"
        )
    return ",".join(found)


def _nodes(client: KazooClient) -> Iterator[tuple[int, BrokerNode]]:
    from ottla.registry import paths
    from ottla.registry.znodes import BrokerNode

    for broker_id in sorted(map(int, child_names(client, paths.BROKER_IDS))):
        data = node_data(client, paths.broker(broker_id))
        if data is not None:  # else the node was deleted between the two calls
            yield broker_id, BrokerNode.decode(broker_id, data)


def _listener(node: BrokerNode, security_protocol: str) -> str | None:
    for end_point in node.endpoints:
        name, _, host_and_port = end_point.partition("://")
        if node.protocols.get(name, name) == security_protocol:
            return host_and_port
    return None
