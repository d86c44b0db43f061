"""ZooKeeper that hangs, dies, or gives up a session; a broker whose id is taken (F25-F27)."""

from __future__ import annotations

import pytest
from chaos_world import BROKERS, SESSION_S
from cluster_load import until

from ottla.testing.broker_process import BrokerProcess


@pytest.mark.parametrize("seconds", [SESSION_S / 4, 3 * SESSION_S])
def test_zookeeper_hangs(story, world, seconds):
    """Records flow on as long as sessions allow, and again after it (F25)."""
    with story(f"F25 ZooKeeper hangs {seconds:.1f} s") as told:
        world.zookeeper.pause()
        told.last(seconds)
        world.zookeeper.resume()
        told.load.until_more()


def test_zookeeper_dies(story, world):
    """It comes back with its data, and so do the sessions or new ones (F25)."""
    with story("F25 ZooKeeper dies") as told:
        world.zookeeper.kill()
        told.load.until_more()
        told.last(5, 15)
        world.zookeeper.start()
        told.load.until_more()
        until(lambda: world.controller != -1, "there is a controller")
        world.until_registered()


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_session_expires(story, world, who):
    """The broker registers again and takes no stale state for granted (F26)."""
    with story(f"F26 expired {who}") as told:
        broker_id = told.leader if who == "leader" else world.controller
        before = world.registration(broker_id)
        world.expire(broker_id)
        until(lambda: world.registration(broker_id) > before, "it is registered again")
        told.until_in_sync()


def test_second_broker_of_an_id(story, world, tmp_path):
    """It is refused; the first one is not disturbed (F27)."""
    with story("F27 taken id") as told:
        broker_id = told.chance.choice(BROKERS)
        before, epoch = world.registration(broker_id), world.state(told.topic)["leader_epoch"]
        second = BrokerProcess(
            tmp_path / "second",
            broker_id=broker_id,
            zookeeper_connect=world.zookeeper.connect + world.chroot,
        )
        with pytest.raises(RuntimeError, match="is registered already"):
            second.start()
        assert world.registration(broker_id) == before
        assert world.state(told.topic)["leader_epoch"] == epoch
