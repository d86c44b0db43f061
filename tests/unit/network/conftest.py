"""A processor and its clients, on every loop and every poller there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import kqueue_calls
import pytest
from network_world import NetworkWorld

from ottla.network import processor
from ottla.runtime.poller import PORTABLE_POLLERS, KqueuePoller

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass  # an optional extra: without it there is one loop to test
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


KINDS = {
    **{name: (loop, "auto") for name, loop in LOOPS.items()},
    "kqueue": (asyncio.new_event_loop, "kqueue"),
    "poll": (asyncio.new_event_loop, "poll"),
}


@pytest.fixture(params=KINDS)
def new_world(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., NetworkWorld]]:
    """Makes a processor with settings of its own."""
    worlds: list[NetworkWorld] = []
    new_loop, poller = KINDS[request.param]
    if poller == "kqueue" and poller not in processor.pollers():
        monkeypatch.setattr(processor, "pollers", lambda: ("kqueue",))
        monkeypatch.setitem(PORTABLE_POLLERS, "kqueue", partial(KqueuePoller, kqueue_calls))

    def make(**config: object) -> NetworkWorld:
        worlds.append(NetworkWorld(new_loop, poller=poller, **config))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(new_world: Callable[..., NetworkWorld]) -> NetworkWorld:
    """A processor with Kafka's settings."""
    return new_world()
