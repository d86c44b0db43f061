"""A broker for the console's tests, and the console's view of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lag_world import LagWorld

from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def group_broker() -> Iterator[InProcessBroker]:
    """One broker for the groups of a file."""
    with InProcessBroker() as broker:
        yield broker


@pytest.fixture
def world(group_broker: InProcessBroker) -> Iterator[LagWorld]:
    """Groups of that broker, and the console's view of them."""
    with LagWorld(group_broker.bootstrap_servers) as world:
        yield world
