"""A log manager for the tests of the log."""

import pytest
from log_world import LogWorld, write_eventfully


@pytest.fixture
def world() -> LogWorld:
    """A log manager on an empty disk in memory, with small segments and dense indexes."""
    return LogWorld()


@pytest.fixture
def eventful() -> LogWorld:
    """A log of many segments, epochs, times and transactions."""
    world = LogWorld()
    write_eventfully(world)
    return world
