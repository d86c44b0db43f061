"""ZooKeeper that hangs, dies, or gives up a session; a broker whose id is taken."""

from __future__ import annotations

import pytest
from chaos_load import PARTITIONS
from chaos_world import BROKERS, SESSION_S
from cluster_load import ClusterView

from ottla.testing.processes import BrokerProcess

LISTENERS = "REPLICATION://127.0.0.1:0,CLIENTS://127.0.0.1:0"


def until_controlled(told, world) -> None:
    """There is a controller, and it does its work."""
    told.until(lambda: world.controller != -1, "there is a controller")
    name = f"{told.topic}-after"
    ClusterView(world.bootstrap_servers).create(name, 1, len(BROKERS))
    told.until(lambda: world.in_sync(name) == set(BROKERS), f"{name} is there")


@pytest.mark.parametrize("seconds", [SESSION_S / 4, 3 * SESSION_S])
def test_zookeeper_hangs(story, world, seconds):
    """Records flow on as long as sessions allow, and again after it."""
    with story(f"ZooKeeper hangs {seconds:.1f} s") as told:
        world.zookeeper.pause()
        told.last(seconds)
        told.load.until_more()
        world.zookeeper.resume()
        told.load.until_more()
        until_controlled(told, world)


def test_zookeeper_dies(story, world):
    """It comes back with its data, and so do the sessions or new ones."""
    with story("ZooKeeper dies") as told:
        world.zookeeper.kill()
        told.load.until_more()
        told.last(5, 15)
        world.zookeeper.start()
        told.load.until_more()
        world.until_registered()
        until_controlled(told, world)


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_session_expires(story, world, who):
    """The broker registers again and takes no stale state for granted."""
    with story(f"expired {who}") as told:
        broker_id = told.leader if who == "leader" else world.controller
        before = world.registration(broker_id)
        world.expire(broker_id)
        told.until(lambda: world.registration(broker_id) > before, "it is registered again")


@pytest.mark.parametrize("has_its_addresses", [False, True])
def test_second_broker_of_an_id(story, world, tmp_path, has_its_addresses):
    """It is refused, also as one that might be the first come back; that is not disturbed."""
    with story(f"taken id{' and addresses' if has_its_addresses else ''}") as told:
        broker_id = told.chance.choice(BROKERS)
        first = world.brokers[broker_id]
        before = world.registration(broker_id), told.epochs, world.znode("/controller_epoch")
        own = {
            name: value
            for name, value in first.overrides.items()
            if name not in ("listeners", "log.dirs")
            and (has_its_addresses or name != "advertised.listeners")
        }
        second = BrokerProcess(tmp_path / "second", **own, listeners=LISTENERS)
        with pytest.raises(RuntimeError, match="is registered already"):
            second.start()
        after = world.registration(broker_id), told.epochs, world.znode("/controller_epoch")
        assert after == before
        assert [told.in_sync(p) for p in range(PARTITIONS)] == [set(BROKERS)] * PARTITIONS
