"""Clients of `ottla.aio` in virtual time, with the brokers of the other clients' worlds."""

from __future__ import annotations

from functools import partial

import pytest
from consumer_world import ConsumerWorld
from transaction_world import TransactionWorld

from ottla.aio import Consumer, Producer


@pytest.fixture
def virtual(runtime, monkeypatch):
    """Has clients open on the loop of the virtual world."""
    monkeypatch.setattr("ottla.clients.aio.loop_client.app_runtime", lambda loop: runtime)
    return runtime


@pytest.fixture
def world(virtual, cluster) -> TransactionWorld:
    """Brokers that agree to all; its own producer sends nothing."""
    return TransactionWorld(virtual, cluster)


@pytest.fixture
def producer_of(world):
    """Makes producers without linger."""
    return partial(Producer, world.cluster.bootstrap_servers, linger_ms=0)


@pytest.fixture
def logs(virtual, cluster) -> ConsumerWorld:
    """Logs to fetch from, and a group; its own consumer reads nothing."""
    return ConsumerWorld(virtual, cluster)


@pytest.fixture
def consumer_of(logs):
    """Makes consumers that begin with the first record."""
    servers = logs.cluster.bootstrap_servers
    return partial(Consumer, servers, auto_offset_reset="earliest", enable_auto_commit=False)
