"""Consumers of `ottla.aio` in virtual time."""

from __future__ import annotations

from functools import partial

import pytest
from consumer_world import ConsumerWorld

from ottla.aio import Consumer


@pytest.fixture
def virtual(runtime, monkeypatch):
    """Has clients open on the loop of the virtual world."""
    monkeypatch.setattr("ottla.clients.aio.loop_client.app_runtime", lambda loop: runtime)
    return runtime


@pytest.fixture
def logs(virtual, cluster) -> ConsumerWorld:
    """Logs to fetch from, and a group; its own consumer reads nothing."""
    return ConsumerWorld(virtual, cluster)


@pytest.fixture
def consumer_of(logs):
    """Makes members of a group that begin with the first record."""
    return partial(
        Consumer,
        logs.cluster.bootstrap_servers,
        group_id="g",
        topics=["pages"],
        auto_offset_reset="earliest",
    )
