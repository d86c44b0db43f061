"""A virtual world with a mock cluster in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.testing import MockRuntime, mock_runtime


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
