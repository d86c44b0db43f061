"""The property files that come with Ottla, in config/."""

from pathlib import Path

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import ConsumerConfig, ProducerConfig
from ottla.config.properties import parse_properties
from ottla.mirror.flow import parse_plan

FOLDER = Path(__file__).parents[3] / "config"


def settings(name: str) -> dict[str, str]:
    return parse_properties((FOLDER / f"{name}.properties").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "table"),
    [("server", BrokerConfig), ("producer", ProducerConfig), ("consumer", ConsumerConfig)],
)
def test_shipped_settings_are_all_used(name, table):
    """No line of a shipped file would be answered with a warning or an error."""
    assert settings(name).keys() <= table.keys.keys()
    table.parse(settings(name))


def test_server_properties_have_the_values_of_kafka():
    """What Kafka 2.3 ships and Ottla acts on is the same here."""
    expected = {
        "broker.id": "0",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "socket.request.max.bytes": "104857600",
        "log.dirs": "/tmp/ottla-logs",
        "num.partitions": "1",
        "num.recovery.threads.per.data.dir": "1",
        "offsets.topic.replication.factor": "1",
        "log.retention.hours": "168",
        "log.segment.bytes": "1073741824",
        "log.retention.check.interval.ms": "300000",
        "group.initial.rebalance.delay.ms": "0",
    }

    assert expected.items() <= settings("server").items()


def test_client_properties_have_the_values_of_kafka():
    """The files that console tools can be given."""
    assert settings("producer")["bootstrap.servers"] == "localhost:9092"
    assert settings("producer")["compression.type"] == "none"
    assert settings("consumer")["group.id"] == "test-consumer-group"


def test_mirror_properties_are_flows_both_ways():
    """The file of Kafka's mirror, with the flows that its own has."""
    plan = parse_plan(settings("connect-mirror-maker"))

    assert [flow.name for flow in plan.enabled()] == ["A->B", "B->A"]
    assert {flow.config.replication_factor for flow in plan.flows} == {1}
