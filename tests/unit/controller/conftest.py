"""A controller over a registry in memory, and brokers whose orders are written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from controller_world import ControllerWorld


@pytest.fixture(autouse=True)
def no_forbidden_transition(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happens, the controller moves nothing to a state that it cannot get to."""
    yield
    refused = [each for each in caplog.get_records("call") if "cannot go to" in each.getMessage()]
    assert not refused


@pytest.fixture
def world() -> ControllerWorld:
    """A controller with one live broker."""
    return ControllerWorld()


@pytest.fixture
def make_world() -> type[ControllerWorld]:
    """For worlds with more brokers or other settings."""
    return ControllerWorld
