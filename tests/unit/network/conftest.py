"""A processor and its clients, on every loop there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from network_world import NetworkWorld

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass  # an optional extra: without it there is one loop to test
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


@pytest.fixture(params=LOOPS)
def new_world(request: pytest.FixtureRequest) -> Iterator[Callable[..., NetworkWorld]]:
    """Makes a processor with settings of its own."""
    worlds: list[NetworkWorld] = []

    def make(**config: object) -> NetworkWorld:
        worlds.append(NetworkWorld(LOOPS[request.param], **config))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., NetworkWorld]) -> NetworkWorld:
    """A processor with Kafka's settings."""
    return new_world()
