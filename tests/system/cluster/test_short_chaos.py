"""The shortest of the stories that `make chaos` tells: one load, and one blow after the other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "chaos"))

from chaos_story import Story
from chaos_world import BROKERS, ChaosWorld, end
from cluster_load import until
from cut_network import CLIENT

SEED = 1


@pytest.fixture
def world(zookeeper, tmp_path):
    """Three brokers of its own, on a network that can be cut."""
    world = ChaosWorld(tmp_path / "brokers", zookeeper, "/short-chaos")
    try:
        yield world.start()
    finally:
        world.close()


def test_load_survives_blow_after_blow(world):
    """Lost answers, a lost session, a one-way cut, a kill: each record is there once, in order."""
    # The controller leads everything: whoever is cut off from it could not change what it leads.
    leader = world.controller
    replicas = [leader, *(each for each in BROKERS if each != leader)]
    assignment = dict.fromkeys(range(3), replicas)
    with Story(world, "short", SEED, assignment=assignment) as told:
        world.network.cut((end(leader), CLIENT))
        told.last(0.1, 0.5)
        world.network.reset(end(leader), CLIENT)
        world.network.heal()
        told.load.until_more(50)

        follower = told.chance.choice(told.followers)
        world.network.cut((end(leader), end(follower)))
        until(lambda: follower not in told.in_sync(), "the follower is out of sync")
        told.load.until_more(50)
        world.network.heal()
        told.until_in_sync()

        before = world.registration(leader)
        world.expire(leader)
        until(lambda: world.registration(leader) > before, "the broker is registered again")
        told.load.until_more(50)

        world.kill_broker(leader)
        world.start_broker(leader)

    assert told.load.count > 1000
