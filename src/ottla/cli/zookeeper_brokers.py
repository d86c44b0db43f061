"""The brokers that are registered in ZooKeeper, as commands with `--zookeeper` find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_session import child_names, node_data, session
from ottla.registry import paths
from ottla.registry.znodes import BrokerNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient


def registered_brokers(text: str, security_protocol: str, log_level: str) -> str:
    """The addresses of the live brokers' listeners that speak the protocol, as host:port,..."""
    with session(text, log_level) as client:
        nodes = dict(_broker_nodes(client))
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


def _broker_nodes(client: KazooClient) -> Iterator[tuple[int, BrokerNode]]:
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
