"""`ottla configs --zookeeper --describe` prints the nodes of settings, as Kafka 2.3's tool does."""

import json

import pytest


@pytest.fixture
def describe(old_tool, zookeeper_nodes):
    """Describe an entity, or all of a type."""
    zookeeper_nodes.nodes |= {
        "/brokers/topics/bare": b'{"version":1,"partitions":{"0":[1]}}',
        "/config/topics/set": b'{"version":1,"config":{"b":"2","a":"1,3"}}',
        "/config/topics/bare": b'{"version":1,"config":{}}',
        "/config/brokers/1": b'{"version":1,"config":{}}',
        "/config/brokers/<default>": b'{"version":1,"config":{"log.retention.ms":"5"}}',
    }

    def run(kind, *words):
        return old_tool("configs", "--describe", "--entity-type", kind, *words)

    return run


def test_all_that_were_ever_set_are_described(describe):
    """Entities that have no settings left are shown; names in order, settings as they are kept."""
    assert describe("topics").out == (
        "Configs for topic 'bare' are \nConfigs for topic 'set' are b=2,a=1,3\n"
    )
    assert describe("brokers").out == (
        "Configs for brokers '1' are \nConfigs for default brokers are log.retention.ms=5\n"
    )
    assert describe("groups").out == ""


def test_one_is_described_by_its_name(describe):
    """A broker may have no node; a topic that is not there is one line."""
    assert (
        describe("topics", "--entity-name", "set").out == "Configs for topic 'set' are b=2,a=1,3\n"
    )
    assert describe("brokers", "--entity-name", "7").out == "Configs for brokers '7' are \n"
    assert describe("brokers", "--entity-default").out.endswith("are log.retention.ms=5\n")
    assert (
        describe("topics", "--entity-name", "none").err
        == "ottla configs: there is no topic 'none'\n"
    )


QUOTA = "producer_byte_rate=1024"


def stored(zookeeper_nodes, path):
    """The settings in a node."""
    return json.loads(zookeeper_nodes.nodes[path])["config"]


def test_quotas_are_written_to_the_nodes(old_tool, zookeeper_nodes):
    """The nodes have the words of Kafka 2.3, and the brokers get a notice."""
    zookeeper_nodes.nodes["/config/users/alice"] = b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}'
    for words, title in (
        ("--entity-type users --entity-name alice", "user-principal 'alice'"),
        ("--entity-type users --entity-default", "default user-principal"),
        ("--entity-type clients --entity-default", "default client-id"),
        (
            "--entity-type clients --entity-name app --entity-type users --entity-name alice",
            "user-principal 'alice', client-id 'app'",
        ),
    ):
        outcome = old_tool("configs", "--alter", *words.split(), "--add-config", QUOTA)
        assert outcome.out == f"Completed Updating config for entity: {title}.\n"
        described = old_tool("configs", "--describe", *words.split())
        assert described.out.startswith(f"Configs for {title} are ")

    nodes = zookeeper_nodes.nodes
    changes = [json.loads(data) for path, data in nodes.items() if "config_change_" in path]
    assert [change["entity_path"] for change in changes] == [
        "users/alice",
        "users/<default>",
        "clients/<default>",
        "users/alice/clients/app",
    ]
    alice = {"SCRAM-SHA-256": "x", "producer_byte_rate": "1024"}
    assert stored(zookeeper_nodes, "/config/users/alice") == alice
    assert stored(zookeeper_nodes, "/config/users/alice/clients/app") == {
        "producer_byte_rate": "1024"
    }


def test_quotas_of_all_are_found_in_the_nodes(old_tool, zookeeper_nodes):
    """Clients of each user as well; a user that has only these is not listed by itself."""
    quota = b'{"version":1,"config":{"request_percentage":"50.0","producer_byte_rate":"1"}}'
    zookeeper_nodes.nodes |= {
        "/config/users/CN%3Du": quota,
        "/config/users/bob": b"",
        "/config/users/bob/clients/<default>": quota,
        "/config/clients/app": quota,
    }
    are = "are request_percentage=50.0,producer_byte_rate=1"
    describe = ("configs", "--describe", "--entity-type")
    assert old_tool(*describe, "users").lines == [f"Configs for user-principal 'CN=u' {are}"]
    assert old_tool(*describe, "clients").lines == [f"Configs for client-id 'app' {are}"]
    assert old_tool(*describe, "users", "--entity-type", "clients").lines == [
        f"Configs for user-principal 'bob', default client-id {are}"
    ]
    assert old_tool(*describe, "users", "--entity-name", "bob").lines == [
        "Configs for user-principal 'bob' are "
    ]


def test_limit_in_a_node_is_removed_if_it_is_there(old_tool, zookeeper_nodes):
    """One limit is removed, and the others stay."""
    data = b'{"version":1,"config":{"consumer_byte_rate":"5","producer_byte_rate":"1"}}'
    zookeeper_nodes.nodes["/config/clients/app"] = data
    words = ("configs", "--alter", "--entity-type", "clients", "--entity-name", "app")
    refused = old_tool(*words, "--delete-config", "request_percentage")
    assert refused.err == "ottla configs: Invalid config(s): request_percentage\n"
    assert old_tool(*words, "--delete-config", "producer_byte_rate").status == 0
    assert stored(zookeeper_nodes, "/config/clients/app") == {"consumer_byte_rate": "5"}
