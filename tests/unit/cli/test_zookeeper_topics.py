"""`ottla topics --zookeeper` prints what Kafka 2.3's tool prints that reads and marks nodes.

The lines were compared with those of Kafka 2.3.1 (tests/peers/test_same_words.py).
"""

import pytest

from ottla.clients.admin.descriptions import TopicPartitionInfo


def state(leader: int, isr: str) -> bytes:
    text = '{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":0,"isr":[%s]}'
    return (text % (leader, isr)).encode()


@pytest.fixture
def nodes(zookeeper_nodes):
    """One topic is well, one has nobody who leads or has not begun, and one is to be deleted."""
    topics = "/brokers/topics"
    zookeeper_nodes.nodes |= {
        f"{topics}/well": b'{"version":1,"partitions":{"0":[0]}}',
        f"{topics}/well/partitions/0/state": state(0, "0"),
        "/config/topics/well": b'{"version":1,"config":{}}',
        f"{topics}/ill": b'{"version":1,"partitions":{"1":[1],"0":[0,1],"2":[1]}}',
        f"{topics}/ill/partitions/0/state": state(0, "0"),
        f"{topics}/ill/partitions/1/state": state(-1, "1"),
        "/config/topics/ill": b'{"version":1,"config":{"flush.messages":"7","flush.ms":"9"}}',
        f"{topics}/going": b'{"version":1,"partitions":{"0":[1,0]}}',
        f"{topics}/going/partitions/0/state": state(-1, "0"),
        "/admin/delete_topics/going": b"",
    }
    return zookeeper_nodes


def test_list_tells_which_topics_wait_for_their_deletion(old_tool, nodes):
    """Brokers do not know them any more, and a broker that has a part of them is away."""
    assert old_tool("topics", "--list").lines == ["going - marked for deletion", "ill", "well"]


def test_describe_shows_the_nodes_of_topics(old_tool, nodes):
    """Only settings of their own; the leader -1 is nobody, and none is not known yet."""
    outcome = old_tool("topics", "--describe")

    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == (
        "Topic:going\tPartitionCount:1\tReplicationFactor:2\tConfigs:\tMarkedForDeletion:true\n"
        "\tTopic: going\tPartition: 0\tLeader: -1\tReplicas: 1,0\tIsr: 0\n"
        "Topic:ill\tPartitionCount:3\tReplicationFactor:2\tConfigs:flush.messages=7,flush.ms=9\n"
        "\tTopic: ill\tPartition: 0\tLeader: 0\tReplicas: 0,1\tIsr: 0\n"
        "\tTopic: ill\tPartition: 1\tLeader: -1\tReplicas: 1\tIsr: 1\n"
        "\tTopic: ill\tPartition: 2\tLeader: none\tReplicas: 1\tIsr: \n"
        "Topic:well\tPartitionCount:1\tReplicationFactor:1\tConfigs:\n"
        "\tTopic: well\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\n"
    )


@pytest.mark.parametrize(
    ("report", "lines"),
    [
        ("--under-replicated-partitions", ["ill 0", "ill 2"]),
        ("--unavailable-partitions", ["ill 1", "ill 2"]),
    ],
)
def test_reports_are_made_from_the_nodes(old_tool, nodes, report, lines):
    """The brokers that live are those registered."""
    printed = old_tool("topics", "--describe", "--topic", "ill|well", report).lines

    rows = [line.split("\t")[1:3] for line in printed]
    assert [f"{topic.split()[1]} {number.split()[1]}" for topic, number in rows] == lines


def test_reports_tell_of_the_deletion_by_partition(old_tool, nodes):
    """There is no line of the topic in them that says it."""
    assert old_tool("topics", "--describe", "--topic", "going", "--unavailable-partitions").out == (
        "\tTopic: going\tPartition: 0\tLeader: -1\tReplicas: 1,0\tIsr: 0\tMarkedForDeletion: true\n"
    )


def test_topics_with_overrides_are_those_with_settings_of_their_own(old_tool, nodes):
    """Settings with which the brokers are started do not count."""
    assert old_tool("topics", "--describe", "--topics-with-overrides").lines == [
        "Topic:ill\tPartitionCount:3\tReplicationFactor:2\tConfigs:flush.messages=7,flush.ms=9"
    ]


def test_reports_of_min_isr_need_brokers(old_tool, nodes):
    """ZooKeeper does not know what the brokers are started with."""
    outcome = old_tool("topics", "--describe", "--at-min-isr-partitions")

    assert "--at-min-isr-partitions cannot be used with option --zookeeper" in outcome.err


def test_topics_are_read_where_no_broker_lives(old_tool, nodes):
    """Topics are read from the nodes, and missing ones are one line."""
    del nodes.nodes["/brokers/ids/0"]

    assert old_tool("topics", "--list", "--topic", "well").lines == ["well"]
    missing = old_tool("topics", "--describe", "--topic", "none")
    assert (missing.status, missing.err) == (1, "ottla topics: topic 'none' does not exist\n")


def test_delete_says_that_topics_are_marked(old_tool, nodes, admin):
    """Once: the second time there is nothing left to do."""
    deleted = old_tool("topics", "--delete", "--topic", "well")
    again = old_tool("topics", "--delete", "--topic", "going")
    nothing = old_tool("topics", "--delete", "--topic", "none", "--if-exists")

    assert deleted.out == (
        "Topic well is marked for deletion.\n"
        "Note: This will have no impact if delete.topic.enable is not set to true.\n"
    )
    assert again.out == "Topic going is already marked for deletion.\n"
    assert (nothing.status, nothing.out) == (0, "")
    assert admin.changes == [("delete_topics", ["well"])]


def test_alter_warns_of_keys_and_tells_of_success(old_tool, admin):
    """The same command with --bootstrap-server succeeds in silence."""
    admin.add_topic("well", TopicPartitionInfo(0, 0, 0, (0,), (0,)))

    assert old_tool("topics", "--alter", "--topic", "well", "--partitions", 3).out == (
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or "
        "ordering of the messages will be affected\n"
        "Adding partitions succeeded!\n"
    )
    assert admin.changes == [("create_partitions", {"well": 3}, None)]
