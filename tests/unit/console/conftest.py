"""A broker for the console's tests, and the console's view of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sql_world
from lag_world import LagWorld

from ottla.console import sql_query, sql_worker
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


@pytest.fixture(scope="module")
def shop() -> Iterator[InProcessBroker]:
    """A broker whose topics statements read."""
    with InProcessBroker() as broker:
        sql_world.fill(broker)
        yield broker


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a statement may take long to start, as where many tests run."""
    monkeypatch.setattr(sql_query, "SEARCH_GRACE_MS", 35_000)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements are run in this process."""
    monkeypatch.setattr(sql_query, "WORKER", sql_world.HereWorker())
    monkeypatch.setattr(sql_worker.resource, "setrlimit", lambda *limits: None)
