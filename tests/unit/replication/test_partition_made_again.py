"""A topic that is deleted and made again has the name, and the epochs, of another."""

from __future__ import annotations

import errno
from uuid import UUID

from replica_world import T0, TOPIC_ID, DirectConnection

from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchRequest
from ottla.structs import EPOCH_DURING_DELETE, StopReplicaPartition, TopicPartition

NEW_ID = UUID(int=8)


def make_again(world, *broker_ids):
    """The controller has these brokers delete the topic, and create another of the same name."""
    world.topic_names.pop(TOPIC_ID, None)
    world.topic_names[NEW_ID] = "t"
    state = world.states[T0] = world.states[T0]._replace(topic_id=NEW_ID)
    for broker_id in broker_ids:
        manager = world.brokers[broker_id].manager
        manager.stop_replica([StopReplicaPartition(T0, EPOCH_DURING_DELETE, True)])
        manager.become_leader_or_follower([state], world.live_brokers())


def test_fetch_for_the_older_topic_says_nothing_of_the_new_one(world):
    """It came late, within a session that had the name: the leader believed that it had copies."""
    for number in range(3):
        world.append(1, b"old %d" % number)
    world.advance(600)
    make_again(world, 1)
    world.append(1, b"new")
    world.advance(1_000)

    assert world.brokers[1].log().high_watermark == 0
    assert world.values(2) == [(0, b"old 0"), (1, b"old 1"), (2, b"old 2")]
    assert world.fetch(1, 0).error is ErrorCode.INCONSISTENT_TOPIC_ID


def test_broker_that_was_cut_off_meanwhile_takes_the_new_topic_over(world):
    """It refused the new topic, until it was started again, for the sake of the older one."""
    world.append(1, b"old")
    world.advance(600)
    make_again(world, 1)
    told = world.tell()
    world.append(1, b"new")
    world.advance(1_000)

    assert told == dict.fromkeys((1, 2, 3), ErrorCode.NONE)
    assert [world.values(broker_id) for broker_id in (1, 2, 3)] == [[(0, b"new")]] * 3
    assert any("-stray" in name for name in world.disks[2].list_dir("/data"))


def test_records_of_the_older_topic_that_come_late_are_not_taken(world, monkeypatch):
    """The follower had made its log anew while the leader's answer was on its way."""
    world.create(topic_partition=TopicPartition("t", 1))  # its fetcher has more to do
    late = []
    deliver = DirectConnection._deliver

    def hold_back(self, request, version, future):
        if self.source == 2 and isinstance(request, FetchRequest):
            late.append(lambda: deliver(self, request, version, future))
        else:
            deliver(self, request, version, future)

    monkeypatch.setattr(DirectConnection, "_deliver", hold_back)
    world.advance(1_000)
    world.append(1, b"old")
    make_again(world, 2)
    late[0]()
    world.advance(10)

    assert world.values(2) == []


def test_replica_whose_older_log_cannot_be_put_away_is_offline(world):
    """It copies nothing more into it, and says to everybody that its disk has failed."""
    world.append(1, b"old")
    world.advance(600)
    world.disks[2].fail("rename", "/data/t-0*", error=errno.EIO)
    make_again(world, 1)
    told = world.tell()
    manager = world.brokers[2].manager

    assert told == {1: ErrorCode.NONE, 2: ErrorCode.KAFKA_STORAGE_ERROR, 3: ErrorCode.NONE}
    assert manager.offline_partitions == {T0}
    assert manager.fetchers.follower(T0) is None
    assert manager.why_missing(T0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert T0 not in manager.partitions
