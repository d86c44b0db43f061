"""The broker's copy of the cluster's metadata."""

from __future__ import annotations

from uuid import UUID

from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    Node,
    PartitionState,
    TopicPartition,
)


def state(topic, partition, topic_id=1, leader=0):
    """A partition led by one broker."""
    return PartitionState(
        TopicPartition(topic, partition),
        UUID(int=topic_id),
        1,
        LeaderAndIsr(leader, 0, (leader,)),
        (leader,),
    )


HERE = EndPoint("PLAINTEXT", "PLAINTEXT", "here", 9092)
OUTSIDE = EndPoint("CLIENT", "PLAINTEXT", "outside", 19092)


def cache_with(*states):
    cache = MetadataCache("cluster")
    cache.update(states, [BrokerEndPoints(0, 1, (HERE, OUTSIDE)), BrokerEndPoints(1, 1, (HERE,))])
    return cache


def test_topics_are_listed_by_name():
    """Topics come in order, each with its partitions."""
    cache = cache_with(state("b", 0, 2), state("a", 0), state("a", 1))

    assert [(topic.name, len(topic.partitions)) for topic in cache.topics()] == [("a", 2), ("b", 1)]
    assert cache.contains(TopicPartition("a", 1))
    assert not cache.contains(TopicPartition("a", 2))


def test_a_deleted_topic_is_forgotten_with_its_id():
    """Neither name nor id finds it any more."""
    cache = cache_with(state("a", 0))

    cache.update([], [], ["a"])

    assert cache.topic("a") is None
    assert cache.topic_name(UUID(int=1)) is None


def test_a_topic_made_again_has_only_its_new_partitions():
    """A new topic id replaces the old topic as a whole."""
    cache = cache_with(state("a", 0), state("a", 1))

    cache.update([state("a", 0, topic_id=9)], [])

    assert list(cache.topic("a").partitions) == [0]
    assert cache.topic_name(UUID(int=9)) == "a"
    assert cache.topic_name(UUID(int=1)) is None


def test_brokers_are_named_as_the_listener_reaches_them():
    """A client of a named listener is told of the brokers that have it, where they have it."""
    cache = cache_with()

    assert cache.alive_brokers("CLIENT") == [Node(0, "outside", 19092)]
    assert [node.id for node in cache.alive_brokers("PLAINTEXT")] == [0, 1]
    assert cache.node(0, "PLAINTEXT") == Node(0, "here", 9092)
    assert cache.node(1, "CLIENT") is None
    assert cache.node(2, "CLIENT") is None


def test_topics_that_a_full_update_does_not_name_are_known():
    """They were deleted by a controller that did not live to say so."""
    cache = MetadataCache("cluster")
    cache.update([state("a", 0), state("b", 0, topic_id=8)], [])

    assert cache.topics_beside([state("b", 0, topic_id=8)]) == ["a"]


def test_version_grows_when_topics_or_partitions_come_and_go():
    """Groups look at their subscriptions again then, and not when a leader changes."""
    cache = cache_with(state("t", 0))
    versions = [cache.version]
    cache.update([state("t", 1)], [])
    versions.append(cache.version)
    cache.update([state("t", 1, leader=1)], [])
    assert cache.version == versions[-1]
    cache.update([state("t", 0, topic_id=2)], [])
    versions.append(cache.version)
    cache.update([], [], ["t", "unknown"])
    versions.append(cache.version)

    assert versions == sorted(set(versions))
