"""A broker among others that a test plays."""

from __future__ import annotations

import pytest
from cluster_world import ClusterWorld


@pytest.fixture
def cluster_world() -> ClusterWorld:
    """Broker 1, and others that a test plays."""
    return ClusterWorld()
