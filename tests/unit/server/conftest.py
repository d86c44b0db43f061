"""Puts this folder on the path, so that its world of brokers can be shared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cluster_world import ClusterWorld


@pytest.fixture
def cluster_world() -> ClusterWorld:
    """Broker 1, and others that a test plays."""
    return ClusterWorld()
