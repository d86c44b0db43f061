"""Kafka's paths."""

from __future__ import annotations

import pytest

from ottla.registry import paths
from ottla.structs import ClientEntity


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
    ("name", "node"),
    [
        ("a b/c", "a%20b%2Fc"),
        ("<default>", "<default>"),
        ("a-b_c.d", "a-b_c.d"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("\0", "%00"),
    ],
)
def test_names_of_entities_are_sanitised(name, node):
    """A user's name may have any character; a node's may not."""
    assert paths.config("users", name) == f"/config/users/{node}"
    assert paths.desanitize(node) == name


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (ClientEntity(user="alice"), "users/alice"),
        (ClientEntity(user=""), "users/<default>"),
        (ClientEntity(client_id="app*1"), "clients/app%2A1"),
        (ClientEntity("CN=u1,O=x y", "a/b"), "users/CN%3Du1%2CO%3Dx%20y/clients/a%2Fb"),
        (ClientEntity("", ""), "users/<default>/clients/<default>"),
        (ClientEntity("<default>", "~"), "users/%3Cdefault%3E/clients/%7E"),
        (ClientEntity(".", ".."), "users/%2E/clients/%2E%2E"),
        (ClientEntity(ip="127.0.0.9"), "ips/127.0.0.9"),
        (ClientEntity(ip=""), "ips/<default>"),
    ],
)
def test_client_entities_lie_where_kafka_looks_for_them(entity, path):
    """Names are written as Kafka's Sanitizer writes them, and read back."""
    assert paths.client_entity(entity) == path
    assert paths.parse_client_entity(path) == entity


@pytest.mark.parametrize(
    "path", ["topics/t", "users", "users/a/clients", "users/a/ips/b", "clients/a/users/b", "ips"]
)
def test_other_paths_are_no_client_entities(path):
    """A notice of a change names topics and brokers as well."""
    assert paths.parse_client_entity(path) is None
