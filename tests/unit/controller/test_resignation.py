"""A controller that resigns in the middle of a turn leaves nothing behind that acts for it."""

from __future__ import annotations

import asyncio

from ottla.controller.new_topic import NewTopic
from ottla.registry import paths


def test_turn_that_outlives_its_controller_leaves_nothing_behind(make_world, monkeypatch):
    """Each time watches, a timer and connections to all brokers stayed, and all that was read."""
    world = make_world(broker_count=2)
    world.create(NewTopic("t"))
    gate, children = asyncio.Event(), world.registry.children

    async def wait_at_the_gate(path):
        names = await children(path)
        if path == paths.BROKER_IDS:
            await gate.wait()
        return names

    monkeypatch.setattr(world.registry, "children", wait_at_the_gate)
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(0)
    active = world.controller._active
    world.controller.resign()
    gate.set()
    world.runtime.advance(0)

    assert active is not None
    assert world.channel.added == []
    assert active._timer is None
    assert not active._watches
    assert not active.topics._watches
