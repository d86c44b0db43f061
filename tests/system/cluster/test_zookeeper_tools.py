"""The tools of Kafka 2.3 that are told only where ZooKeeper is, as article 3 has them."""

from __future__ import annotations

import json
import re

import pytest
from patient_tool import run_tool

from ottla.testing import wait_until


@pytest.fixture
def ottla(cluster):
    """Run a tool with --zookeeper to its end; what it printed."""
    connect = cluster.zookeeper.connect + cluster.chroot

    def run(name: str, *words: object) -> str:
        done = run_tool(name, "--zookeeper", connect, *words)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    return run


def test_topics_and_their_settings(cluster, ottla, unique):
    """Created, described, altered, listed and deleted, with the chroot of the cluster."""
    topic = unique("by-zookeeper")
    named = ("--topic", topic)
    created = ottla(
        "topics", "--create", "--replication-factor", 3, "--partitions", 1, *named,
        "--config", "max.message.bytes=64000",
    )  # fmt: skip
    described = ottla("topics", "--describe", *named)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    altered = ottla(
        "configs", *entity, "--alter", "--add-config", "max.message.bytes=128000,flush.messages=9"
    )
    settings = ottla("configs", *entity, "--describe")
    altered_topic = ottla("topics", "--alter", "--partitions", 2, *named)
    listed = ottla("topics", "--list")
    deleted = ottla("topics", "--delete", *named)

    assert created == f"Created topic {topic}.\n"
    assert re.fullmatch(
        rf"Topic:{topic}\tPartitionCount:1\tReplicationFactor:3\t"
        r"Configs:max.message.bytes=64000\n"
        rf"\tTopic: {topic}\tPartition: 0\tLeader: [123]\tReplicas: ([123],?){{3}}\tIsr: [123,]+\n",
        described,
    )
    assert altered == f"Completed Updating config for entity: topic '{topic}'.\n"
    assert (
        settings == f"Configs for topic '{topic}' are max.message.bytes=128000,flush.messages=9\n"
    )
    assert altered_topic == (
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or "
        "ordering of the messages will be affected\nAdding partitions succeeded!\n"
    )
    assert topic in listed.splitlines()
    assert deleted == (
        f"Topic {topic} is marked for deletion.\n"
        "Note: This will have no impact if delete.topic.enable is not set to true.\n"
    )
    wait_until(
        lambda: topic not in ottla("topics", "--list").splitlines(), "all know that it is gone"
    )


def test_partition_moves_with_a_throttle_that_is_seen_and_dropped(cluster, ottla, unique, tmp_path):
    """Generate, execute, look at the throttle, verify; then the preferred leader is elected."""
    topic = unique("moved-by-zookeeper")
    ottla("topics", "--create", "--replica-assignment", "1:2", "--topic", topic)
    topics = tmp_path / "topics-to-move.json"
    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    words = ("--topics-to-move-json-file", topics, "--broker-list", "2,3", "--generate")
    generated = ottla("reassign-partitions", *words).splitlines()
    plan = tmp_path / "expand-cluster-reassignment.json"
    row = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    words = ("reassign-partitions", "--reassignment-json-file", plan)
    both = ("--bootstrap-server", cluster.bootstrap_servers)  # Kafka 2.3 wants it for log dirs
    executed = ottla(*words, *both, "--execute", "--throttle", 50_000_000)
    brokers = ottla("configs", "--describe", "--entity-type", "brokers")
    throttled = ottla("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    verified = ""

    def is_done() -> bool:
        nonlocal verified
        verified = ottla(*words, "--verify")
        return "still in progress" not in verified

    wait_until(is_done, "the partition has moved")
    elected = ottla("preferred-replica-election")
    led_by_3 = f"\tTopic: {topic}\tPartition: 0\tLeader: 3\tReplicas: 3,2\tIsr: "
    wait_until(lambda: led_by_3 in ottla("topics", "--describe", "--topic", topic), "3 leads")

    assert generated[0] == "Current partition replica assignment"
    assert json.loads(generated[1])["partitions"][0]["replicas"] == [1, 2]
    assert generated[3] == "Proposed partition reassignment configuration"
    assert sorted(json.loads(generated[4])["partitions"][0]["replicas"]) == [2, 3]
    assert "Save this to use as the --reassignment-json-file option during rollback" in executed
    assert executed.endswith("Successfully started reassignment of partitions.\n")
    rate = "leader.replication.throttled.rate=50000000,follower.replication.throttled.rate=50000000"
    # The node of the default brokers is there once anybody has set something for all of them.
    assert [line for line in brokers.splitlines() if not line.endswith(" are ")] == [
        f"Configs for brokers '{each}' are {rate}" for each in (1, 2, 3)
    ]
    assert throttled == (
        f"Configs for topic '{topic}' are leader.replication.throttled.replicas=0:1,0:2,"
        "follower.replication.throttled.replicas=0:3\n"
    )
    assert verified == (
        "Status of partition reassignment:\n"
        f"Reassignment of partition {topic}-0 completed successfully\n"
        "Throttle was removed.\n"
    )
    assert f"{topic}-0" in elected.splitlines()[2]
    assert elected.splitlines()[3].startswith(
        "Successfully started preferred replica election for partitions Set("
    )
    brokers = ottla("configs", "--describe", "--entity-type", "brokers").splitlines()
    assert [line for line in brokers if not line.endswith(" are ")] == []
