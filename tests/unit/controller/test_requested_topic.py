"""The brokers' own topics, as they are made."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.requested_topic import offsets_topic, transactions_topic

ZOOKEEPER = {"zookeeper.connect": "here:2181"}
GIVEN = {"offsets.topic.replication.factor": 3, "transaction.state.log.replication.factor": 3}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 2), (ZOOKEEPER, 2), (GIVEN, 2), (ZOOKEEPER | GIVEN, 3)],
    ids=["alone", "cluster", "alone-given", "cluster-given"],
)
def test_replicas_that_were_asked_for_are_not_saved_on_in_a_cluster(settings, expected):
    """With 2 live brokers a topic of 3 is refused rather than made smaller (KIP-115)."""
    config = BrokerConfig.parse(settings)

    assert offsets_topic(config, (1, 2)).replication_factor == expected
    assert transactions_topic(config, (1, 2)).replication_factor == expected
