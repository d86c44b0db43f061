"""A broker is ready while it runs, is registered, and leads what it should."""

from __future__ import annotations

import pytest
from broker_world import BrokerWorld

from ottla.extensions.measures.health import why_not_ready
from ottla.structs import TopicPartition


def test_broker_whose_start_has_failed_is_starting():
    """It never becomes ready."""
    world = BrokerWorld()
    world.refused = OSError("in use")
    with pytest.raises(OSError, match="in use"):
        world.start()

    assert why_not_ready(world.broker) == "the broker is starting (STARTING)"


def test_broker_that_stops_says_so():
    """Whoever balances load sends it no more clients."""
    world = BrokerWorld().start()
    world.stop()

    assert why_not_ready(world.broker) == "the broker is stopping (SHUTTING_DOWN)"


def test_broker_is_ready_when_it_leads_what_it_should():
    """What others lead does not matter."""
    world = BrokerWorld().start()
    world.create("t")
    assert why_not_ready(world.broker) is None
    tp = TopicPartition("t", 0)
    state = world.broker.cache.topic("t").partitions[tp.partition]
    partition = world.broker.replica_manager.partitions[tp]
    led = partition.leadership
    partition.leadership = None
    assert "t-0 should be led" in why_not_ready(world.broker)
    elsewhere = state._replace(leader_and_isr=state.leader_and_isr._replace(leader=9))
    world.broker.cache.update([elsewhere], world.broker.cache.brokers.values())
    assert why_not_ready(world.broker) is None
    world.broker.cache.update([state], world.broker.cache.brokers.values())
    partition.leadership = led
    del world.broker.replica_manager.partitions[tp]
    assert "t-0 should be led" in why_not_ready(world.broker)
    world.broker.replica_manager.partitions[tp] = partition
    world.broker.membership.is_registered = False

    assert "not registered" in why_not_ready(world.broker)
