"""Brokers that die, hang, stop and come back under load (F01-F09, F11, F35, F36)."""

from __future__ import annotations

import os
from pathlib import Path

from chaos_world import BROKERS, SESSION_S, ChaosWorld, end
from cluster_load import until
from cut_network import CLIENT

FAILOVER_S = SESSION_S + 3
HANDOVER_S = 2.0


def test_killed_leader(story, world):
    """kill -9, back after 2 to 12 s: others write on soon, it gets in sync (F01)."""
    with story("F01 killed leader") as told:
        leader = told.leader
        world.kill_broker(leader)
        told.until_leader_is_not(leader)
        told.load.until_more()
        told.last(2, 10)
    assert told.load.rate >= 1000
    assert told.load.longest_gap_s < FAILOVER_S


def test_five_hard_bounces(story, world):
    """Whoever leads is killed, five times over (F02)."""
    with story("F02 hard bounces") as told:
        for _ in range(5):
            leader = told.leader
            world.kill_broker(leader)
            told.until_leader_is_not(leader)
            told.last(0, 1)
            world.start_broker(leader)
            told.load.until_more()


def test_killed_leader_and_successor(story, world):
    """Two of three dead: nobody may write, and nothing is lost (F03)."""
    with story("F03 leader and successor") as told:
        leader = told.leader
        world.kill_broker(leader)
        told.last(1, 4)
        successor = told.leader
        if successor in (leader, -1):
            successor = told.chance.choice(sorted(set(BROKERS) - {leader}))
        world.kill_broker(successor)
        told.last(2, 4)
        order = [leader, successor]
        told.chance.shuffle(order)
        for broker_id in order:
            world.start_broker(broker_id)


def test_restart_within_the_session(story, world):
    """The old registration is still there; the new one has an epoch of its own (F04)."""
    with story("F04 restart within session") as told:
        leader = told.leader
        before = world.registration(leader)
        world.kill_broker(leader)
        world.start_broker(leader)
        assert world.registration(leader) > before


def test_leader_sleeps_past_its_session(story, world):
    """The zombie acknowledges nothing once there is another leader (F05)."""
    with story("F05 long pause") as told:
        leader = told.leader
        world.pause_broker(leader)
        told.until_leader_is_not(leader)
        told.last(2, 6)
        world.resume_broker(leader)
        told.load.until_more()


def test_leader_sleeps_within_its_session(story, world):
    """No election is needed (F06)."""
    with story("F06 short pause") as told:
        leader, epoch = told.leader, world.state(told.topic)["leader_epoch"]
        world.pause_broker(leader)
        told.last(0.7)
        world.resume_broker(leader)
        told.load.until_more()
        assert (told.leader, world.state(told.topic)["leader_epoch"]) == (leader, epoch)


def test_stopped_leader(story, world):
    """SIGTERM: hardly anybody notices (F07)."""
    with story("F07 stopped leader") as told:
        assert world.stop_broker(told.leader) == 0
        told.load.until_more()
    assert told.load.longest_gap_s < HANDOVER_S


def test_rolling_restart(story, world):
    """One after the other, each in sync again before the next goes (F08)."""
    with story("F08 rolling restart") as told:
        for broker_id in BROKERS:
            assert world.stop_broker(broker_id) == 0
            world.start_broker(broker_id)
            told.until_in_sync()
    assert told.load.longest_gap_s < HANDOVER_S


def test_all_killed_at_once(story, world):
    """The page cache survives; epochs and high watermarks are found again (F09)."""
    with story("F09 all killed") as told:
        for broker_id in told.chance.sample(BROKERS, len(BROKERS)):
            world.kill_broker(broker_id)
        for broker_id in told.chance.sample(BROKERS, len(BROKERS)):
            world.start_broker(broker_id)


def newest_segment(world: ChaosWorld, broker_id: int, topic: str, partition: int) -> Path:
    folder = world.brokers[broker_id].data_dir / f"{topic}-{partition}"
    return max(folder.glob("*.log"))


def test_torn_files_of_a_dead_broker(story, world):
    """1 to 100 bytes are gone from each newest segment: they are fetched again (F11)."""
    with story("F11 torn files") as told:
        leader = told.leader
        world.kill_broker(leader)
        until(lambda: not any(leader in told.in_sync(p) for p in range(3)), "it is out of sync")
        for partition in range(3):
            path = newest_segment(world, leader, told.topic, partition)
            os.truncate(path, path.stat().st_size - told.chance.randint(1, 100))
        world.start_broker(leader)


def test_lost_answers(story, world):
    """What was appended but not acknowledged is sent again, and is there once (F35)."""
    with story("F35 lost answers") as told:
        for _ in range(8):
            leader = told.leader
            world.network.cut((end(leader), CLIENT))
            told.last(0.1, 0.5)
            world.network.reset(end(leader), CLIENT)
            world.network.heal()
            told.load.until_more(50)


def test_producer_state_from_the_log_alone(story, world):
    """A leader whose snapshots were deleted knows what it has all the same (F36)."""
    with story("F36 no producer snapshots") as told:
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
