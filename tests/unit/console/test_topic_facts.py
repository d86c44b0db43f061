"""Facts of a few topics: offsets, sizes and settings, and what is missing of them."""

from __future__ import annotations

import pytest
from visitor import Visitor, visit

from ottla import Producer
from ottla.console.topic_facts import retention_text, topic_facts


def test_facts_of_topics(ottla_fresh_broker):
    """Records that were deleted do not count; a topic that is not there has no settings."""
    ottla_fresh_broker.create_topic("orders", 2, cleanup_policy="compact,delete")
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        for number in range(4):
            producer.send("orders", b"x", key=b"k%d" % number, partition=0)

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        facts = (await topic_facts(cluster, [await cluster.topic("orders")]))["orders"]
        assert (facts.records, facts.policy) == (4, "compact,delete")
        assert facts.bytes > 0
        assert await topic_facts(cluster, []) == {}

    visit(ottla_fresh_broker.bootstrap_servers, walk)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, ""),
        ({"cleanup.policy": "compact", "retention.ms": "5"}, "newest of each key"),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, "for ever"),
        ({"retention.ms": "604800000"}, "7 days"),
        ({"retention.ms": "1500"}, "1.5 s"),
        ({"retention.ms": "1234567890"}, "1,234,567 s"),
        (
            {"retention.ms": "604800001", "retention.bytes": "1073000000"},
            "604,800 s or 1,023 MB a partition",
        ),
        ({"retention.bytes": "2199023255552"}, "2,048 GB a partition"),
        (
            {"retention.ms": "86400000", "retention.bytes": "1073741824"},
            "1 day or 1 GB a partition",
        ),
        ({"retention.bytes": "12"}, "12 B a partition"),
    ],
)
def test_retention_in_words(settings, text):
    """As the topic's settings have it."""
    assert retention_text(settings) == text
