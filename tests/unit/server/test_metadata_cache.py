"""The broker's copy of the cluster's metadata."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

from ottla.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from ottla.server.metadata_cache import CurrentLeaders, MetadataCache
from ottla.structs import (
    NO_EPOCH,
    NO_LEADER,
    NO_UUID,
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    Node,
    PartitionState,
    TopicPartition,
)
from ottla.testing.runtime import MockScheduler
from ottla.testing.virtual_loop import MockClock


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


def test_topic_without_an_id_is_found_by_name_only():
    """The id of no topic was that of the last such topic, and a fetch by id read that one."""
    cache = cache_with(state("old", 0, topic_id=0))

    assert cache.topic_name(UUID(int=0)) is None
    assert cache.contains(TopicPartition("old", 0))


def found_leader(partition, listener="CLIENT", here=()):
    """What a client of a listener is told; of the replicas here we know who leads."""
    cache = cache_with(state("a", 0), state("a", 1, leader=1))
    endpoints = {}
    leaders = CurrentLeaders(SimpleNamespace(partitions=dict(here)), cache)
    return leaders.find(TopicPartition("a", partition), listener, endpoints), endpoints


def test_current_leader_is_named_as_the_listener_reaches_it():
    """A leader without such a listener has an id only; of an unknown partition all is unknown."""
    outside = NodeEndpoint(node_id=0, host="outside", port=19092)

    assert found_leader(0) == (LeaderIdAndEpoch(leader_id=0, leader_epoch=0), {0: outside})
    assert found_leader(1) == (LeaderIdAndEpoch(leader_id=1, leader_epoch=0), {})
    assert found_leader(2) == (LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1), {})


def test_replica_knows_of_a_new_leader_before_the_metadata():
    """The controller tells the replicas first."""
    replica = SimpleNamespace(leader=1, leader_epoch=5)

    leader, endpoints = found_leader(0, "PLAINTEXT", {TopicPartition("a", 0): replica})

    assert leader == LeaderIdAndEpoch(leader_id=1, leader_epoch=5)
    assert endpoints == {1: NodeEndpoint(node_id=1, host="here", port=9092)}


def test_wait_ends_with_the_update_after_which_it_holds():
    """Whoever waits is woken by each update, and goes on by the one that brings what it wants."""
    scheduler, cache = MockScheduler(MockClock()), MetadataCache("cluster")
    waiting = scheduler.spawn(cache.wait_until(lambda: cache.topic("orders") is not None), "wait")
    given_up = scheduler.spawn(cache.wait_until(lambda: False), "wait for nothing")
    scheduler.run_ready()
    given_up.cancel()

    cache.update([state("other", 0)], [])
    scheduler.run_ready()
    assert not waiting.done()

    cache.update([state("orders", 0)], [])
    scheduler.run_ready()
    assert waiting.done()
    assert given_up.cancelled()


def test_partition_is_there_with_its_topic_and_its_number():
    """A topic that is not known has none, and a known one no others than its own."""
    cache = cache_with(state("a", 0))
    found = {}
    for name, index in (("a", 0), ("a", 5), ("gone", 0)):
        tp = TopicPartition(name, index)
        found[tp] = (cache.contains(tp), cache.topic_id(tp) is not None, cache.leader(tp) >= 0)

    assert list(found.values()) == [
        (True, True, True),
        (False, False, False),
        (False, False, False),
    ]
    assert cache.leader_and_epoch(TopicPartition("a", 5)) == (NO_LEADER, NO_EPOCH)
    assert cache.leader_and_epoch(TopicPartition("gone", 0)) == (NO_LEADER, NO_EPOCH)


def test_leader_that_the_controller_cannot_read_any_more_is_kept():
    """The partition is still led; one that is new, or of another topic, has no leader."""
    unled = LeaderAndIsr(NO_LEADER, NO_EPOCH, (), -1)
    cache = cache_with(state("a", 0), state("b", 0, 2))
    known = [state("a", 0), state("a", 1), state("b", 0, 3)]
    cache.update([each._replace(leader_and_isr=unled) for each in known], [])

    assert [cache.leader(each.topic_partition) for each in known] == [0, NO_LEADER, NO_LEADER]
    assert cache.topic_id(TopicPartition("b", 0)) == UUID(int=3)


def test_broker_that_was_told_nothing_knows_neither_controller_nor_topics():
    """Without news a broker knows no controller and no topic, and none as deleted."""
    cache = MetadataCache("the cluster")

    assert (cache.cluster_id, cache.controller_id, cache.version) == ("the cluster", -1, 0)
    assert (cache.update_count, cache.is_complete) == (0, False)
    assert not cache.is_deleted(TopicPartition("a", 0))
    cache.update([], [])
    assert (cache.update_count, cache.version) == (1, 0)


def test_partition_is_deleted_where_no_topic_or_another_one_has_its_name():
    """As far as ids are known, and only when the controller has told of all topics."""
    cache = cache_with(state("a", 0, 1), state("old", 0, 0))
    here, old, gone = (TopicPartition(name, 0) for name in ("a", "old", "gone"))
    asked = [
        (here, NO_UUID, False),
        (here, UUID(int=1), False),
        (here, UUID(int=2), True),
        (TopicPartition("a", 1), UUID(int=1), True),
        (old, NO_UUID, False),
        (old, UUID(int=1), False),
        (gone, NO_UUID, True),
        (gone, UUID(int=1), True),
    ]
    assert not any(cache.is_deleted(tp, topic_id) for tp, topic_id, _ in asked)
    cache.is_complete = True

    for tp, topic_id, expected in asked:
        assert cache.is_deleted(tp, topic_id) is expected, (tp, topic_id)


def test_another_broker_is_one_that_lives_and_is_not_this_one():
    """By the last update: who has left is none."""
    cache = cache_with()
    assert [cache.is_other(0, each) for each in (-1, 0, 1, 2)] == [False, False, True, False]

    cache.update([], [BrokerEndPoints(0, 1, (HERE,))])
    assert not cache.is_other(0, 1)
