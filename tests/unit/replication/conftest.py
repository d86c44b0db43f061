"""Brokers that replicate one partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from replica_world import ReplicaWorld


@pytest.fixture
def world():
    """Three brokers with one partition that the first one leads."""
    world = ReplicaWorld()
    world.create()
    yield world
    world.close()


@pytest.fixture(autouse=True)
def no_bug(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No callback, task or round of a fetcher ends with an error that nobody has foreseen."""
    yield
    bugs = [
        each.getMessage()
        for each in caplog.get_records("call")
        if each.levelno >= logging.ERROR and each.exc_info
    ]
    assert bugs == []
