"""Moves of a broker end before its logs do, and are told to administrators."""

from __future__ import annotations

from broker_world import BrokerWorld

from ottla.extensions.moves.moves import Moves


def test_moves_end_before_the_logs_are_closed():
    """They are attached to the logs."""
    world = BrokerWorld().start()
    stopped = world.spy(world.broker.find(Moves).replica_moves, "shutdown")
    world.stop()

    assert len(stopped) == 1
