"""Cuts between brokers, one-way and both ways, and from ZooKeeper; slow roads."""

from __future__ import annotations

import pytest
from chaos_load import PARTITIONS, REQUEST_S
from chaos_story import HUNG_S
from chaos_world import BROKERS, LAG_S, SESSION_S, ZOOKEEPER, end
from cut_network import Road

QUIET_S = 2.0
DELAY_S, BYTES_PER_S, LOSS = 0.1, 3_000_000 / 8, 0.01
MAX_FLAPS = 6
OUT_OF_SYNC_S = 1.5 * LAG_S + REQUEST_S + 1
"""A leader looks for replicas that lag once in half the time for which they may; the producer may
have given up its request meanwhile, and sends it again."""


def led_by(broker_id: int) -> dict[int, list[int]]:
    """Every partition is led by this broker, and followed by the others."""
    others = [each for each in BROKERS if each != broker_id]
    return {partition: [broker_id, *others] for partition in range(3)}


def test_leader_cut_from_its_followers(story, world):
    """It is in sync alone and takes nothing that two must have.

    The leader is the controller: another one could not be asked to take followers out.
    """
    leader = world.controller
    with story("leader without followers", assignment=led_by(leader)) as told:
        told.gap_limit_s = None
        others = [end(each) for each in told.followers]
        world.network.isolate(end(leader), *others)
        told.until(
            lambda: all(told.in_sync(p) == {leader} for p in range(PARTITIONS)),
            "the leader is in sync alone",
        )
        before = told.load.count
        told.last(QUIET_S)
        assert told.load.count == before
        world.network.heal()
        told.until_writable()


@pytest.mark.parametrize("is_controller", [False, True])
def test_leader_cut_from_zookeeper(story, world, is_controller):
    """Others lead once its session is over; what it acknowledged alone is nothing."""
    controller = world.controller
    others = [each for each in BROKERS if each != controller]
    leader = controller if is_controller else others[0]
    name = f"{'controller' if is_controller else 'leader'} without ZooKeeper"
    with story(name, assignment=led_by(leader)) as told:
        # Nobody who is registered tells it that it leads no more: it keeps what it has been sent,
        # and says to clients that it leads. They find its successor once they ask somebody else.
        told.gap_limit_s = None
        world.network.isolate(end(leader), ZOOKEEPER)
        told.until(
            lambda: told.leader not in (-1, leader) and not told.refuses(told.leader),
            "a successor takes records",
            HUNG_S,
        )
        told.until(lambda: told.refuses(leader), "the old leader takes nothing")
        told.load.until_more()
        told.last(SESSION_S, 3 * SESSION_S)
        world.network.heal()
        told.until_in_sync()


@pytest.mark.parametrize("to_leader", [False, True])
def test_one_way_cut(story, world, to_leader):
    """A follower that does not hear the leader, or is not heard, leaves and comes back."""
    leader = world.controller
    name = f"one way {'to' if to_leader else 'from'} the leader"
    with story(name, assignment=led_by(leader)) as told:
        told.gap_limit_s = OUT_OF_SYNC_S
        follower = told.chance.choice(told.followers)
        way = (end(follower), end(leader)) if to_leader else (end(leader), end(follower))
        world.network.cut(way)
        told.until(lambda: follower not in told.in_sync(), "the follower is out of sync")
        told.load.until_more()
        assert told.in_sync() == told.brokers - {follower}
        world.network.heal()


@pytest.mark.parametrize("to_leader", [False, True])
def test_one_way_cut_from_the_controller(story, world, to_leader):
    """The controller cannot be asked to take itself out: nothing is acknowledged or lost."""
    controller = world.controller
    leader = next(each for each in BROKERS if each != controller)
    name = f"one way {'to' if to_leader else 'from'} a leader"
    with story(name, assignment=led_by(leader)) as told:
        told.gap_limit_s = None
        way = (end(controller), end(leader)) if to_leader else (end(leader), end(controller))
        world.network.cut(way)
        told.last(4, 8)
        world.network.heal()
        told.until_writable()


def test_ring(story, world):
    """Two brokers do not see each other, the third one sees both."""
    with story("ring") as told:
        told.gap_limit_s = None
        leader = told.leader
        epoch = world.znode("/controller_epoch")
        world.network.isolate(end(leader), end(told.chance.choice(told.followers)))
        told.last(4, 8)
        assert world.znode("/controller_epoch") == epoch
        world.network.heal()
        told.until_writable()


def test_slow_and_lossy_network(story, world):
    """100 ms, 3 Mbit/s and 1 % loss between brokers: it takes longer, and that is all."""
    with story("slow and lossy network") as told:
        told.min_rate = 500
        before = [world.changes(told.topic, partition) for partition in range(3)]
        road = Road(DELAY_S, BYTES_PER_S, LOSS, told.chance)
        ways = [(end(one), end(other)) for one in BROKERS for other in BROKERS if one != other]
        world.network.slow(road, *ways)
        for _ in range(20):
            told.load.until_more(200)
        flaps = [world.changes(told.topic, p) - before[p] for p in range(3)]
        print(f"the in-sync replicas changed {flaps} times")
        assert max(flaps) <= MAX_FLAPS
        world.network.heal()
