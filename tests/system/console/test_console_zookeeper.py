"""The tree of a ZooKeeper that the console asks itself, as one of Apache Kafka's brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from visitor import Visitor, visit

from ottla.console import zookeeper_node
from ottla.testing.in_process_broker import InProcessBroker
from ottla.testing.processes import ZooKeeperProcess

SECRET = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==,stored_key=a2V5"}}'
NODES = {
    "/foreign/brokers/ids/1": b'{"host":"kafka-1","port":9092,"version":5}',
    "/foreign/config/users/ann": SECRET,
    "/foreign/large": b"x" * 900_000,
    "/foreign/empty": b"",
    "/foreign/odd": b"\xff<script>\0",
}


@pytest.fixture(scope="module")
def foreign(zookeeper: ZooKeeperProcess) -> Iterator[str]:
    """The address of a tree that no broker of Ottla has made."""
    client = KazooClient(zookeeper.connect)
    client.start()
    client.add_auth("digest", "kafka:secret")
    for path, data in NODES.items():
        client.create(path, data, makepath=True)
    own = [make_digest_acl("kafka", "secret", all=True)]
    client.create("/foreign/locked", b"secret", acl=own)
    for number in range(1_200):
        client.create(f"/foreign/brokers/topics/t{number:04}", b"{}", makepath=True)
    yield f"{zookeeper.connect}/foreign"
    client.delete("/foreign", recursive=True)
    client.stop()
    client.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Brokers; the tree is not theirs."""
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


def node(answer) -> dict:
    """What the JSON twin says of the node."""
    return answer.json["node"]


def test_foreign_tree_is_walked(foreign, servers):
    """From its chroot, in windows of a bounded size; nothing of it is markup."""

    async def walk(visitor: Visitor) -> None:
        root = (await visitor.get("/registry.json")).json
        names = [each["name"] for each in root["children"]]
        assert names == ["brokers", "config", "empty", "large", "locked", "odd"]
        found = node(await visitor.get("/registry.json?path=/brokers/ids/1"))
        assert json.loads(found["data"])["host"] == "kafka-1"
        assert (found["version"], found["is_ephemeral"]) == (0, False)
        assert found["created_ms"] > 0
        topics = (await visitor.get("/registry.json?path=/brokers/topics")).json
        assert (len(topics["children"]), topics["node"]["number_of_children"]) == (1_000, 1_200)
        large = node(await visitor.get("/registry.json?path=/large"))
        assert (len(large["data"]), large["data_length"]) == (64 * 1024, 900_000)
        assert "It has no data." in (await visitor.get("/registry?path=/empty")).text
        assert "<script>\0" not in (await visitor.get("/registry?path=/odd")).text
        assert (await visitor.get("/registry?path=/nothing")).status == 404

    visit(servers, walk, zookeeper=foreign)


def test_secrets_of_a_foreign_tree_are_hidden(foreign, servers):
    """Also where the console was not told below which node Kafka has its own."""

    async def walk(visitor: Visitor) -> None:
        whole = await visitor.get("/registry.json?path=/foreign/config/users/ann")
        assert json.loads(node(whole)["data"])["config"] == {"SCRAM-SHA-256": "[hidden]"}
        locked = await visitor.get("/registry.json?path=/foreign/locked")
        assert locked.status == 403
        assert "ACLs of ZooKeeper" in locked.json["error"]

    visit(servers, walk, zookeeper=foreign.partition("/")[0])


def test_chroot_that_is_not_there_is_not_made(foreign, servers, zookeeper):
    """The console only looks."""

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get("/registry")).status == 404

    visit(servers, walk, zookeeper=f"{zookeeper.connect}/misspelt")
    client = KazooClient(zookeeper.connect)
    client.start()
    assert client.exists("/misspelt") is None
    client.stop()
    client.close()


def test_node_with_too_much_is_counted_alone(foreign, servers, monkeypatch):
    """Its data and the names below it are not asked for: each comes as one answer."""
    monkeypatch.setattr(zookeeper_node, "MOST_LISTED", 100)
    monkeypatch.setattr(zookeeper_node, "LARGEST_DATA", 100_000)

    async def walk(visitor: Visitor) -> None:
        topics = (await visitor.get("/registry.json?path=/brokers/topics")).json
        assert (topics["children"], topics["node"]["number_of_children"]) == ([], 1_200)
        page = (await visitor.get("/registry?path=/brokers/topics")).text
        assert "1,200 nodes below it: too many to list" in page
        large = node(await visitor.get("/registry.json?path=/large"))
        assert large["data"] == "[900000 bytes]"

    visit(servers, walk, zookeeper=foreign)
