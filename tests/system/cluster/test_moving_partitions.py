"""Replicas and leaders move as the tools say, and the tools print what Kafka's print."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from patient_tool import run_tool

from ottla import Admin, NewTopic, Producer
from ottla.clients.admin.descriptions import ConfigResource
from ottla.structs import TopicPartition
from ottla.testing import wait_until


@pytest.fixture
def tool(cluster):
    """Run a tool against the cluster to its end."""

    def run(name: str, *words: object) -> subprocess.CompletedProcess[str]:
        return run_tool(name, "--bootstrap-server", cluster.bootstrap_servers, *words)

    return run


@pytest.fixture
def ottla(tool):
    """Run a tool that succeeds; what it printed."""

    def run(name: str, *words: object) -> str:
        done = tool(name, *words)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    return run


@pytest.fixture
def fails(tool):
    """Run a tool that prints nothing but why it cannot do what was asked."""

    def run(name: str, *words: object) -> str:
        done = tool(name, *words)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    return run


@pytest.fixture
def write(tmp_path):
    """A file with this JSON."""

    def write_file(name: str, document: object):
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return path

    return write_file


def plan(topic: str, **replicas: list[int]) -> dict[str, object]:
    rows = [
        {"topic": topic, "partition": int(name[1:]), "replicas": each}
        for name, each in replicas.items()
    ]
    return {"version": 1, "partitions": rows}


def until_complete(ottla, path, partitions: int) -> str:
    """What --verify prints when all is done; it is asked again and again, as its users do."""
    printed = [""]

    def is_complete() -> bool:
        printed[0] = ottla("reassign-partitions", "--reassignment-json-file", path, "--verify")
        return printed[0].count("completed successfully") == partitions

    wait_until(is_complete, "the reassignment is complete", seen=lambda: printed[0])
    return printed[0]


def test_replication_factor_grows_and_partitions_move(cluster, ottla, write):
    """By a plan, with a throttle that is gone in the end; the way back is printed."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("moved", replica_assignment={0: [1], 1: [2]})])
        path = write("plan.json", plan("moved", p0=[1, 2, 3], p1=[3]))
        printed = ottla(
            "reassign-partitions", "--reassignment-json-file", path, "--execute",
            "--throttle", 50_000_000,
        )  # fmt: skip
        done = until_complete(ottla, path, 2)
        wait_until(
            lambda: replicas(admin, "moved") == [([1, 2, 3], [1, 2, 3]), ([3], [3])],
            "every broker knows where the partitions are now",
        )

    assert '{"topic":"moved","partition":1,"replicas":[2],"log_dirs":["any"]}' in printed
    assert printed.endswith(
        "The inter-broker throttle limit was set to 50000000 B/s\n"
        "Successfully started reassignment of partitions.\n"
    )
    assert done == (
        "Status of partition reassignment:\n"
        "Reassignment of partition moved-0 completed successfully\n"
        "Reassignment of partition moved-1 completed successfully\n"
        "Throttle was removed.\n"
    )
    assert ottla("reassign-partitions", "--list") == "No partition reassignments found.\n"


def replicas(admin: Admin, topic: str) -> list[tuple[list[int], list[int]]]:
    """All replicas of each partition, and those in sync, as some broker has heard."""
    partitions = admin.describe_topics([topic])[topic].partitions
    return [(each.replicas, sorted(each.isr)) for each in partitions]


def test_plan_for_other_brokers_is_generated(cluster, ottla, write):
    """As many replicas as before, on the brokers that were named."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("planned", replica_assignment={0: [1], 1: [1]})])
    path = write("topics.json", {"topics": [{"topic": "planned"}], "version": 1})
    printed = ottla(
        "reassign-partitions", "--topics-to-move-json-file", path, "--broker-list", "2,3",
        "--generate",
    ).splitlines()  # fmt: skip
    proposed = [row["replicas"] for row in json.loads(printed[4])["partitions"]]

    assert printed[0] == "Current partition replica assignment"
    assert [row["replicas"] for row in json.loads(printed[1])["partitions"]] == [[1], [1]]
    assert printed[3] == "Proposed partition reassignment configuration"
    assert sorted(proposed) == [[2], [3]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("leader-election", "--election-type", "preferred", "--topic", "led", "--partition", 0),
            r"Successfully completed leader election \(PREFERRED\) for partitions led-0\n",
        ),
        (
            ("preferred-replica-election",),
            r"Successfully completed preferred replica election for partitions .*\bled-0\b.*\n",
        ),
    ],
)
def test_preferred_leader_leads_again(cluster, ottla, write, words, said):
    """After its broker was away; where it leads already there is nothing to do."""
    with Admin(cluster.bootstrap_servers) as admin:
        if "led" not in admin.list_topics():
            admin.create_topics([NewTopic("led", replica_assignment={0: [1, 2, 3]})])
        ottla(*words)
        path = write("plan.json", plan("led", p0=[2, 1, 3]))
        ottla("reassign-partitions", "--reassignment-json-file", path, "--execute")
        until_complete(ottla, path, 1)
        printed = ottla(*words)
        wait_until(
            lambda: admin.describe_topics(["led"])["led"].partitions[0].leader == 2,
            "broker 2 leads",
        )
        path = write("back.json", plan("led", p0=[1, 2, 3]))
        ottla("reassign-partitions", "--reassignment-json-file", path, "--execute")
        until_complete(ottla, path, 1)

    assert re.fullmatch(said, printed)


def test_reassignment_is_taken_back(cluster, ottla, write):
    """A replica that may take only a little at a time is not in sync: the old one is kept.

    While it is under way the same command with another throttle changes the throttle alone.
    """
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics(
            [NewTopic("kept", replica_assignment={0: [1]}, configs={"min.insync.replicas": "1"})]
        )
        with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(3000):
                producer.send("kept", bytes(10_000))
        path = write("plan.json", plan("kept", p0=[1, 2]))
        words = ("reassign-partitions", "--reassignment-json-file", path)
        ottla(*words, "--execute", "--throttle", 1000)
        listed = ottla("reassign-partitions", "--list")
        faster = ottla(*words, "--execute", "--throttle", 2000)
        topic, broker = ConfigResource.topic("kept"), ConfigResource.broker(1)
        rate = "leader.replication.throttled.rate"
        wait_until(
            lambda: admin.describe_configs([broker])[broker][rate].value == "2000",
            "the broker has heard of the other throttle",
        )
        settings = admin.describe_configs([topic])
        verified = ottla(*words, "--verify")
        gone = write("gone.json", plan("gone", p0=[1]))
        other = ottla("reassign-partitions", "--reassignment-json-file", gone, "--verify")
        cancelled = ottla(*words, "--cancel")
        wait_until(
            lambda: (
                ottla(*words, "--cancel") == "None of the specified partition moves are active.\n"
            ),
            "all brokers have heard that the throttle is removed",
        )
        wait_until(lambda: replicas(admin, "kept") == [([1], [1])], "the old replica is left alone")
        under_way = admin.list_partition_reassignments([TopicPartition("kept", 0)])

    assert listed == "Current partition reassignments:\nkept-0: replicas: 1,2. adding: 2.\n"
    assert faster == (
        "There is an existing assignment running.\n"
        "The inter-broker throttle limit was set to 2000 B/s\n"
    )
    assert settings[topic]["follower.replication.throttled.replicas"].value == "0:2"
    assert "Reassignment of partition kept-0 is still in progress\n" in verified
    assert other == (
        "Status of partition reassignment:\nReassignment of partition gone-0 failed\n"
    ), "the throttle of what else is moved stays"
    assert cancelled == (
        "Successfully cancelled partition reassignments for: kept-0\nThrottle was removed.\n"
    )
    assert under_way == {}


def test_plan_for_a_broker_that_is_not_there_changes_nothing(cluster, fails, write):
    """Not even the throttle, which nobody would take away again."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("stays", replica_assignment={0: [1]})])
        path = write("plan.json", plan("stays", p0=[1, 9]))
        words = ("reassign-partitions", "--reassignment-json-file", path, "--execute")
        said = fails(*words, "--throttle", 1000)
        topic, broker = ConfigResource.topic("stays"), ConfigResource.broker(1)
        settings = admin.describe_configs([topic, broker])

    assert said == "ottla reassign-partitions: there are no brokers 9\n"
    assert settings[topic]["leader.replication.throttled.replicas"].is_default
    assert settings[broker]["leader.replication.throttled.rate"].is_default
