"""What the controller says to a broker's replicas: whom to follow, what to give up."""

from __future__ import annotations

from replica_world import T0

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
    manager.become_leader_or_follower([gone], world.live_brokers())

    assert len(manager.fetchers) == 0
    assert not manager.partition(T0).is_leader
