"""A controller that resigns in the middle of a turn leaves nothing behind that acts for it."""

from __future__ import annotations

import asyncio

from ottla.controller.requested_topic import RequestedTopic
from ottla.registry import paths
from ottla.registry.tree import REGISTRY_RETRY_MS, Create, RegistryFailedError, Set


def test_turn_that_outlives_its_controller_leaves_nothing_behind(make_world, monkeypatch):
    """Each time watches, a timer and connections to all brokers stayed, and all that was read."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t"))
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
    assert world.orders.added == []
    assert active._timer is None
    assert not active._watches
    assert not active.topics._watches


def test_election_whose_answer_was_lost_is_held_again(make_world, monkeypatch):
    """The node was there, in this session, and nobody was the controller: for ever."""
    world = make_world()
    multi, failures = world.registry.multi, [RegistryFailedError("no answer")]

    async def lose_the_answer(operations):
        answer = await multi(operations)
        if failures and any(
            isinstance(o, Create) and o.path == paths.CONTROLLER for o in operations
        ):
            raise failures.pop()
        return answer

    monkeypatch.setattr(world.registry, "multi", lose_the_answer)
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(2 * REGISTRY_RETRY_MS)

    assert not failures
    assert world.controller.is_active
    assert world.controller.context.epoch == 3


def test_controller_that_resigns_in_the_middle_of_an_event_sends_nothing_more(
    make_world, monkeypatch
):
    """The brokers have the orders of its successor by then."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (1, 0)}))
    gate, multi = asyncio.Event(), world.registry.multi

    async def wait_at_the_gate(operations):
        answer = await multi(operations)
        if any(isinstance(each, Set) for each in operations):
            await gate.wait()
        return answer

    monkeypatch.setattr(world.registry, "multi", wait_at_the_gate)
    world.run(world.registry.delete(paths.broker(1)))
    world.runtime.advance(0)
    world.orders.order.clear()
    world.controller.resign()
    gate.set()
    world.runtime.advance(0)

    state, _ = world.run(world.registry.get(paths.partition_state("t", 0)))
    assert b'"leader":0' in state
    assert world.orders.order == []
