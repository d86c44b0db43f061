"""What the controller says to a broker's replicas: whom to follow, what to give up."""

from __future__ import annotations

import pytest
from replica_world import LAG_MS, T0

from ottla.errors import ErrorCode
from ottla.structs import StopReplicaPartition, TopicPartition


def test_stale_words_of_the_controller_are_refused(world):
    """An older leader epoch, and an older decision to stop."""
    world.elect(2)
    manager = world.brokers[3].manager
    state = world.states[T0]
    older = state._replace(leader_and_isr=state.leader_and_isr._replace(leader_epoch=0))
    brokers = world.live_brokers()

    assert manager.become_leader_or_follower([older], brokers) == {
        T0: ErrorCode.STALE_CONTROLLER_EPOCH
    }
    assert manager.become_leader_or_follower([state], brokers) == {T0: ErrorCode.NONE}
    assert manager.stop_replica([StopReplicaPartition(T0, 0, True)]) == {
        T0: ErrorCode.FENCED_LEADER_EPOCH
    }
    assert manager.stop_replica([StopReplicaPartition(T0, 1, True)]) == {T0: ErrorCode.NONE}
    assert world.brokers[3].log() is None


def test_broker_that_is_no_replica_cannot_fetch_as_one(world):
    """Nobody else's offset moves the high watermark."""
    world.states[T0] = world.states[T0]._replace(replicas=(1, 2))
    world.elect(1, isr=(1, 2))
    answers = world.append(1, b"a")
    world.advance(1_000)

    assert [answer.error for answer in answers] == [ErrorCode.NONE]
    assert world.brokers[3].log().log_end_offset == 0


def test_leader_at_another_address_is_followed_there(world):
    """A broker that was started again on another port has another node of the same id."""
    world.append(1, b"a")
    world.advance(100)
    moved = world.node(2)._replace(port=9999)
    state = world.states[T0]
    changed = state._replace(leader_and_isr=state.leader_and_isr._replace(leader=2, leader_epoch=1))
    for broker_id in (1, 2, 3):
        world.brokers[broker_id].manager.become_leader_or_follower([changed], {2: moved})
    world.append(2, b"b")
    world.advance(2_000)

    assert world.values(3) == [(0, b"a"), (1, b"b")]
    assert world.brokers[3].connections[-1].node == moved


def test_leader_whose_rack_is_told_is_followed_on_the_same_connection(world):
    """A controller in the follower names racks, others do not: all partitions began anew."""
    world.advance(100)
    (connection,) = world.brokers[3].connections
    world.racks = {1: "a"}
    world.create(topic_partition=TopicPartition("t", 1))

    assert world.brokers[3].connections == [connection]


def test_leader_of_nobody_is_not_followed(world):
    """Without a leader the replica waits; its fetcher ends."""
    manager = world.brokers[3].manager
    state = world.states[T0]
    gone = state._replace(leader_and_isr=state.leader_and_isr._replace(leader=-1, leader_epoch=1))
    answers = manager.become_leader_or_follower([gone], world.live_brokers())

    assert answers == {T0: ErrorCode.NONE}
    assert len(manager.fetchers) == 0
    assert not manager.partition(T0).is_leader


def test_followers_that_wait_hear_at_once_of_a_leader_that_leads_no_more(world, caplog):
    """Even a follower without news of the controller need not wait for the long poll."""
    caplog.set_level("INFO", "ottla.replication.fetcher")
    world.append(1, b"a")
    world.advance(1_200)
    state = world.states[T0]
    elected = state.leader_and_isr._replace(leader=2, leader_epoch=1, version=9)
    world.states[T0] = state._replace(leader_and_isr=elected)
    caplog.clear()
    world.tell(only=1)

    assert caplog.text.count("t-0 sits out for 40 ms: FENCED_LEADER_EPOCH") == 2  # one each


@pytest.mark.parametrize("way", ["stop", "failed directory"])
def test_replica_that_is_given_up_is_copied_no_more(world, way):
    """Its fetcher ends with the last of its partitions."""
    manager = world.brokers[2].manager
    if way == "stop":
        manager.stop_replica([StopReplicaPartition(T0, 0, False)])
    else:
        manager.on_log_dir_failure(manager.partition(T0).log.log_dir)
    world.append(1, b"a", acks=1)
    world.advance(2_000)

    assert manager.fetchers.follower(T0) is None
    assert world.values(2) == []
    if way == "stop":
        assert len(manager.fetchers) == 0


def test_broker_that_is_shut_down_copies_nothing_and_proposes_nothing(world):
    """It goes on serving nobody while the rest of it ends."""
    world.answers_isr_changes = False
    for broker_id in (1, 2):
        world.brokers[broker_id].manager.shutdown()
    world.append(1, b"a", acks=1)
    world.advance(3 * LAG_MS)

    assert world.values(2) == []
    assert len(world.brokers[2].manager.fetchers) == 0
    assert world.isr_changes == []
