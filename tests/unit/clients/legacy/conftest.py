"""Two brokers that are registered, and a topic: `pages`, one partition of which each leads."""

from __future__ import annotations

import pytest
from mock_kafka import MockCluster
from old_world import OldWorld

from ottla.testing import MockRuntime


@pytest.fixture
def old_world(runtime: MockRuntime, monkeypatch: pytest.MonkeyPatch) -> OldWorld:
    """Brokers 0 and 1."""
    world = OldWorld(runtime, MockCluster(runtime, 2), monkeypatch)
    world.add_topic("pages", {0: 0, 1: 1})
    return world
