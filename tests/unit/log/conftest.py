"""A log manager for the tests of the log."""

import pytest
from log_world import LogWorld


@pytest.fixture
def world() -> LogWorld:
    """A log manager on an empty disk in memory, with small segments and dense indexes."""
    return LogWorld()
