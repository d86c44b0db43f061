"""The shortest of the stories that `make chaos` tells: one load, and one blow after the other."""

from __future__ import annotations

import pytest
from chaos_load import History
from chaos_story import Story
from chaos_world import BROKERS, ChaosWorld, end
from cut_network import CLIENT
from registry_history import Election, RegistryHistory

SEED = 1
STORY_LIMIT_S = 400


def state(leader, leader_epoch, isr, controller_epoch=1):
    """A partition as ZooKeeper has it."""
    return {
        "leader": leader,
        "leader_epoch": leader_epoch,
        "isr": isr,
        "controller_epoch": controller_epoch,
    }


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (state(2, 0, [1, 2]), "two leaders"),
        (state(3, 1, [3]), "an unclean leader"),
        (state(1, 1, [1, 2], controller_epoch=2), "in the time of"),
    ],
)
def test_history_tells_what_must_not_be(second, what):
    """Two leaders in an epoch, one that was not in sync, a write by somebody else: each is told."""
    elections = [Election(1, 1, 1)]
    RegistryHistory(elections, {0: [(2, state(1, 0, [1, 2])), (3, state(2, 1, [2]))]}).check()
    with pytest.raises(AssertionError, match=what):
        RegistryHistory(elections, {0: [(2, state(1, 0, [1, 2])), (3, second)]}).check()


def test_history_tells_of_two_controllers():
    """No epoch is given out twice, and no broker takes another one's for its own."""
    states = {0: [(9, state(1, 0, [1], controller_epoch=2))]}
    with pytest.raises(AssertionError, match="was followed by"):
        RegistryHistory([Election(1, 1, 2), Election(2, 2, 2)], states).check()
    with pytest.raises(AssertionError, match="broker 3 in epoch 2"):
        RegistryHistory([Election(1, 1, 2)], states).check_beliefs(
            "broker 3 is the controller in epoch 2"
        )


def test_counts_tell_what_became_of_records():
    """Lost, there twice, out of order, at another offset, gone after it was read: one of each."""
    told = History({0: {0: 0, 1: 1, 2: 7, 3: 4}}, {0: {0: 0, 1: 5}})
    told.add(0, [(0, 0), (2, 1), (1, 2), (1, 3)])

    assert (told.lost, told.duplicated, told.reordered) == (1, 1, 1)
    assert (told.moved, told.gone) == (2, 1)


@pytest.fixture
def world(zookeeper, tmp_path):
    """Three brokers of its own, on a network that can be cut."""
    world = ChaosWorld(tmp_path / "brokers", zookeeper, "/short-chaos")
    try:
        yield world.start()
    finally:
        world.close()


@pytest.mark.wide
@pytest.mark.timeout(STORY_LIMIT_S)
def test_load_survives_blow_after_blow(world):
    """Lost answers, a lost session, a one-way cut, a kill: each record is there once, in order."""
    # The controller leads everything: whoever is cut off from it could not change what it leads.
    leader = world.controller
    replicas = [leader, *(each for each in BROKERS if each != leader)]
    assignment = dict.fromkeys(range(3), replicas)
    with Story(world, "short", SEED, assignment=assignment, timed=False) as told:
        world.network.cut((end(leader), CLIENT))
        told.last(0.1, 0.5)
        world.network.reset(end(leader), CLIENT)
        world.network.heal()
        told.load.until_more(50)

        follower = told.chance.choice(told.followers)
        world.network.cut((end(leader), end(follower)))
        told.until(lambda: follower not in told.in_sync(), "the follower is out of sync")
        told.load.until_more(50)
        world.network.heal()
        told.until_in_sync()

        before = world.registration(leader)
        world.expire(leader)
        told.until(lambda: world.registration(leader) > before, "the broker is registered again")
        told.load.until_more(50)

        world.kill_broker(leader)
        world.start_broker(leader)

    assert told.load.count > 1000
