"""Puts this folder on the path, so that the tests can share `log_world`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from log_world import LogWorld


@pytest.fixture
def world() -> LogWorld:
    """A log manager on an empty disk in memory, with small segments and dense indexes."""
    return LogWorld()
