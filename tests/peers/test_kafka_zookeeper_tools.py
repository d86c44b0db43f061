"""The tools of Kafka 2.3, which speak to ZooKeeper themselves, work on Ottla's nodes."""

from __future__ import annotations

import json
import re

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_tools import KafkaTools

from ottla.testing import wait_until

COUNT = 40


@pytest.fixture(scope="module")
def old_tools():
    return KafkaTools("2.3", kafka_jars("2.3"))


@pytest.fixture
def kafka(old_tools, cluster):
    """Runs a tool with --zookeeper; what it printed."""
    connect = ("--zookeeper", cluster.zookeeper.connect + cluster.chroot)

    def run(tool, *arguments, **options):
        return old_tools.run(tool, *connect, *map(str, arguments), **options)

    return run


@pytest.fixture
def topic(unique):
    return unique("by-old-tools")


@pytest.fixture
def write(tmp_path):
    """Writes a file of JSON; its path."""

    def write_file(document):
        path = tmp_path / "file.json"
        path.write_text(json.dumps(document))
        return path

    return write_file


def described(kafka, topic, *filters):
    """Leader, replicas and in-sync replicas by partition."""
    shown = kafka("topics", "--describe", "--topic", topic, *filters)
    row = r"\tTopic: \S+\tPartition: (\d+)\tLeader: (\w+)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)"
    return {
        int(partition): (leader, replicas, ",".join(sorted(isr.split(","))))
        for partition, leader, replicas, isr in re.findall(row, shown)
    }


def test_topics_are_made_described_altered_and_deleted(kafka, cluster, view, topic):
    """The controller sees what the tool writes, and the tool what the controller writes."""
    named = ("--topic", topic)
    settings = ("--config", "max.message.bytes=64000")
    made = kafka(
        "topics", "--create", *named, "--replica-assignment", "1:2:3,2:3:1", *settings
    )  # fmt: skip
    wait_until(lambda: view.leaders(topic) == {0: 1, 1: 2}, "the new topic is led")
    whole = described(kafka, topic)
    head = kafka("topics", "--describe", *named).splitlines()[0]
    kafka("topics", "--alter", *named, "--partitions", 4)
    wait_until(lambda: len(view.leaders(topic)) == 4, "the topic has grown")
    cluster.kill_broker(1)
    wait_until(lambda: view.leaders(topic)[0] == 2, "another leads")
    lacking = described(kafka, topic, "--under-replicated-partitions")
    cluster.start_broker(1)
    listed = kafka("topics", "--list")
    deleted = kafka("topics", "--delete", *named)
    wait_until(lambda: topic not in kafka("topics", "--list").split(), "the topic is gone")

    assert f"Created topic {topic}." in made
    assert head == (
        f"Topic:{topic}\tPartitionCount:2\tReplicationFactor:3\tConfigs:max.message.bytes=64000"
    )
    assert whole == {0: ("1", "1,2,3", "1,2,3"), 1: ("2", "2,3,1", "1,2,3")}
    assert lacking[0] == ("2", "1,2,3", "2,3")
    assert topic in listed.split()
    assert f"Topic {topic} is marked for deletion." in deleted


def test_settings_are_altered(kafka, cluster, view, topic):
    """By change notifications: the brokers follow."""
    view.create(topic, 1)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    altered = kafka("configs", *entity, "--alter", "--add-config", "max.message.bytes=300")
    shown = kafka("configs", *entity, "--describe")
    client = KafkaTools("4.1", kafka_jars("4.1"))
    servers = ("--bootstrap-server", cluster.bootstrap_servers)

    def follows() -> bool:
        return "max.message.bytes=300" in client.run("configs", *servers, *entity, "--describe")

    wait_until(follows, "the brokers have the setting")
    kafka("configs", *entity, "--alter", "--delete-config", "max.message.bytes")

    assert f"Completed Updating config for entity: topic '{topic}'." in altered
    assert f"Configs for topic '{topic}' are max.message.bytes=300" in shown
    assert kafka("configs", *entity, "--describe") == f"Configs for topic '{topic}' are \n"


def test_partitions_move_with_a_throttle(kafka, cluster, view, topic, write):
    """Generate, execute, verify: the controller does the work, the tool drops the throttle."""
    view.create(topic, 1, replicas=3)
    path = write({"topics": [{"topic": topic}], "version": 1})
    chosen = ("--topics-to-move-json-file", path, "--broker-list", "1,2,3", "--generate")
    generated = kafka("reassign-partitions", *chosen).splitlines()
    row = {"topic": topic, "partition": 0, "replicas": [3, 1]}
    plan = write({"version": 1, "partitions": [row]})
    words = ("reassign-partitions", "--reassignment-json-file", plan)
    executed = kafka(*words, "--execute", "--throttle", 50_000_000)
    verified = [kafka(*words, "--verify")]

    def is_done() -> bool:
        verified.append(kafka(*words, "--verify"))
        return "completed successfully" in verified[-1]

    wait_until(is_done, "the partition has moved")

    assert json.loads(generated[1])["partitions"][0]["topic"] == topic
    assert len(json.loads(generated[4])["partitions"][0]["replicas"]) == 3
    assert "The inter-broker throttle limit was set to 50000000 B/s" in executed
    assert "Successfully started reassignment of partitions." in executed
    assert "Throttle was removed." in "".join(verified)
    assert described(kafka, topic)[0][1:] == ("3,1", "1,3")
    assert "throttled" not in kafka("configs", "--describe", "--entity-type", "brokers")


def test_preferred_leaders_are_elected(kafka, cluster, view, topic, write):
    """The tool writes the node, the controller elects and takes it away."""
    view.create(topic, 3)
    preferred = {number: replicas[0] for number, replicas in replicas_of(kafka, topic).items()}
    cluster.stop_broker(1)
    cluster.start_broker(1)
    view.until_all_in_sync(topic, [1, 2, 3])
    path = write({"partitions": [{"topic": topic, "partition": each} for each in range(3)]})
    printed = kafka("preferred-replica-election", "--path-to-json-file", path)
    wait_until(lambda: view.leaders(topic) == preferred, "the preferred replicas lead")

    assert "Successfully started preferred replica election for partitions" in printed


def replicas_of(kafka, topic):
    return {
        number: list(map(int, replicas.split(",")))
        for number, (_, replicas, _) in described(kafka, topic).items()
    }


def test_zookeeper_shell_shows_the_nodes(old_tools, cluster, view, topic):
    """The shell of ZooKeeper 3.4, which Kafka 2.3 brings along."""
    view.create(topic, 1)

    def shell(*words):
        server = ("-server", cluster.zookeeper.connect + cluster.chroot)
        return old_tools.run("zookeeper-shell", *server, *words).splitlines()

    assert "[1, 2, 3]" in shell("ls", "/brokers/ids")
    (controller,) = [line for line in shell("get", "/controller") if line.startswith("{")]
    assert json.loads(controller)["brokerid"] in (1, 2, 3)
    state = shell("get", f"/brokers/topics/{topic}/partitions/0/state")
    (found,) = [json.loads(line) for line in state if line.startswith("{")]
    assert sorted(found["isr"]) == [1, 2, 3]


def test_old_console_clients_read_and_write(old_tools, cluster, view, topic):
    """The clients of 2.3, in a group, with what the brokers of today may answer."""
    view.create(topic, 3)
    servers = cluster.bootstrap_servers
    lines = "".join(f"value {n:04d}\n" for n in range(COUNT))
    acks = ("--request-required-acks", "-1")
    old_tools.run(
        "console-producer", "--broker-list", servers, "--topic", topic, *acks, stdin=lines
    )
    reading = ("--topic", topic, "--from-beginning", "--group", topic)
    limits = ("--max-messages", str(COUNT), "--timeout-ms", "30000")
    read = old_tools.run("console-consumer", "--bootstrap-server", servers, *reading, *limits)
    group = old_tools.run(
        "consumer-groups", "--bootstrap-server", servers, "--describe", "--group", topic
    )

    assert sorted(read.splitlines()) == lines.splitlines()
    rows = [line.split() for line in group.splitlines() if line.split()[:2] == [topic, topic]]
    assert [row[3] for row in rows] == [row[4] for row in rows]
    assert sum(int(row[3]) for row in rows) == COUNT
