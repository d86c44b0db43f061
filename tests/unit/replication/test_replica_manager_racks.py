"""Consumers that read from the replica in their own rack (KIP-392)."""

from __future__ import annotations

from replica_world import LAG_MS, T0, ReplicaWorld

from ottla.errors import ErrorCode


def test_consumer_is_sent_to_the_replica_in_its_rack():
    """The leader names the follower, which serves what is committed as it knows it (KIP-392)."""
    world = ReplicaWorld(settings={"replica.selector.class": "RackAwareReplicaSelector"})
    world.racks = {1: "a", 2: "b", 3: "b"}
    world.create()
    world.append(1, b"x")
    world.advance(1_200)

    assert world.fetch(1, 0, "a", may_read_from_follower=True).preferred_read_replica == -1
    sent = world.fetch(1, 0, "b", may_read_from_follower=True)
    assert (sent.preferred_read_replica, sent.records) == (2, None)
    assert world.fetch(2, 0, "b", may_read_from_follower=True).records.size > 0
    assert world.fetch(2, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.close()


def test_consumer_is_not_sent_to_a_replica_that_is_out_of_sync():
    """Its readers fell behind with a replica that had lost touch, for as long as it lived."""
    world = ReplicaWorld(settings={"replica.selector.class": "RackAwareReplicaSelector"})
    world.racks = {1: "a", 2: "b", 3: "a"}
    world.create()
    world.append(1, b"x")
    world.advance(1_200)
    world.cut_off(2)
    world.append(1, b"y")
    world.advance(2 * LAG_MS)

    assert set(world.states[T0].leader_and_isr.isr) == {1, 3}
    read = world.fetch(1, 0, "b", may_read_from_follower=True)
    assert (read.preferred_read_replica, read.high_watermark) == (-1, 2)
    near = world.fetch(1, 0, "a", may_read_from_follower=True)
    assert near.preferred_read_replica == -1, "the leader is in its rack, and has everything"
    world.close()


def test_consumer_is_not_sent_elsewhere_where_replicas_are_not_chosen_by_rack():
    """Brokers and clients may have racks for another purpose."""
    world = ReplicaWorld()
    world.racks = {1: "a", 2: "b", 3: "b"}
    world.create()
    world.append(1, b"x")
    world.advance(1_200)
    read = world.fetch(1, 0, "b", may_read_from_follower=True)

    assert (read.preferred_read_replica, read.records.size > 0) == (-1, True)
    world.close()


def test_consumer_of_another_epoch_is_not_sent_to_the_replica_in_its_rack():
    """It would ask that one in vain, and be sent back."""
    world = ReplicaWorld(settings={"replica.selector.class": "RackAwareReplicaSelector"})
    world.racks = {1: "a", 2: "b", 3: "b"}
    world.create()
    world.append(1, b"x")
    world.elect(1)
    world.advance(1_200)
    errors = [
        world.fetch(1, 0, "b", may_read_from_follower=True, epoch=epoch).error
        for epoch in (0, 1, 2)
    ]

    assert errors == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]
    world.close()
