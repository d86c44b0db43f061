"""The broker's settings for groups."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError

PREFIX = "group.consumer."


def test_classic_protocol_cannot_be_left_out():
    """group.coordinator.rebalance.protocols, as in Kafka."""
    with pytest.raises(ConfigError, match="must have classic"):
        BrokerConfig.parse({"group.coordinator.rebalance.protocols": "consumer"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session.timeout.ms", "44999"),
        ("session.timeout.ms", "60001"),
        ("heartbeat.interval.ms", "4999"),
        ("heartbeat.interval.ms", "15001"),
    ],
)
def test_time_limit_of_consumer_groups_must_be_within_its_own_limits(key, value):
    """Those are settings as well, so that a short time can be had."""
    with pytest.raises(ConfigError, match=PREFIX + key):
        BrokerConfig.parse({PREFIX + key: value})

    minimum, maximum = f"{PREFIX}min.{key}", f"{PREFIX}max.{key}"
    BrokerConfig.parse({PREFIX + key: value, minimum: value, maximum: value})


def test_heartbeats_come_more_often_than_sessions_end():
    """A member with rarer heartbeats could never stay."""
    settings = {
        "group.consumer.min.session.timeout.ms": "5000",
        "group.consumer.session.timeout.ms": "5000",
    }
    with pytest.raises(ConfigError, match="must be less than"):
        BrokerConfig.parse(settings)


@pytest.mark.parametrize("assignors", ["", "best", "range,range"])
def test_assignors_are_those_that_there_are(assignors):
    """The setting names at least one of them, each once."""
    with pytest.raises(ConfigError, match=r"group\.consumer\.assignors"):
        BrokerConfig.parse({"group.consumer.assignors": assignors})
