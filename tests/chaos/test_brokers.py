"""Brokers that die, hang, stop and come back under load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_requests import BrokerConnection, partition_answer, produce_request
from chaos_load import PARTITIONS
from chaos_story import HANDOVER_S, HUNG_S, Story
from chaos_world import BROKERS, ChaosWorld, end
from cluster_load import ClusterView
from cut_network import CLIENT
from live_group import LiveGroup

from ottla.errors import ErrorCode

OFFSETS = "__consumer_offsets"
NOT_HANDED_OVER = "others will be elected"


def test_killed_leader(story, world):
    """kill -9, back after 2 to 12 s: others write on soon, it gets in sync."""
    with story("killed leader") as told:
        leader = told.leader
        world.kill_broker(leader)
        told.until_leader_is_not(leader)
        told.load.until_more()
        told.last(2, 10)


def test_five_hard_bounces(story, world):
    """Whoever leads is killed, five times over."""
    with story("hard bounces") as told:
        for _ in range(5):
            leader = told.leader
            world.kill_broker(leader)
            told.until_leader_is_not(leader)
            told.last(0, 1)
            world.start_broker(leader)
            told.load.until_more()
    # More than these where the controller makes the preferred replica the leader again.
    assert len(told.history.leaders(0)) > 5


@pytest.mark.parametrize("is_elected", [True, False])
def test_killed_leader_and_successor(story, world, is_elected):
    """Two of three dead: nobody may write, nothing is lost, nobody else leads.

    The second is killed 1 to 4 s after it was elected, or before anybody is.
    """
    second = "successor" if is_elected else "follower"
    with story(f"leader and {second}") as told:
        told.gap_limit_s = None
        leader = told.leader
        successor = told.chance.choice(told.followers)
        world.kill_broker(leader)
        if is_elected:
            told.until_leader_is_not(leader)
            successor = told.leader
            told.last(1, 4)
        world.kill_broker(successor)
        told.last(0.5)  # what both had is on its way to the producer
        before = told.load.count
        told.last(2, 4)
        assert told.load.count == before
        for broker_id in told.chance.sample([leader, successor], 2):
            world.start_broker(broker_id)
        told.until_writable()


def test_restart_within_the_session(story, world):
    """The old registration is still there; the new one has an epoch of its own."""
    with story("restart within session") as told:
        leader = told.leader
        before = world.registration(leader)
        world.kill_broker(leader)
        assert world.registration(leader) == before
        world.start_broker(leader)
        assert world.registration(leader) > before


def test_leader_sleeps_past_its_session(story, world):
    """The zombie acknowledges nothing once there is another leader."""
    with story("long pause") as told, BrokerConnection(world.ports[told.leader]) as zombie:
        told.gap_limit_s = HUNG_S
        leader = told.leader
        world.pause_broker(leader)
        zombie.send(produce_request(told.topic))
        told.until_leader_is_not(leader)
        told.last(2, 6)
        world.resume_broker(leader)
        assert partition_answer(zombie.receive()).error_code != ErrorCode.NONE
        told.load.until_more()


def test_leader_sleeps_within_its_session(story, world):
    """No election is needed."""
    with story("short pause") as told:
        leader, epochs, controller = told.leader, told.epochs, world.znode("/controller_epoch")
        world.pause_broker(leader)
        told.last(0.3, 0.9)
        world.resume_broker(leader)
        told.load.until_more()
        assert (told.leader, told.epochs) == (leader, epochs)
        assert world.znode("/controller_epoch") == controller


def test_stopped_leader(story, world):
    """SIGTERM: others lead before it goes, hardly anybody notices."""
    with story("stopped leader") as told:
        told.gap_limit_s = HANDOVER_S
        leader = told.leader
        assert world.stop_broker(leader) == 0
        told.load.until_more()
        assert leader not in {world.leader(told.topic, p) for p in range(PARTITIONS)}
        assert NOT_HANDED_OVER not in world.brokers[leader].log


@contextlib.contextmanager
def calm_group(told: Story) -> Iterator[None]:
    """Two members of a group read the load; each has the same partitions all the time."""
    view = ClusterView(told.world.bootstrap_servers)
    with LiveGroup(view, told.topic, told.topic) as group:
        group.join()
        group.join()
        group.until_shared()
        group.until_more()
        before = [member.assignments[:] for member in group.members]
        yield
        group.until_more()
        assert [member.assignments for member in group.members] == before


def test_rolling_restart(story, world):
    """One after the other, each in sync again before the next goes; no group rebalances."""
    with story("rolling restart") as told, calm_group(told):
        told.gap_limit_s = HANDOVER_S
        for broker_id in told.chance.sample(BROKERS, len(BROKERS)):
            assert world.stop_broker(broker_id) == 0
            world.start_broker(broker_id)
            told.until_in_sync()
            told.until(
                lambda: all(world.in_sync(OFFSETS, p) == set(BROKERS) for p in range(3)),
                "all replicas of the offsets are in sync",
            )
            assert NOT_HANDED_OVER not in world.brokers[broker_id].log


def test_all_killed_at_once(story, world):
    """The page cache survives; epochs and high watermarks are found again."""
    with story("all killed") as told:
        told.gap_limit_s = None
        world.kill_all(*told.chance.sample(BROKERS, len(BROKERS)))
        for broker_id in told.chance.sample(BROKERS, len(BROKERS)):
            world.start_broker(broker_id)
        told.until_writable()


def newest_segment(world: ChaosWorld, broker_id: int, topic: str, partition: int) -> Path:
    folder = world.brokers[broker_id].data_dir / f"{topic}-{partition}"
    return max(folder.glob("*.log"))


def test_torn_files_of_a_dead_broker(story, world):
    """1 to 100 bytes are gone from each newest segment: they are fetched again."""
    with story("torn files") as told:
        leader = told.leader
        world.kill_broker(leader)
        told.until(
            lambda: not any(leader in told.in_sync(p) for p in range(PARTITIONS)),
            "it is out of sync",
        )
        for partition in range(PARTITIONS):
            path = newest_segment(world, leader, told.topic, partition)
            os.truncate(path, path.stat().st_size - told.chance.randint(1, 100))
        world.start_broker(leader)


def test_lost_answers(story, world):
    """What was appended but not acknowledged is sent again, and is there once.

    The connection ends between append and reply, and at last the leader itself.
    """
    with story("lost answers") as told:
        for is_last in [False] * 8 + [True]:
            leader = told.leader
            world.network.cut((end(leader), CLIENT))
            told.last(0.1, 0.5)
            if is_last:
                world.kill_broker(leader)
            world.network.reset(end(leader), CLIENT)
            world.network.heal()
            told.load.until_more(50)


def test_producer_state_from_the_log_alone(story, world):
    """A leader whose snapshots were deleted knows what it has all the same."""
    with story("no producer snapshots") as told:
        leader = told.leader
        world.kill_broker(leader)
        folder = world.brokers[leader].data_dir
        told.until_leader_is_not(leader)
        for path in folder.glob(f"{told.topic}-*/*.snapshot"):
            path.unlink()
        world.start_broker(leader)
        told.until_in_sync()
        for other in sorted(set(BROKERS) - {leader}):
            told.load.until_more()
            world.stop_broker(other)
            told.load.until_more(50)
            world.start_broker(other)
            told.until_in_sync()
