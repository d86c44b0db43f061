"""The broker's settings as people write them."""

from __future__ import annotations

import logging

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import BROKER_NAMES
from ottla.config.properties import parse_properties
from ottla.errors import ConfigError

KAFKA_SAMPLE = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=6000
group.initial.rebalance.delay.ms=0
"""

PRODUCTION_SAMPLE = """
zookeeper.connect=zk-1:2181,zk-2:2181
num.partitions=8
default.replication.factor=3
log.dir=/data/kafka
broker.id=5
listeners=PLAINTEXT://:9092
auto.create.topics.enable=false
min.insync.replicas=2
queued.max.requests=1000
"""


@pytest.mark.parametrize("text", [KAFKA_SAMPLE, PRODUCTION_SAMPLE])
def test_samples_of_kafka_are_accepted(text, caplog):
    """The shipped server.properties and the production advice; nothing in them is a riddle."""
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.parse(parse_properties(text))

    assert config.broker_id in (0, 5)
    assert "not a setting that is known" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"broker.id": "1001"}, "reserved.broker.max.id"),
        ({"broker.id": "-2"}, "at least -1"),
        ({"broker.id.generation.enable": "false"}, "must be set"),
    ],
)
def test_broker_id_keeps_out_of_the_generated_ones(settings, reason):
    """An id by hand and a generated one must never meet."""
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(settings)


def test_large_broker_id_is_fine_without_generation():
    """Then there is nothing to meet."""
    settings = {"broker.id": "5000", "broker.id.generation.enable": "false"}

    assert BrokerConfig.parse(settings).broker_id == 5000


@pytest.mark.parametrize(
    "name", ["num.io.threads", "zookeeper.connect", "sasl.jaas.config", "log.cleaner.threads"]
)
def test_kafkas_other_keys_are_known(name):
    """By name or by family."""
    assert BrokerConfig.is_known_to_kafka(name)


def test_table_and_list_of_unused_names_do_not_overlap():
    """A key that is acted on is not called unused."""
    assert not set(BrokerConfig.keys) & BROKER_NAMES


def test_every_cleaner_needs_a_megabyte_for_keys():
    """log.cleaner.dedupe.buffer.size is shared by the log.cleaner.threads."""
    settings = {"log.cleaner.threads": "3", "log.cleaner.dedupe.buffer.size": str(2 << 20)}
    with pytest.raises(ConfigError, match="for each of the 3"):
        BrokerConfig.parse(settings)
