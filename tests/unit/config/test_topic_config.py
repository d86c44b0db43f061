"""A topic's settings over those of its broker."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import TOPIC_UNUSED
from ottla.config.topic_config import TopicConfig
from ottla.errors import ConfigError


def test_broker_gives_the_defaults_and_the_topic_wins():
    """What is not overridden comes from the broker's synonym."""
    broker = BrokerConfig.parse({"log.segment.bytes": "100", "log.retention.hours": "1"})
    config = TopicConfig.of(broker, {"segment.bytes": "50", "cleanup.policy": "compact,delete"})

    assert config.segment_bytes == 50
    assert config.retention_ms == 3_600_000
    assert config.cleanup_policy == ("compact", "delete")
    assert config.is_given("segment.bytes")
    assert not config.is_given("retention.ms")


def test_defaults_are_those_of_a_broker_without_settings():
    """The page of settings tells the truth about a topic's defaults."""
    bare = TopicConfig.of(BrokerConfig(), {})

    assert {name: bare.text_of(name) for name in TopicConfig.keys} == {
        name: row.format(row.default) for name, row in TopicConfig.keys.items()
    }


def test_every_setting_names_its_broker_synonym():
    """Each is a row of the broker's table; replicas are named for single topics only."""
    names = {name for row in TopicConfig.keys.values() for name in row.broker_keys}

    assert names <= set(BrokerConfig.keys)
    without = [name for name, row in TopicConfig.keys.items() if not row.broker_keys]
    assert without == [
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "13"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "remove"),
        ("message.timestamp.type", "Now"),
        ("min.insync.replicas", "0"),
        ("flush.ms", None),
        ("leader.replication.throttled.replicas", "0:1,2"),
        ("no.such.setting", "1"),
    ],
)
def test_bad_override_is_refused(name, value):
    """Unknown names are refused too: a topic's settings are kept for good."""
    with pytest.raises(ConfigError, match=f"{name}="):
        TopicConfig.validate({name: value})


def test_settings_that_only_kafka_uses_are_accepted():
    """Tools and older clients set them, or say Kafka's defaults."""
    TopicConfig.validate(dict.fromkeys(TOPIC_UNUSED, "1"))
    TopicConfig.validate({"preallocate": "false", "local.retention.ms": "-2"})

    assert not set(TopicConfig.keys) & set(TOPIC_UNUSED)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("preallocate", "true", "segments grow"),
        ("remote.storage.enable", "true", "no tiered storage"),
        ("remote.log.copy.disable", "true", "no tiered storage"),
        ("local.retention.ms", "1000", "no tiered storage"),
        ("local.retention.bytes", "1000", "no tiered storage"),
    ],
)
def test_setting_that_would_do_nothing_is_refused(name, value, reason):
    """The one that sets it gets the error."""
    with pytest.raises(ConfigError, match=f"{name}={value}: must not be set; .*{reason}"):
        TopicConfig.validate({name: value})


def test_misspelt_topic_setting_is_told_by_its_name():
    """The error says which one was meant."""
    with pytest.raises(ConfigError, match=r"retention\.m=1: .* did you mean retention\.ms\?"):
        TopicConfig.validate({"retention.m": "1"})


def test_compaction_lags_must_not_contradict_each_other():
    """No record can have to be compacted before it may be."""
    with pytest.raises(ConfigError, match="must not be above max"):
        TopicConfig.validate({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_each_limit_on_what_is_kept_says_how_it_is_lifted():
    """Topics whose settings are not known are adopted with every limit lifted, also a new one."""
    limits = {name for name in TopicConfig.keys if name.startswith("retention.")}

    assert {name for name, row in TopicConfig.keys.items() if row.keeps_all is not None} == limits
    assert {TopicConfig.keys[name].parse(TopicConfig.keys[name].keeps_all) for name in limits} == {
        -1
    }
