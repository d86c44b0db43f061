"""`--zookeeper`: which addresses a tool finds in the nodes of the brokers."""

from __future__ import annotations

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_brokers import registered_brokers
from ottla.registry.znodes import BrokerNode


def node(*end_points: str, **protocols: str) -> bytes:
    return BrokerNode(end_points, protocols, None, -1, 0).encode()


@pytest.fixture
def find(zookeeper_nodes):
    """The brokers that are found in these nodes."""

    def run(nodes, protocol="PLAINTEXT"):
        zookeeper_nodes.nodes |= nodes
        try:
            return registered_brokers("zk:2181/kafka", protocol, "WARN")
        finally:
            assert zookeeper_nodes.stopped

    return run


NODES = {
    "/brokers/ids/10": node("PLAINTEXT://c:3", PLAINTEXT="PLAINTEXT"),
    "/brokers/ids/9": node("OUT://b:9", "IN://b:2", OUT="SSL", IN="PLAINTEXT"),
    "/brokers/ids/11": None,
}


def test_listener_that_the_client_can_use_is_taken(find):
    """Whatever it is called; one whose broker has gone meanwhile is left out."""
    assert find(NODES) == "b:2,c:3"
    assert find(NODES, "SSL") == "b:9"


@pytest.mark.parametrize(
    ("nodes", "protocol", "said"),
    [
        ({}, "PLAINTEXT", "no brokers are registered in ZooKeeper at zk:2181/kafka"),
        (NODES, "SASL_SSL", "brokers 9, 10 .* no listener for security.protocol=SASL_SSL"),
        ({"/brokers/ids/1": b"?"}, "PLAINTEXT", "node of broker 1 is not readable"),
    ],
)
def test_cluster_that_cannot_be_asked_is_one_line(find, nodes, protocol, said):
    """It says where it was looked for."""
    with pytest.raises(CommandError, match=said):
        find(nodes, protocol)
