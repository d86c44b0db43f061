"""Puts this folder on the path, so that the tests can share `replica_world`, and makes a world."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from replica_world import ReplicaWorld


@pytest.fixture
def world():
    """Three brokers with one partition that the first one leads."""
    world = ReplicaWorld()
    world.create()
    yield world
    world.close()
