"""A broker with a cleaner, and one without."""

from __future__ import annotations

import pytest
from broker_world import BrokerWorld

from ottla.extensions.cleaner.cleaner import Cleaner
from ottla.extensions.moves.moves import Moves


def test_rounds_end_before_the_logs_are_closed():
    """The cleaner is attached to the logs as the moves are, which end before it does."""
    world = BrokerWorld().start()
    world.steps.clear()
    world.spy(world.broker.find(Cleaner).log_cleaner, "shutdown", "cleaner")
    world.spy(world.broker.find(Moves).replica_moves, "shutdown", "moves")
    world.stop()

    assert [step for step, _ in world.steps if step in ("cleaner", "moves")] == ["moves", "cleaner"]


@pytest.mark.parametrize(("enabled", "is_there"), [("true", True), ("false", False)])
def test_broker_has_a_cleaner_where_it_is_enabled(enabled, is_there):
    """Logs move and are served without one, too."""
    world = BrokerWorld(log_cleaner_enable=enabled).start()

    assert (world.broker.find(Cleaner) is not None) is is_there
