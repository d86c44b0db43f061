"""`ottla preferred-replica-election --zookeeper` asks the controller by a node, as Kafka 2.3's."""

import json

import pytest

NODE = "/admin/preferred_replica_election"
WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to.\n"
)


@pytest.fixture
def elect(old_tool, zookeeper_nodes, tmp_path):
    """Elect in these partitions, or in all: t has two."""
    zookeeper_nodes.nodes["/brokers/topics/t"] = b'{"version":1,"partitions":{"0":[1],"1":[2]}}'

    def run(*partitions):
        words = []
        if partitions:
            rows = [{"topic": topic, "partition": number} for topic, number in partitions]
            path = tmp_path / "partitions.json"
            path.write_text(json.dumps({"partitions": rows}))
            words = ["--path-to-json-file", path]
        return old_tool("preferred-replica-election", *words)

    return run


def test_election_of_all_partitions_is_started(elect, zookeeper_nodes):
    """The node is the literal that Kafka writes."""
    outcome = elect()

    assert outcome.out == (
        f"{WARNING}Created preferred replica election path with t-0,t-1\n"
        "Successfully started preferred replica election for partitions Set(t-0, t-1)\n"
    )
    assert zookeeper_nodes.nodes[NODE] == (
        b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}'
    )


def test_partitions_that_do_not_exist_are_skipped(elect, zookeeper_nodes):
    """The partitions that do not exist are named at the end."""
    outcome = elect(("t", 1), ("none", 0))

    assert outcome.out == (
        f"{WARNING}Created preferred replica election path with t-1\n"
        "Successfully started preferred replica election for partitions Set(t-1)\n"
        "Skipping preferred replica leader election for partition none-0 since it doesn't exist.\n"
    )
    assert outcome.status == 0


def test_second_election_waits_for_the_first(elect, zookeeper_nodes):
    """The controller has not come to the node yet: one line, and nothing is written."""
    elect(("t", 0))
    outcome = elect(("t", 1))

    assert outcome.err == (
        "ottla preferred-replica-election: Preferred replica leader election currently in progress "
        "for t-0. Aborting operation\n"
    )
    assert b'"partition":1' not in zookeeper_nodes.nodes[NODE]
