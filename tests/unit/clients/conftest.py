"""A virtual world with a mock cluster in it; and a broker for what needs a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.testing import InProcessBroker, MockRuntime, mock_runtime


@pytest.fixture(scope="session")
def broker() -> Iterator[InProcessBroker]:
    """One broker in this process that all tests of the folder share: topics are their own."""
    # Many records are of long ago: what is older than a week would go while a test still reads it.
    with InProcessBroker(log_retention_check_interval_ms=24 * 3600 * 1000) as running:
        yield running


@pytest.fixture
def runtime() -> Iterator[MockRuntime]:
    """Virtual time, a network in memory, seeded chance; what runs in it ends with the test."""
    runtime = mock_runtime()
    yield runtime
    for task in asyncio.all_tasks(runtime.scheduler.loop):
        task.cancel()
    runtime.scheduler.run_ready()


@pytest.fixture
def cluster(runtime: MockRuntime):
    """One broker; the topic `pages` has two partitions."""
    from mock_kafka import MockCluster

    cluster = MockCluster(runtime)
    cluster.topics["pages"] = 2
    return cluster
