"""Three brokers of which a test decides every answer, and an admin client of theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from admin_world import CONTROLLER, COORDINATOR, admin_of
from mock_kafka import MockCluster

from ottla import Admin
from ottla.testing import MockRuntime


@pytest.fixture
def cluster(runtime: MockRuntime) -> MockCluster:
    """Brokers 0 to 2: partition 0 of `pages` is led by 0, partition 1 by 1."""
    cluster = MockCluster(runtime, 3)
    cluster.topics["pages"] = 2
    cluster.controller, cluster.coordinator = CONTROLLER, COORDINATOR
    return cluster


@pytest.fixture
def virtual_admin(
    runtime: MockRuntime, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Admin]:
    """An admin client of the cluster."""
    with admin_of(runtime, cluster, monkeypatch) as admin:
        yield admin
