"""A processor and its clients, on every poller there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import kqueue_calls
import pytest
from network_world import NetworkWorld

from ottla.runtime.poller import Poller
from ottla.runtime.portable_pollers import KqueuePoller, PollPoller
from ottla.runtime.serving_loop import open_poller

POLLERS: dict[str, Callable[[], Poller]] = {
    "best": open_poller,
    "kqueue": partial(KqueuePoller, kqueue_calls),
    "poll": PollPoller,
}
GUEST = "guest"
"""On the loop of another program."""


@pytest.fixture(params=[*POLLERS, pytest.param(GUEST, marks=pytest.mark.wide)])
def new_world(request: pytest.FixtureRequest) -> Iterator[Callable[..., NetworkWorld]]:
    """Makes a processor with settings of its own."""
    worlds: list[NetworkWorld] = []

    def make(**config: object) -> NetworkWorld:
        if request.param == GUEST:
            worlds.append(NetworkWorld(loop=asyncio.SelectorEventLoop(), **config))
        else:
            worlds.append(NetworkWorld(POLLERS[request.param](), **config))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., NetworkWorld]) -> NetworkWorld:
    """A processor with Kafka's settings."""
    return new_world()
