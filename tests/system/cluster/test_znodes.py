"""What a cluster leaves in ZooKeeper after its usual business, read back by a client of its own.

The layouts are those of Kafka 2.3 to 3.x: keys, versions, which nodes are ephemeral, which go.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

import pytest
from kazoo.client import KazooClient

from ottla import Admin, KafkaError, NewTopic, Producer
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.errors import ErrorCode
from ottla.testing import wait_until

LIMIT_S = 60.0


class Nodes:
    """The cluster's part of the tree."""

    def __init__(self, connect: str) -> None:
        self.client = KazooClient(connect)
        self.client.start(LIMIT_S)

    def json(self, path):
        return json.loads(self.client.get(path)[0])

    def text(self, path):
        return self.client.get(path)[0].decode()

    def names(self, path):
        return sorted(self.client.get_children(path))

    def is_ephemeral(self, path):
        return self.client.exists(path).ephemeralOwner != 0

    def write(self, path, value):
        """Ask as Kafka 2.3's tools do, and wait until it is done: the node goes."""
        self.client.create(path, json.dumps(value).encode())
        wait_until(lambda: self.client.exists(path) is None, f"{path} is done")


@pytest.fixture
def nodes(cluster):
    view = Nodes(cluster.zookeeper.connect + cluster.chroot)
    yield view
    view.client.stop()
    view.client.close()


@pytest.fixture
def admin(cluster):
    with Admin(cluster.bootstrap_servers) as client:
        yield client


def test_brokers_and_controller(cluster, nodes):
    """Live brokers are ephemeral nodes, and so is the controller."""
    # Whoever takes replicas in sync again notes it there, and the controller takes the note away.
    for empty in ("/isr_change_notification", "/log_dir_event_notification"):
        wait_until(lambda place=empty: nodes.names(place) == [], f"{empty} is empty")
    brokers = {
        int(name): nodes.json(f"/brokers/ids/{name}") for name in nodes.names("/brokers/ids")
    }
    controller = nodes.json("/controller")

    assert sorted(brokers) == [1, 2, 3]
    for broker_id, node in brokers.items():
        port = cluster.brokers[broker_id].port
        assert nodes.is_ephemeral(f"/brokers/ids/{broker_id}")
        assert node.pop("timestamp").isdecimal()
        assert node == {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
            "jmx_port": -1,
            "host": "127.0.0.1",
            "port": port,
            "version": 4,
        }
    assert nodes.is_ephemeral("/controller")
    assert controller.pop("timestamp").isdecimal()
    assert controller.pop("brokerid") in brokers
    assert controller == {"version": 1}
    assert int(nodes.text("/controller_epoch")) >= 1
    assert not nodes.is_ephemeral("/controller_epoch")
    for place in ("/brokers/seqid", "/brokers/topics", "/config/changes", "/admin"):
        assert nodes.client.get(place)[0] is None, place
    assert nodes.names("/admin") == ["delete_topics"]
    assert {"consumers", "cluster", "config"} <= set(nodes.names("/"))
    assert nodes.json("/cluster/id")["version"] == "1"


def test_topic_from_its_making_to_its_end(nodes, admin, unique):
    """Made, moved and led as nodes ask for it, altered, deleted; nothing is left."""
    topic = unique("noded")
    path, state_path = f"/brokers/topics/{topic}", f"/brokers/topics/{topic}/partitions/0/state"
    admin.create_topics(
        [NewTopic(topic, replica_assignment={0: [1, 2]}, configs={"flush.ms": "9"})]
    )
    made, state = nodes.json(path), nodes.json(state_path)
    settings = nodes.json(f"/config/topics/{topic}")
    row = {"topic": topic, "partition": 0}
    nodes.write(
        "/admin/reassign_partitions", {"version": 1, "partitions": [{**row, "replicas": [3, 1, 2]}]}
    )
    moved, moved_state = nodes.json(path), nodes.json(state_path)
    nodes.write("/admin/preferred_replica_election", {"version": 1, "partitions": [row]})
    elected_state = nodes.json(state_path)
    before = set(nodes.names("/config/changes"))
    resource = ConfigResource.topic(topic)
    admin.incremental_alter_configs({resource: [AlterConfigOp("flush.ms", "8", "SET")]})
    (change,) = set(nodes.names("/config/changes")) - before
    nodes.client.create(f"/admin/delete_topics/{topic}", b"")
    wait_until(lambda: topic not in nodes.names("/brokers/topics"), f"{topic} is gone")
    wait_until(lambda: nodes.names("/admin/delete_topics") == [], "its mark is gone")

    assert len(urlsafe_b64decode(made["topic_id"] + "==")) == 16
    assert made == {
        "version": 3,
        "topic_id": made["topic_id"],
        "partitions": {"0": [1, 2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert state == {
        "version": 1,
        "controller_epoch": int(nodes.text("/controller_epoch")),
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1, 2],
    }
    assert settings == {"version": 1, "config": {"flush.ms": "9"}}
    assert moved == {**made, "partitions": {"0": [3, 1, 2]}}
    assert (moved_state["leader"], sorted(moved_state["isr"])) == (1, [1, 2, 3])
    assert elected_state == {
        **moved_state,
        "leader": 3,
        "leader_epoch": moved_state["leader_epoch"] + 1,
    }
    assert change.startswith("config_change_00000")
    assert nodes.json(f"/config/changes/{change}") == {
        "version": 2,
        "entity_path": f"topics/{topic}",
    }
    assert topic not in nodes.names("/config/topics")


def test_tools_that_write_nodes_are_heard(nodes, admin, unique):
    """A topic, settings and more partitions, as Kafka 2.3's tools with --zookeeper write them."""
    topic = unique("written")
    path, settings = f"/brokers/topics/{topic}", f"/config/topics/{topic}"
    nodes.client.create(settings, b'{"version":1,"config":{"flush.ms":"5"}}')
    nodes.client.create(path, b'{"version":1,"partitions":{"0":[2,3]}}')
    wait_until(lambda: leaders(admin, topic) == {0: 2}, "it is led")
    nodes.client.set(path, b'{"version":1,"partitions":{"0":[2,3],"1":[3,1]}}')
    wait_until(lambda: leaders(admin, topic) == {0: 2, 1: 3}, "its second partition is led")
    wait_until(lambda: "topic_id" in nodes.json(path), "it has an id")
    nodes.client.set(settings, b'{"version":1,"config":{"flush.ms":"6"}}')
    change = json.dumps({"version": 2, "entity_path": f"topics/{topic}"}).encode()
    nodes.client.create("/config/changes/config_change_", change, sequence=True)
    resource = ConfigResource.topic(topic)

    def flush_ms():
        return admin.describe_configs([resource])[resource]["flush.ms"].value

    wait_until(lambda: flush_ms() == "6", "its settings are in force")


def leaders(admin, topic):
    """None while the broker that was asked has not heard of the topic."""
    try:
        partitions = admin.describe_topics([topic])[topic].partitions
    except KafkaError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}
    return {each.partition: each.leader for each in partitions}


def test_settings_of_brokers_and_ids_of_producers(cluster, nodes, admin, unique):
    """One broker's, those of all, and the block that ids are taken from."""
    one, every = ConfigResource.broker(2), ConfigResource.broker("")
    key = "leader.replication.throttled.rate"
    admin.incremental_alter_configs({one: [AlterConfigOp(key, "5000000", "SET")]})
    admin.incremental_alter_configs({every: [AlterConfigOp("log.flush.interval.ms", "9", "SET")]})
    written = [nodes.json(f"/config/brokers/{name}") for name in ("2", "<default>")]
    described = admin.describe_configs([ConfigResource.broker(each) for each in (1, 2, 3)])
    admin.incremental_alter_configs({one: [AlterConfigOp(key, None, "DELETE")]})
    admin.incremental_alter_configs(
        {every: [AlterConfigOp("log.flush.interval.ms", None, "DELETE")]}
    )
    topic = unique("numbered")
    admin.create_topics([NewTopic(topic, 1, 1, configs={"min.insync.replicas": "1"})])
    with Producer(cluster.bootstrap_servers, {"enable.idempotence": "true"}) as producer:
        producer.send(topic, b"x").result(LIMIT_S)
    block = nodes.json("/latest_producer_id_block")

    assert written == [
        {"version": 1, "config": {key: "5000000"}},
        {"version": 1, "config": {"log.flush.interval.ms": "9"}},
    ]
    ids = {resource.name: entries["broker.id"].value for resource, entries in described.items()}
    assert ids == {"1": "1", "2": "2", "3": "3"}
    assert set(admin.describe_log_dirs([1, 2, 3])) == {1, 2, 3}
    assert (block["version"], block["broker"] in (1, 2, 3)) == (1, True)
    assert int(block["block_end"]) - int(block["block_start"]) == 999
