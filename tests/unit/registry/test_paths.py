"""Kafka's paths."""

from __future__ import annotations

import pytest

from ottla.registry import paths


def test_paths_are_kafkas():
    """As they are printed in every book."""
    assert paths.broker(3) == "/brokers/ids/3"
    assert paths.topic("t") == "/brokers/topics/t"
    assert paths.partition_state("t", 0) == "/brokers/topics/t/partitions/0/state"
    assert paths.configs("topics") == "/config/topics"
    assert paths.config("topics", "t") == "/config/topics/t"
    assert paths.delete_topic("t") == "/admin/delete_topics/t"


def test_paths_of_old_consumers_are_kafkas():
    """Their groups have ids, owners and offsets."""
    assert paths.consumer_ids("g") == "/consumers/g/ids"
    assert paths.consumer_id("g", "c") == "/consumers/g/ids/c"
    assert paths.partition_owners("g", "t") == "/consumers/g/owners/t"
    assert paths.partition_owner("g", "t", 3) == "/consumers/g/owners/t/3"
    assert paths.group_offsets("g", "t") == "/consumers/g/offsets/t"
    assert paths.group_offset("g", "t", 3) == "/consumers/g/offsets/t/3"


@pytest.mark.parametrize(
    ("name", "node"), [("a b/c", "a%20b%2Fc"), ("<default>", "<default>"), ("a-b_c.d", "a-b_c.d")]
)
def test_names_of_entities_are_sanitised(name, node):
    """A user's name may have any character; a node's may not."""
    assert paths.config("users", name) == f"/config/users/{node}"
    assert paths.desanitize(node) == name
