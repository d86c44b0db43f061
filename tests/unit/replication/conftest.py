"""Brokers that replicate one partition."""

import pytest
from replica_world import ReplicaWorld


@pytest.fixture
def world():
    """Three brokers with one partition that the first one leads."""
    world = ReplicaWorld()
    world.create()
    yield world
    world.close()
