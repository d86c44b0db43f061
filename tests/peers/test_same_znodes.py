"""What a cluster of Ottla leaves in ZooKeeper is what a cluster of Kafka 2.3.1 leaves there.

Both clusters get the same business from Kafka's own tools, which write nodes as well; then all of
their nodes are read back: paths, which go with a session, JSON with its keys in order, and values.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from same_words import zookeeper_of

LIMIT_SECONDS = 60.0

TOPICS_OF_OTHERS = re.compile(r"/(brokers|config)/topics/(?!zn)|/admin/delete_topics/.")
"""What the other tests have left, who share the clusters."""
CHANGES = "/config/changes/"

OURS = {"/config/groups", "/config/ips"}
"""Groups have settings since Kafka 4.0 (KIP-848), addresses since 2.7 (KIP-612)."""
WHEN_ASKED_FOR = {"/latest_producer_id_block"}
"""Kafka's brokers take a block of ids when they start, Ottla's when there is a producer."""

MOMENTARY = re.compile(
    r'"(timestamp)":"\d+"|"(brokerid|leader_epoch|controller_epoch)":\d+|"(id)":"[^"]+"|^\d+$'
)


class Node(NamedTuple):
    """A node without what differs from cluster to cluster."""

    text: str | None
    is_ephemeral: bool


def nodes_of(cluster):
    """All nodes of a cluster by their paths."""
    client = KazooClient(zookeeper_of(cluster))
    client.start(LIMIT_SECONDS)
    ports = [server.rpartition(":")[2] for server in cluster.bootstrap_servers.split(",")]
    found = {}

    def read(path):
        data, stat = client.get(path)
        found[path] = Node(data and normal(data.decode(), ports), stat.ephemeralOwner != 0)
        for name in client.get_children(path):
            read(f"{path.rstrip('/')}/{name}")

    try:
        read("/")
    finally:
        client.stop()
        client.close()
    return {path: node for path, node in found.items() if not TOPICS_OF_OTHERS.match(path)}


def normal(text, ports):
    """Times, ports, ids, epochs and controllers vary; in-sync replicas are a set."""
    for number, port in enumerate(ports, 1):
        text = re.sub(rf"\b{port}\b", f"PORT{number}", text)
    text = MOMENTARY.sub(lambda match: f'"{"".join(filter(None, match.groups()))}":MOMENT', text)
    isr = re.search(r'"isr":\[([\d,]*)\]', text)
    return text.replace(isr[1], ",".join(sorted(isr[1].split(",")))) if isr else text


@pytest.fixture(scope="module")
def both(pair, tmp_path_factory):
    """The nodes of Kafka and of Ottla after the same business."""
    folder = tmp_path_factory.mktemp("plans")

    def write(name, partitions):
        path = folder / name
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return path

    row = {"topic": "zn1", "partition": 0}
    plan = write("plan.json", [{**row, "replicas": [3, 1]}])
    chosen = write("chosen.json", [row])
    rate = "leader.replication.throttled.rate"
    pair.with_the_tools_of_kafka(
        "topics --create --topic zn1 --replica-assignment 1:2,2:3 --config flush.ms=9",
        "topics --create --topic zn2 --replica-assignment 1:2:3",
        "topics --create --topic zn3 --replica-assignment 3:2",
        "configs --alter --entity-type topics --entity-name zn1 --add-config flush.messages=8",
        f"configs --alter --entity-type brokers --entity-name 2 --add-config {rate}=10000",
        f"configs --alter --entity-type brokers --entity-name 2 --delete-config {rate}",
        f"reassign-partitions --execute --throttle 90000000 --reassignment-json-file {plan}",
    )
    verify = f"reassign-partitions --zookeeper ZK --reassignment-json-file {plan} --verify"
    pair.same(verify)
    pair.same("topics --zookeeper ZK --describe --topic zn.")
    pair.with_the_tools_of_kafka(
        f"preferred-replica-election --path-to-json-file {chosen}",
        "topics --alter --topic zn2 --partitions 2 --replica-assignment 1:2:3,3:1:2",
        "topics --delete --topic zn3",
    )
    for cluster in pair.clusters:
        cluster.stop_broker(2)
    pair.same("topics --zookeeper ZK --describe --topic zn.")
    away = [nodes_of(cluster) for cluster in pair.clusters]
    for cluster in pair.clusters:
        cluster.start_broker(2)
    pair.same("topics --zookeeper ZK --describe --topic zn.")
    return away, [nodes_of(cluster) for cluster in pair.clusters]


@pytest.mark.parametrize("moment", [0, 1], ids=["a broker is away", "all brokers live"])
def test_nodes_are_those_of_kafka(both, moment):
    """The same paths, and the same kind of nodes."""
    kafka, ottla = (
        {path for path in nodes if not path.startswith(CHANGES)} for nodes in both[moment]
    )

    assert ottla - kafka - WHEN_ASKED_FOR == OURS
    assert kafka - ottla - WHEN_ASKED_FOR == set()
    assert {"/config/topics/zn2", "/brokers/topics/zn1/partitions/1/state"} < ottla & kafka
    ephemeral = {path for path in both[moment][1] if both[moment][1][path].is_ephemeral}
    assert ephemeral == {path for path in both[moment][0] if both[moment][0][path].is_ephemeral}


@pytest.mark.parametrize("moment", [0, 1], ids=["a broker is away", "all brokers live"])
def test_data_are_those_of_kafka(both, moment):
    """Text for text, with the keys in their order; topics have the keys of Kafka 2.8, too."""
    kafka, ottla = both[moment]
    common = {path for path in kafka.keys() & ottla.keys() if not path.startswith(CHANGES)}
    topics = {path for path in common if re.fullmatch(r"/brokers/topics/zn\d", path)}
    assert {path: ottla[path].text for path in common - topics} == {
        path: kafka[path].text for path in common - topics
    }
    assert topics == {"/brokers/topics/zn1", "/brokers/topics/zn2"}
    for path in topics:
        old, new = json.loads(kafka[path].text), json.loads(ottla[path].text)
        assert new["partitions"] == old["partitions"]
        assert list(new) == [
            "removing_replicas", "partitions", "topic_id", "adding_replicas", "version"
        ]  # fmt: skip


def test_changes_of_settings_are_told_as_by_kafka(both):
    """By numbered nodes; the tools write some of them, the brokers others."""
    for nodes in both[1]:
        told = {path: node for path, node in nodes.items() if path.startswith(CHANGES)}
        assert told
        for path, node in told.items():
            assert re.fullmatch(r"/config/changes/config_change_\d{10}", path)
            assert re.fullmatch(
                r'\{"version":2,"entity_path":"(topics|brokers)/[^"]+"\}', node.text
            )
