"""`ottla configs --zookeeper --describe` prints the nodes of settings, as Kafka 2.3's tool does."""

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
    """Also those that have nothing left; names in order, settings as they are kept."""
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
