"""The settings of the 0.7 clients, with the names of 0.8."""

from __future__ import annotations

import pytest

from ottla.config.legacy_config import LegacyProducerConfig, ZooKeeperConsumerConfig
from ottla.errors import ConfigError
from ottla.structs import Node

CONSUMER = {"zk.connect": "localhost:2181", "groupid": "g"}


def test_names_of_0_8_are_taken():
    """The same setting under its later name."""
    config = ZooKeeperConsumerConfig.parse(
        {
            "zookeeper.connect": "zk:2181/kafka",
            "group.id": "g",
            "auto.offset.reset": "largest",
            "auto.commit.interval.ms": "100",
        }
    )

    assert (config.zk_connect, config.groupid) == ("zk:2181/kafka", "g")
    assert (config.autooffset_reset, config.autocommit_interval_ms) == ("largest", 100)


def test_defaults_are_those_of_the_design():
    """Commits once a minute, beginning at the smallest offset; 5 s, 200 and 10000 in the queue."""
    consumer = ZooKeeperConsumerConfig.parse(CONSUMER)
    producer = LegacyProducerConfig.parse({"zk.connect": "localhost:2181"})

    assert (consumer.autocommit_interval_ms, consumer.autooffset_reset) == (60000, "smallest")
    assert (producer.queue_time, producer.batch_size, producer.queue_size) == (5000, 200, 10000)
    assert (producer.producer_type, producer.queue_enqueueTimeout_ms) == ("sync", 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"groupid": "g"}, "zk.connect="),
        ({"zk.connect": "localhost:2181"}, "groupid="),
        ({**CONSUMER, "groupid": "a/b"}, "groupid=a/b"),
        ({**CONSUMER, "group.id": "other"}, "must not differ"),
        ({**CONSUMER, "autooffset.reset": "earliest"}, "autooffset.reset=earliest"),
        ({**CONSUMER, "zk.connect": "no port:x"}, "zk.connect=no port:x"),
    ],
)
def test_a_consumer_that_is_set_up_wrongly_is_refused(settings, words):
    """The error names the key, the value and the rule."""
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        ZooKeeperConsumerConfig.parse(settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "broker.list="),
        ({"broker.list": "0:a:1", "zk.connect": "b:2181"}, "not both"),
        ({"broker.list": "a:9092"}, "broker.list=a:9092"),
        ({"broker.list": "0:a:1", "partitioner.class": object}, "partitioner.class"),
        ({"broker.list": "0:a:1", "request.required.acks": 2}, "request.required.acks=2"),
        ({"broker.list": "0:a:1", "producer.type": "slow"}, "producer.type=slow"),
    ],
)
def test_a_producer_that_is_set_up_wrongly_is_refused(settings, words):
    """The error names the key, the value and the rule."""
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        LegacyProducerConfig.parse(settings)


def test_brokers_and_codecs_are_read():
    """brokerid:host:port, and codecs by number or name."""
    config = LegacyProducerConfig.parse(
        {"broker.list": "1:a:9092,2:[::1]:9093", "compression.codec": 1}
    )

    assert config.brokers == {1: Node(1, "a", 9092), 2: Node(2, "::1", 9093)}
    assert config.codec_name == "gzip"
    assert config.replace(compression_codec="snappy").codec_name == "snappy"
